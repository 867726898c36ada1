"""Arguments and options that several commands share, each declared once.

The planner options are plain text on the command line. The planner's own declarations parse and
check them, so that ids, specs and the command line refuse a value with the same message. Their
choices and defaults are repeated in the help texts below because `--help` must not import a
planner; a test compares the two.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fmdp._base.parameters import REQUIRED, Bytes
from fmdp.errors import FmdpError, InvalidParameter, UnknownName

if TYPE_CHECKING:
    from fmdp.planning.plan import Planner


def complete_planner(incomplete: str) -> list[str]:
    """Return the planner names that the shell offers; imports no planner."""
    from fmdp.planning.registry import PLANNERS

    return [name for name in PLANNERS.names() if name.startswith(incomplete)]


def complete_learner(incomplete: str) -> list[str]:
    """Return the learner names that the shell offers."""
    from fmdp.learning.registry import LEARNERS

    return [name for name in LEARNERS.names() if name.startswith(incomplete)]


def complete_setting(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return "c=" and its meaning, for each parameter of the learner named so far."""
    from fmdp.learning.registry import LEARNERS

    try:
        kind, _ = LEARNERS.split(str(ctx.params.get("learner")))
    except FmdpError:
        return []
    return [
        (f"{parameter.name}=", parameter.meaning)
        for parameter in kind.parameters
        if f"{parameter.name}=".startswith(incomplete)
    ]


Problem = Annotated[
    str,
    typer.Argument(
        metavar="PROBLEM",
        help="A problem id, NAME:SIZE[,key=value...] (see `fmdp list`) or "
        "module:Class[:SIZE][,key=value...], or a model file.",
    ),
]
PolicyFile = Annotated[
    Path,
    typer.Argument(metavar="POLICY", help="A policy saved by `fmdp plan --out`."),
]
StoreDirectory = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="Directory of the stored runs (`fmdp sweep --out`)."),
]
Learner = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Learner, with optional parameters, e.g. psrl or psrl,c=0.1 (see `fmdp list`); "
        "module:Class for your own.",
        autocompletion=complete_learner,
    ),
]
LearnerSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a parameter of the learner; may be repeated.",
        autocompletion=complete_setting,
    ),
]
Runs = Annotated[
    int, typer.Option(metavar="N", help="Runs per learner and problem, one seed each.", min=1)
]
Steps = Annotated[int, typer.Option(metavar="T", help="Steps per run.", min=1)]
WorkerCount = Annotated[
    int | None,
    typer.Option(metavar="N", help="Number of worker processes. Default: one per core."),
]
DaskAddress = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Address of a Dask scheduler that runs them instead of --workers."
    ),
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Repeat runs that failed or whose data is damaged.")
]
Latex = Annotated[bool, typer.Option("--latex", help="Write the tables as LaTeX too (booktabs).")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object to standard output, nothing else.")
]


class PlannerOption(NamedTuple):
    """An option of the command line and the planner setting that it gives."""

    name: str
    setting: str
    metavar: str
    help: str

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"


PLANNER_OPTIONS = (
    PlannerOption(
        "span_budget",
        "budget",
        "Q[,Q...]",
        "span: upper bound on the factored spans: one number for their sum, or one per state "
        "variable, in units of the reward. Needed by --planner span.",
    ),
    PlannerOption(
        "span_split",
        "split",
        "uniform|search",
        "span: how a single budget is divided among the state variables. Default: uniform.",
    ),
    PlannerOption(
        "basis",
        "basis",
        "auto|singles|indicators|pairs|local",
        "alp: basis functions that approximate the value function; auto chooses them for the "
        "problem (inside learners it begins with singles and may grow). Default: auto.",
    ),
    PlannerOption(
        "method",
        "method",
        "cuts|factored",
        "alp: solve the linear program by constraint generation (cuts) or in factored form. "
        "Default: cuts.",
    ),
    PlannerOption(
        "criterion",
        "criterion",
        "discounted|average|finite",
        "What to maximise: the discounted sum of rewards, the average per step, or (exact and "
        "counts) the sum over --horizon steps. Default: average for exact, counts and coupled; "
        "discounted for alp.",
    ),
    PlannerOption(
        "horizon",
        "horizon",
        "H",
        "exact, counts: number of steps of --criterion finite, which needs it.",
    ),
    PlannerOption(
        "discount",
        "discount",
        "G",
        "Discount factor, at least 0 and below 1, of --criterion discounted; --criterion finite "
        "has none unless it is given. Default: 0.95.",
    ),
    PlannerOption(
        "tolerance",
        "tolerance",
        "E",
        "Stop when the gap between the bounds on the gain (alp: the excess of the objective over "
        "its optimum) is at most E, in units of the reward. Default: 1e-6 times the largest range "
        "of a reward factor.",
    ),
    PlannerOption(
        "max_iterations",
        "max_iterations",
        "N",
        "Stop after N sweeps (alp: rounds of the LP). Default: 100,000 sweeps, no limit for alp.",
    ),
    PlannerOption(
        "max_seconds", "max_seconds", "S", "Stop each plan after S seconds. Default: no limit."
    ),
    PlannerOption(
        "memory_limit",
        "memory_limit",
        "B",
        "Refuse to plan if more than B bytes would be needed, e.g. 500M or 2G. "
        "Default: half of the free memory.",
    ),
    PlannerOption(
        "ties",
        "ties",
        "random|first|last",
        "Which of several equally good actions to take (learners also: least-tried). "
        "Default: random.",
    ),
    PlannerOption(
        "tie_seed",
        "tie_seed",
        "S",
        "Seed for --ties random. Default: 0; in a learner, the seed of the run.",
    ),
)
ROBUST = PlannerOption(
    "robust", "intervals", "", "exact: plan for the worst case within the model's intervals."
)
"""A flag for `intervals=robust`, which learners do not need."""

_PANEL: dict[str, Any] = {"rich_help_panel": "Planner"}
_SIGNATURE = {
    "planner": Annotated[
        str | None,
        typer.Option(
            "--planner",
            metavar="exact|counts|coupled|alp|span",
            help="Planner, with optional settings, e.g. alp,basis=pairs; module:Class for your "
            "own. Default: exact if it fits into memory (inside learners: if a plan is predicted "
            "to be fast enough), counts where parts are exchangeable and counts are clearly "
            "cheaper, else coupled if parts share at most budgets, else alp.",
            autocompletion=complete_planner,
            **_PANEL,
        ),
    ]
} | {
    option.name: Annotated[
        str | None, typer.Option(option.flag, metavar=option.metavar, help=option.help, **_PANEL)
    ]
    for option in PLANNER_OPTIONS
}
Robust = Annotated[bool, typer.Option(ROBUST.flag, help=ROBUST.help, **_PANEL)]


class PlannerRequest(NamedTuple):
    """The planner options of one command line."""

    text: str | None = None
    """The value of --planner."""
    settings: Mapping[str, object] = {}
    """The values of the other options, by the names of the planner's settings."""


NO_REQUEST = PlannerRequest()


def with_planner_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command: its `request` parameter becomes --planner and the planner options.

    The command line has the options in place of `request`; the command receives them together
    as a `PlannerRequest`.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name != "request":
            parameters.append(parameter)
            continue
        parameters += [
            inspect.Parameter(name, parameter.kind, default=None, annotation=annotation)
            for name, annotation in _SIGNATURE.items()
        ]

    @wraps(command)
    def run(**arguments: Any) -> Any:
        text = arguments.pop("planner")
        given = {option.setting: arguments.pop(option.name) for option in PLANNER_OPTIONS}
        settings = {name: value for name, value in given.items() if value is not None}
        if "memory_limit" in settings:
            settings["memory_limit"] = bytes_of(settings["memory_limit"])
        return command(**arguments, request=PlannerRequest(text, settings))

    # Typer reads both the signature and the annotations.
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def bytes_of(text: str) -> int:
    """Return the number of bytes of a text such as "500M"."""
    try:
        count: int = Bytes("memory_limit", REQUIRED, "", low=1).parse(text, "the planner")
    except InvalidParameter:
        raise InvalidParameter(
            f"--memory-limit must be a number of bytes, such as 2000000, 500M or 2G; got {text!r}"
        ) from None
    return count


def flag_of(setting: str) -> str:
    """Return the option that gives a planner setting: "--span-budget" for "budget"."""
    options = (*PLANNER_OPTIONS, ROBUST)
    return next(option.flag for option in options if option.setting == setting)


def requested_planner(request: PlannerRequest) -> tuple[type[Planner] | None, dict[str, object]]:
    """Return the planner class that the options ask for, and its settings.

    Without --planner it is the only planner of fmdp that takes all given options (`--basis pairs`
    implies alp), or None if there is more than one.
    """
    from fmdp.planning.registry import PLANNERS

    settings = request.settings
    if request.text is None:
        return (_implied_planner(settings) if settings else None), dict(settings)
    kind, given = PLANNERS.split(request.text)
    known = {parameter.name for parameter in kind.parameters}
    for name, value in settings.items():
        if name in given:
            raise InvalidParameter(
                f"the '{name}' parameter of {kind.owner()} must be given once; "
                f"got {name}={given[name]} with --planner, and {flag_of(name)} {value}"
            )
        if name not in known:
            raise UnknownName(
                f"{kind.owner()} has no parameter {name!r}; {flag_of(name)} is for "
                f"{_names(_planners_with(name))}"
            )
    return kind, {**given, **settings}


def _implied_planner(settings: Mapping[str, object]) -> type[Planner] | None:
    planners = {name: _planners_with(name) for name in settings}
    for (first, of_first), (second, of_second) in itertools.combinations(planners.items(), 2):
        if not set(of_first) & set(of_second):
            raise InvalidParameter(
                f"{flag_of(first)} is for {_names(of_first)}, {flag_of(second)} for "
                f"{_names(of_second)}; no planner takes both"
            )
    common = set.intersection(*map(set, planners.values()))
    return common.pop() if len(common) == 1 else None


def _names(kinds: Iterable[type[Planner]]) -> str:
    return "planner " + " and ".join(kind.name for kind in kinds)


def _planners_with(setting: str) -> list[type[Planner]]:
    from fmdp.planning.registry import PLANNERS

    return [kind for kind in PLANNERS.own() if any(p.name == setting for p in kind.parameters)]
