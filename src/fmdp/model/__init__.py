"""What a factored MDP is: spaces, structure, tables, products and files.

This layer knows nothing of planning, learning or simulation.
"""

from fmdp.model.factored import FactoredMDP, Noise
from fmdp.model.structure import Structure

__all__ = ["FactoredMDP", "Noise", "Structure"]
