"""Factored MDPs: structure, tables, constraints, products and files.

This package does not import planning, learning or simulation.
"""

from fmdp.model.aggregates import All, Any, Count, Sum
from fmdp.model.alike import Alike
from fmdp.model.check import Finding
from fmdp.model.constraints import AtMost, Budget, Constraint, Forbidden
from fmdp.model.derived import Derived
from fmdp.model.effects import Effect, Effects
from fmdp.model.expansion import expand
from fmdp.model.factored import FactoredMDP
from fmdp.model.forbidding import apart, at_most, budget, constraint_from_rules, forbid
from fmdp.model.intervals import Intervals
from fmdp.model.io.files import load, save
from fmdp.model.noise import Noise
from fmdp.model.optimistic import OptimisticTables
from fmdp.model.products import FlatMDP, flat_model, flatten, permute_states, product
from fmdp.model.quantities import Quantity
from fmdp.model.structure import Structure

__all__ = [
    "Alike",
    "All",
    "Any",
    "AtMost",
    "Budget",
    "Constraint",
    "Count",
    "Derived",
    "Effect",
    "Effects",
    "FactoredMDP",
    "Finding",
    "FlatMDP",
    "Forbidden",
    "Intervals",
    "Noise",
    "OptimisticTables",
    "Quantity",
    "Structure",
    "Sum",
    "apart",
    "at_most",
    "budget",
    "constraint_from_rules",
    "expand",
    "flat_model",
    "flatten",
    "forbid",
    "load",
    "permute_states",
    "product",
    "save",
]
