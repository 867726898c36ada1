"""Arguments and options that several commands share, declared once.

The options of the planners arrive as text: the planner's own declarations parse and check them, so
that ids, specs and the command line refuse a value in the same words. What the help says of their
choices and defaults is written here a second time, because `--help` must not import a planner; a
test compares the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp._base.parameters import REQUIRED, Bytes
from fmdp.errors import FmdpError, InvalidParameter, UnknownName

if TYPE_CHECKING:
    from fmdp.planning.plan import Planner as AnyPlanner

Problem = Annotated[
    str,
    typer.Argument(
        metavar="PROBLEM",
        help="A problem id, NAME:SIZE[,key=value...] (see `fmdp list`) or "
        "module:Class[:SIZE][,key=value...], or a model file.",
        show_default=False,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print exactly one JSON object to standard output.")
]


def _of_planner(*names: str, metavar: str, help: str, **others: Any) -> Any:
    return typer.Option(
        *names, metavar=metavar, help=help, show_default=False, rich_help_panel="Planner", **others
    )


def planner_names(incomplete: str) -> list[str]:
    """What the shell offers after --planner; imports no planner."""
    from fmdp.planning.registry import PLANNERS

    return [name for name in PLANNERS.names() if name.startswith(incomplete)]


Planner = Annotated[
    str | None,
    _of_planner(
        "--planner",
        metavar="exact|alp|span",
        help="Settings may follow, as in alp,basis=pairs; module:Class is a planner of your own. "
        "Default: exact where it fits, else alp; learners have limits of their own.",
        autocompletion=planner_names,
    ),
]
SpanBudget = Annotated[
    str | None,
    _of_planner(
        "--span-budget",
        metavar="Q[,Q...]",
        help="span: the sum of the budgets for the factored span, or one a state variable.",
    ),
]
SpanSplit = Annotated[
    str | None,
    _of_planner(
        "--span-split",
        metavar="uniform|search",
        help="span: how to divide one budget. Default: uniform.",
    ),
]
Basis = Annotated[
    str | None,
    _of_planner(
        "--basis",
        metavar="auto|singles|indicators|pairs|local",
        help="alp: the functions that approximate the value; auto looks for them, inside learners "
        "it is singles. Default: auto.",
    ),
]
Method = Annotated[
    str | None,
    _of_planner(
        "--method",
        metavar="cuts|factored",
        help="alp: constraint generation or the factored LP. Default: cuts.",
    ),
]
Criterion = Annotated[
    str | None,
    _of_planner(
        "--criterion",
        metavar="discounted|average|finite",
        help="finite: the sum over --horizon steps, exact alone. "
        "Default: average for exact, discounted for alp.",
    ),
]
Horizon = Annotated[
    str | None,
    _of_planner("--horizon", metavar="H", help="exact: steps of the finite criterion."),
]
Discount = Annotated[
    str | None,
    _of_planner(
        "--discount",
        metavar="G",
        help="Of the discounted criterion, and of the finite one, which has none of its own. "
        "Default: 0.95.",
    ),
]
Tolerance = Annotated[
    str | None,
    _of_planner(
        "--tolerance",
        metavar="E",
        help="exact, span: largest gap between the bounds; alp: how far the objective may be above "
        "its optimum. Default: 1e-6 times the largest range of a reward factor.",
    ),
]
Robust = Annotated[
    bool,
    typer.Option(
        "--robust",
        help="exact: plan for the worst case inside the model's intervals.",
        show_default=False,
        rich_help_panel="Planner",
    ),
]
MaxIterations = Annotated[
    str | None,
    _of_planner("--max-iterations", metavar="N", help="Stop after N sweeps or LP rounds."),
]
MaxSeconds = Annotated[
    str | None, _of_planner("--max-seconds", metavar="S", help="Stop a plan after S seconds.")
]
MemoryLimit = Annotated[
    str | None,
    _of_planner(
        "--memory-limit",
        metavar="B",
        help="Bytes, or e.g. 500M, 2G. Default: half of what is free.",
    ),
]
Ties = Annotated[
    str | None,
    _of_planner(
        "--ties",
        metavar="random|first|last",
        help="Which of equally good actions to take; learners also least-tried. Default: random.",
    ),
]
TieSeed = Annotated[
    str | None,
    _of_planner(
        "--tie-seed",
        metavar="S",
        help="Seed of the random choice. Default: 0; in a learner, each run's own.",
    ),
]


def bytes_of(text: str) -> int:
    """ "500M" -> 524288000."""
    try:
        count: int = Bytes("memory_limit", REQUIRED, "", low=1).parse(text, "the planner")
    except InvalidParameter:
        raise InvalidParameter(
            f"--memory-limit must be a number of bytes, such as 2000000, 500M or 2G; got {text!r}"
        ) from None
    return count


SETTING_OF = {
    "span_budget": "budget",
    "span_split": "split",
    "basis": "basis",
    "method": "method",
    "criterion": "criterion",
    "horizon": "horizon",
    "discount": "discount",
    "tolerance": "tolerance",
    "max_iterations": "max_iterations",
    "max_seconds": "max_seconds",
    "memory_limit": "memory_limit",
    "ties": "ties",
    "tie_seed": "tie_seed",
}
"""The setting of a planner that each option stands for."""
FLAGS = {"robust": ("intervals", "robust")}
"""Options without a value: the setting, and what it is set to."""


def planner_settings(arguments: Mapping[str, object]) -> dict[str, object]:
    """Of a command's arguments (its `locals()`) those that were given for the planner, by the
    names that the planner's declaration has for them."""
    settings = {
        setting: arguments[option]
        for option, setting in SETTING_OF.items()
        if arguments[option] is not None
    }
    for option, (setting, value) in FLAGS.items():
        if arguments.get(option):
            settings[setting] = value
    if "memory_limit" in settings:
        settings["memory_limit"] = bytes_of(str(settings["memory_limit"]))
    return settings


def asked_planner(
    text: str | None, settings: Mapping[str, object]
) -> tuple[type[AnyPlanner] | None, dict[str, object]]:
    """The planner that --planner names, or the only one of fmdp's own that takes these options
    (`--basis pairs` asks for alp); None where that is left open. And what is set for it, by the
    text of --planner and by the options together."""
    from fmdp.planning.registry import PLANNERS

    if text is None:
        return (_planner_that_takes(settings) if settings else None), dict(settings)
    kind, given = PLANNERS.split(text)
    known = {one.name for one in kind.parameters}
    for name, value in settings.items():
        if name in given:
            raise InvalidParameter(
                f"the '{name}' parameter of {kind.owner()} must be given once; "
                f"got {name}={given[name]} with --planner, and {option_of(name)} {value}"
            )
        if name not in known:
            raise UnknownName(
                f"{kind.owner()} has no parameter {name!r}; {option_of(name)} is for "
                f"{_names(_that_take(name))}"
            )
    return kind, {**given, **settings}


def option_of(setting: str) -> str:
    """ "--span-budget" of "budget"."""
    names = {**SETTING_OF, **{option: name for option, (name, _) in FLAGS.items()}}
    option = next(option for option, name in names.items() if name == setting)
    return f"--{option.replace('_', '-')}"


def _planner_that_takes(settings: Mapping[str, object]) -> type[AnyPlanner] | None:
    takers = {name: _that_take(name) for name in settings}
    for (one, ours), (other, theirs) in itertools.combinations(takers.items(), 2):
        if not set(ours) & set(theirs):
            raise InvalidParameter(
                f"{option_of(one)} is for {_names(ours)}, {option_of(other)} for {_names(theirs)}; "
                f"no planner takes both"
            )
    common = set.intersection(*map(set, takers.values()))
    return common.pop() if len(common) == 1 else None


def _names(kinds: Iterable[type[AnyPlanner]]) -> str:
    return "planner " + " and ".join(kind.name for kind in kinds)


def _that_take(setting: str) -> list[type[AnyPlanner]]:
    from fmdp.planning.registry import PLANNERS

    return [kind for kind in PLANNERS.own() if any(one.name == setting for one in kind.parameters)]


def complete_learner(incomplete: str) -> list[str]:
    """Names for the shell."""
    from fmdp.learning.registry import LEARNERS

    return [name for name in LEARNERS.names() if name.startswith(incomplete)]


def complete_setting(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """ "c=" and what it means, of the learner that the line has named so far."""
    from fmdp.learning.registry import LEARNERS

    try:
        kind, _ = LEARNERS.split(str(ctx.params.get("learner")))
    except FmdpError:
        return []
    return [
        (f"{one.name}=", one.meaning)
        for one in kind.parameters
        if f"{one.name}=".startswith(incomplete)
    ]
