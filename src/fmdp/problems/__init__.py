"""The problems that come with the library: families, their ids, and the models they build."""

from fmdp.problems.family import Problem, refuse_if_too_large
from fmdp.problems.ids import parse_id, problem
from fmdp.problems.jao import JAO
from fmdp.problems.large_diameter import LargeDiameter
from fmdp.problems.machines import Machines
from fmdp.problems.maintenance import Maintenance
from fmdp.problems.random import RandomModel
from fmdp.problems.registry import PROBLEMS
from fmdp.problems.riverswim import RiverSwim
from fmdp.problems.sysadmin import BiRing, Circle, Grid, Network, Star, SysAdmin, ThreeLeg, Tree

__all__ = [
    "JAO",
    "PROBLEMS",
    "BiRing",
    "Circle",
    "Grid",
    "LargeDiameter",
    "Machines",
    "Maintenance",
    "Network",
    "Problem",
    "RandomModel",
    "RiverSwim",
    "Star",
    "SysAdmin",
    "ThreeLeg",
    "Tree",
    "parse_id",
    "problem",
    "refuse_if_too_large",
]
