"""What a factored MDP is: spaces, structure, tables, products and files.

This layer knows nothing of planning, learning or simulation.
"""

from fmdp.model.factored import FactoredMDP, Noise
from fmdp.model.files import load, save
from fmdp.model.optimistic import OptimisticTables
from fmdp.model.products import FlatMDP, flat_model, flatten, permute_states, product
from fmdp.model.structure import Structure

__all__ = [
    "FactoredMDP",
    "FlatMDP",
    "Noise",
    "OptimisticTables",
    "Structure",
    "flat_model",
    "flatten",
    "load",
    "permute_states",
    "product",
    "save",
]
