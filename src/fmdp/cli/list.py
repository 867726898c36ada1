"""`fmdp list`: what can be named on the command line, with every parameter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from fmdp.cli.options import Json
from fmdp.cli.output import columns, print_json, print_people

if TYPE_CHECKING:
    from fmdp.parameters import Parameter


def list_everything(json: Json = False) -> None:
    """Problems, planners and learners, with their parameters."""
    from fmdp.learning.registry import learners
    from fmdp.planning.registry import planners
    from fmdp.problems import PROBLEMS

    if json:
        print_json(
            {
                "problems": [
                    {
                        "name": family.name,
                        "summary": family.summary,
                        "example": family.example,
                        "parameters": [described(p) for p in family.parameters],
                    }
                    for family in PROBLEMS.kinds()
                ],
                "planners": [
                    {
                        "name": planner.name,
                        "summary": planner.summary,
                        "parameters": [described(p) for p in planner.parameters],
                    }
                    for planner in planners()
                ],
                "learners": [
                    {
                        "name": learner.name,
                        "summary": learner.summary,
                        "parameters": [described(p) for p in learner.parameters],
                    }
                    for learner in learners()
                ],
            }
        )
        return
    print("problems: NAME:SIZE[,key=value...], or a model file")
    # Families that share their parameters (the topologies of SysAdmin) list them once.
    for parameters, alike in groupby(PROBLEMS.kinds(), lambda family: family.parameters):
        optional = [p for p in parameters if not p.required]  # the size is in the example
        print_kinds([(family.example, family.summary) for family in alike], optional)
    print("\nplanners: --planner NAME, and an option for each setting (max_seconds: --max-seconds)")
    for planner in planners():
        print_kinds([(planner.name, planner.summary)], planner.parameters)
    print("\nlearners: --learner NAME, and --set KEY=VALUE for each parameter")
    for learner in learners():
        print_kinds([(learner.name, learner.summary)], learner.parameters)


def described(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "kind": parameter.kind,
        "default": None if parameter.required else parameter.default,
        "required": parameter.required,
        "allowed": parameter.allowed,
        "meaning": parameter.meaning,
    }


def print_kinds(names: Sequence[tuple[str, str]], parameters: Iterable[Parameter]) -> None:
    """A few things that take the same parameters, and the parameters."""
    print()
    print_people(columns([("  " + name, summary) for name, summary in names]))
    rows = [(f"      {p.name}={p.default_text}", f"{p.meaning}: {p.allowed}") for p in parameters]
    print_people(columns(rows))
