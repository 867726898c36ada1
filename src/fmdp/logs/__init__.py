"""Logs of running systems: fit a model with intervals, learn its scopes, warm up a learner."""

from fmdp.logs.fit import Fit, fit
from fmdp.logs.warming import warm

__all__ = ["Fit", "fit", "warm"]
