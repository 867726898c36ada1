"""Arguments and options that several commands share, declared once.

The options of the planners arrive as text: the planner's own declaration (planning/registry.py)
parses and checks them, so that ids, specs and the command line refuse a value in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from fmdp.errors import InvalidParameter

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


def _of_planner(*names: str, metavar: str, help: str) -> Any:
    return typer.Option(
        *names, metavar=metavar, help=help, show_default=False, rich_help_panel="Planner"
    )


Planner = Annotated[
    str | None,
    _of_planner(
        "--planner",
        metavar="exact|alp|span",
        help="Default: exact where it fits, else alp; learners have limits of their own.",
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
        metavar="singles|indicators|pairs|local",
        help="alp: the functions that approximate the value. Default: singles.",
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
        metavar="discounted|average",
        help="Default: average for exact, discounted for alp.",
    ),
]
Discount = Annotated[
    str | None,
    _of_planner("--discount", metavar="G", help="Of the discounted criterion. Default: 0.95."),
]
Tolerance = Annotated[
    str | None,
    _of_planner(
        "--tolerance",
        metavar="E",
        help="exact, span: largest gap between the bounds; alp: largest violation. "
        "Default: 1e-6 times the largest range of a reward factor.",
    ),
]
MaxIterations = Annotated[
    str | None,
    _of_planner("--max-iterations", metavar="N", help="Stop after N sweeps or LP rounds."),
]
MaxSeconds = Annotated[
    str | None, _of_planner("--max-seconds", metavar="S", help="Stop after S seconds.")
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
        help="Which of equally good actions to take. Default: random.",
    ),
]
TieSeed = Annotated[
    str | None,
    _of_planner("--tie-seed", metavar="S", help="Seed of the random choice. Default: 0."),
]

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def bytes_of(text: str) -> int:
    """ "500M" -> 524288000; units K, M, G, T, with or without B or iB, all powers of 1024."""
    digits = text.strip()
    unit = digits.lstrip("0123456789.").strip()
    number = digits.removesuffix(unit).strip()
    factor = _UNITS.get(unit.upper().removesuffix("B").removesuffix("I"))
    try:
        if factor is None:
            raise ValueError
        count = int(number) * factor if number.isdigit() else int(float(number) * factor)
    except ValueError:
        count = 0
    if count < 1:
        raise InvalidParameter(
            f"--memory-limit must be a number of bytes, such as 2000000, 500M or 2G; got {text!r}"
        )
    return count


_OF_THE_PLANNER = {
    "span_budget": "budget",
    "span_split": "split",
    **{
        name: name
        for name in (
            "basis", "method", "criterion", "discount", "tolerance", "max_iterations",
            "max_seconds", "memory_limit", "ties", "tie_seed",
        )
    },
}  # fmt: skip


def planner_settings(arguments: Mapping[str, object]) -> dict[str, object]:
    """Of a command's arguments (its `locals()`) those that were given for the planner, by the
    names that the planner's declaration has for them."""
    settings = {
        setting: arguments[option]
        for option, setting in _OF_THE_PLANNER.items()
        if arguments[option] is not None
    }
    if "memory_limit" in settings:
        settings["memory_limit"] = bytes_of(str(settings["memory_limit"]))
    return settings
