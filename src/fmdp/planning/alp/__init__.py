"""Approximate linear programming (Guestrin et al. 2003).

It plans for state spaces of any size, certifies an upper bound on the gain, and extracts greedy
policies by elimination.
"""

from fmdp.planning.alp.alp import ALP as ALP
from fmdp.planning.alp.bases import chains as chains
from fmdp.planning.alp.greedy import GreedyPolicy as GreedyPolicy
from fmdp.planning.alp.prepared_alp import PreparedALP as PreparedALP

__all__ = ["ALP", "GreedyPolicy", "PreparedALP", "chains"]
