"""Approximate linear programming (Guestrin et al. 2003): state spaces of any size, certified
upper bounds on the gain, greedy policies by elimination."""

from fmdp.planning.alp.alp import ALP as ALP
from fmdp.planning.alp.alp import PreparedALP as PreparedALP
from fmdp.planning.alp.bases import chains as chains
from fmdp.planning.alp.greedy import GreedyPolicy as GreedyPolicy

__all__ = ["ALP", "GreedyPolicy", "PreparedALP", "chains"]
