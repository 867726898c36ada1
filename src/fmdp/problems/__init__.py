"""The problem families of the library, their ids, and the models they build.

A family is imported on first use, by its name in an id or by its class name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fmdp.problems.family import Problem, refuse_if_too_large
from fmdp.problems.ids import parse_id, problem
from fmdp.problems.registry import HOMES, PROBLEMS

__all__ = [
    "JAO",
    "PROBLEMS",
    "BiRing",
    "Circle",
    "Coffee",
    "CoupledRivers",
    "Epidemic",
    "Fleet",
    "Grid",
    "LargeDiameter",
    "Lock",
    "Machines",
    "Maintenance",
    "Network",
    "Problem",
    "RandomModel",
    "Restless",
    "RiverSwim",
    "Star",
    "SysAdmin",
    "Taxi",
    "ThreeLeg",
    "Tree",
    "parse_id",
    "problem",
    "refuse_if_too_large",
]

if TYPE_CHECKING:
    from fmdp.problems.coffee import Coffee
    from fmdp.problems.coupled_rivers import CoupledRivers
    from fmdp.problems.epidemic import Epidemic
    from fmdp.problems.fleet import Fleet
    from fmdp.problems.jao import JAO
    from fmdp.problems.large_diameter import LargeDiameter
    from fmdp.problems.lock import Lock
    from fmdp.problems.machines import Machines
    from fmdp.problems.maintenance import Maintenance
    from fmdp.problems.random import RandomModel
    from fmdp.problems.restless import Restless
    from fmdp.problems.riverswim import RiverSwim
    from fmdp.problems.sysadmin import BiRing, Circle, Grid, Network, Star, SysAdmin, ThreeLeg, Tree
    from fmdp.problems.taxi import Taxi

_CLASSES = [path.split(":") for path in (*HOMES.values(), "fmdp.problems.sysadmin:SysAdmin")]
_HOME = {name: module for module, name in _CLASSES}


def __getattr__(name: str) -> Any:
    if f"{__name__}.{name}" in _HOME.values():  # the module itself, as after an import
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'fmdp.problems' has no attribute {name!r}")
    globals()[name] = family = getattr(import_module(_HOME[name]), name)
    return family


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
