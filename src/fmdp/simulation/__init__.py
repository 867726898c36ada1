"""Simulation: environments with factored sampling, the interaction loop, and regret."""

from fmdp.simulation.environment import Environment
from fmdp.simulation.evaluate import evaluate, evaluate_by_simulation
from fmdp.simulation.inspect import inspect
from fmdp.simulation.loop import Simulation, learn, simulate
from fmdp.simulation.regret import Reference, reference_for
from fmdp.simulation.run import Run
from fmdp.simulation.trajectory import Trajectory
from fmdp.simulation.whatif import WhatIf, whatif

__all__ = [
    "Environment",
    "Reference",
    "Run",
    "Simulation",
    "Trajectory",
    "WhatIf",
    "evaluate",
    "evaluate_by_simulation",
    "inspect",
    "learn",
    "reference_for",
    "simulate",
    "whatif",
]
