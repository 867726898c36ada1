"""`fmdp list`: problems, planners and learners that can be named, with their parameters.

They come from the registries of fmdp and of installed packages. Packages that cannot be imported
are listed with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from shlex import quote
from typing import TYPE_CHECKING, Any

from fmdp.cli.options import Json
from fmdp.cli.output import columns, print_json, print_people

if TYPE_CHECKING:
    from fmdp._base.parameters import Parameter


def list_everything(json: Json = False) -> None:
    """List problems, planners and learners with their parameters."""
    from fmdp.learning.registry import LEARNERS
    from fmdp.planning.registry import PLANNERS
    from fmdp.problems import PROBLEMS
    from fmdp.problems.foreign import FORMATS

    problems, no_problems = PROBLEMS.kinds(), PROBLEMS.broken()
    learners, no_learners = LEARNERS.kinds(), LEARNERS.broken()
    planners, no_planners = PLANNERS.kinds(), PLANNERS.broken()
    if json:
        result: dict[str, Any] = {
            "problems": [described(kind) | {"example": kind.example} for kind in problems],
            "planners": [described(kind) for kind in planners],
            "learners": [described(kind) for kind in learners],
            "formats": [{"name": format.name, "forms": format.forms} for format in FORMATS],
        }
        broken = {"problems": no_problems, "planners": no_planners, "learners": no_learners}
        print_json(result | {"broken": broken})
        return
    print("problems: NAME:SIZE[,key=value...], module:Class:SIZE[,key=value...], or a model file")
    # Families that share their parameters (the topologies of SysAdmin) list them once.
    for parameters, alike in groupby(problems, lambda family: family.parameters):
        optional = [p for p in parameters if not p.required]  # the example shows the size
        print_kinds([(quote(family.example), family.summary) for family in alike], optional)
    print_broken(no_problems)
    print("\nproblems in the formats of other programs, wherever PROBLEM is expected")
    print()
    print_people(columns([(f"  {format.name}", format.forms) for format in FORMATS]))
    print("\nplanners: --planner NAME[,key=value...]; most settings are also options, as in")
    print("--max-seconds for max_seconds")
    for planner in planners:
        print_kinds([(planner.name, planner.summary)], planner.parameters)
    print_broken(no_planners)
    print("\nlearners: --learner NAME or module:Class, and --set KEY=VALUE for each parameter")
    for learner in learners:
        print_kinds([(learner.name, learner.summary)], learner.parameters)
    print_broken(no_learners)


def described(kind: Any) -> dict[str, Any]:
    return {
        "name": kind.name,
        "summary": kind.summary,
        "parameters": [described_parameter(parameter) for parameter in kind.parameters],
    }


def described_parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "kind": parameter.kind,
        "default": None if parameter.required else parameter.default,
        "required": parameter.required,
        "allowed": parameter.allowed,
        "meaning": parameter.meaning,
    }


def print_kinds(names: Sequence[tuple[str, str]], parameters: Iterable[Parameter]) -> None:
    """Print kinds that take the same parameters, and these parameters."""
    print()
    print_people(columns([("  " + name, summary) for name, summary in names]))
    rows = [(f"      {p.name}={p.default_text}", f"{p.meaning}: {p.allowed}") for p in parameters]
    print_people(columns(rows))


def print_broken(reasons: Mapping[str, str]) -> None:
    if reasons:
        print()
        rows = [(f"  {name}", f"cannot be used: {reason}") for name, reason in reasons.items()]
        print_people(columns(rows))
