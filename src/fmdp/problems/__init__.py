"""The problems that come with the library: families, their ids, and the models they build."""

from fmdp.problems.family import Family
from fmdp.problems.registry import ProblemId, families, problem, problem_id

__all__ = ["Family", "ProblemId", "families", "problem", "problem_id"]
