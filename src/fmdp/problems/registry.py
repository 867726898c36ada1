"""The families of problems by name: fmdp's own, those of packages, and those given a name by
`fmdp.register`. fmdp's own are imported when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmdp._base.registries import Registry

if TYPE_CHECKING:
    from fmdp.problems.family import Problem

HOMES = {
    "circle": "fmdp.problems.sysadmin:Circle",
    "three-leg": "fmdp.problems.sysadmin:ThreeLeg",
    "star": "fmdp.problems.sysadmin:Star",
    "bi-ring": "fmdp.problems.sysadmin:BiRing",
    "grid": "fmdp.problems.sysadmin:Grid",
    "tree": "fmdp.problems.sysadmin:Tree",
    "network": "fmdp.problems.sysadmin:Network",
    "maintenance": "fmdp.problems.maintenance:Maintenance",
    "machines": "fmdp.problems.machines:Machines",
    "jao": "fmdp.problems.jao:JAO",
    "large-diameter": "fmdp.problems.large_diameter:LargeDiameter",
    "riverswim": "fmdp.problems.riverswim:RiverSwim",
    "random": "fmdp.problems.random:RandomModel",
}

PROBLEMS: Registry[Problem] = Registry("problem", "fmdp.problems.family:Problem", HOMES)
