"""What a log of a running system says: a model with intervals, its scopes, a learner's start."""

from fmdp.logs.fit import Fit, fit
from fmdp.logs.warming import warm

__all__ = ["Fit", "fit", "warm"]
