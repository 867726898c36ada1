"""The registry of problem families: built-in ones, those of packages and registered ones."""

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
    "coupled-rivers": "fmdp.problems.coupled_rivers:CoupledRivers",
    "coffee": "fmdp.problems.coffee:Coffee",
    "taxi": "fmdp.problems.taxi:Taxi",
    "lock": "fmdp.problems.lock:Lock",
    "epidemic": "fmdp.problems.epidemic:Epidemic",
    "fleet": "fmdp.problems.fleet:Fleet",
    "restless": "fmdp.problems.restless:Restless",
    "random": "fmdp.problems.random:RandomModel",
}
"""Module and class of the built-in families, which are imported on first use."""

PROBLEMS: Registry[Problem] = Registry("problem", "fmdp.problems.family:Problem", HOMES)
