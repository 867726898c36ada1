"""fmdp: planning and online learning in factored Markov decision processes.

The public names. Each is loaded from its home on first use (PEP 562), so that `import fmdp` and
`fmdp --help` do not pay for NumPy, Numba and the solvers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any as _Anything

__version__ = "0.2.0"

_HOME = {
    "ALP": "fmdp.planning.alp",
    "Agent": "fmdp.learning.agent",
    "Alike": "fmdp.model",
    "All": "fmdp.model",
    "Any": "fmdp.model",
    "AtMost": "fmdp.model",
    "Budget": "fmdp.model",
    "CPSRL": "fmdp.learning.cpsrl",
    "Count": "fmdp.model",
    "Counts": "fmdp.planning.counts.planner",
    "Coupled": "fmdp.planning.coupled",
    "DBNUCRL": "fmdp.learning.dbn_ucrl",
    "DORL": "fmdp.learning.dorl",
    "Decision": "fmdp.learning.agent",
    "Default": "fmdp.learning.default",
    "Derived": "fmdp.model",
    "DirichletPrior": "fmdp.experiments.priors",
    "E3": "fmdp.learning.e3",
    "Effect": "fmdp.model",
    "Effects": "fmdp.model",
    "Environment": "fmdp.simulation",
    "Exact": "fmdp.planning.exact.planner",
    "Explanation": "fmdp.planning.explain.explanation",
    "ExploringPolicy": "fmdp.planning.policies.randomised",
    "FEULER": "fmdp.learning.f_euler",
    "FRmax": "fmdp.learning.frmax",
    "FSRL": "fmdp.learning.fsrl",
    "FUCBVI": "fmdp.learning.f_ucbvi",
    "FactoredMDP": "fmdp.model",
    "FamilyPrior": "fmdp.experiments.priors",
    "Finding": "fmdp.model",
    "Fit": "fmdp.logs",
    "Flat": "fmdp.learning.flat",
    "FmdpError": "fmdp.errors",
    "Forbidden": "fmdp.model",
    "Front": "fmdp.planning.constrained.front",
    "IMEDRL": "fmdp.learning.imed_rl",
    "Intervals": "fmdp.model",
    "KLUCRL": "fmdp.learning.kl_ucrl",
    "KLUCRLFactored": "fmdp.learning.kl_ucrl",
    "LSERmax": "fmdp.learning.unknown.rmax",
    "Learner": "fmdp.learning.learner",
    "MixedPolicy": "fmdp.planning.policies.mixed",
    "Noise": "fmdp.model",
    "OPSRL": "fmdp.learning.opsrl",
    "OptimisticLearner": "fmdp.learning.learner",
    "OptimisticTables": "fmdp.model",
    "Oracle": "fmdp.learning.oracle",
    "PMEVI": "fmdp.learning.pmevi",
    "PSRL": "fmdp.learning.psrl",
    "Plan": "fmdp.planning.plan",
    "Planner": "fmdp.planning.plan",
    "PlanningLearner": "fmdp.learning.learner",
    "Policy": "fmdp.planning.policies.policy",
    "Prepared": "fmdp.planning.plan",
    "Prior": "fmdp.experiments.priors",
    "Problem": "fmdp.problems",
    "Quantity": "fmdp.model",
    "REGAL": "fmdp.learning.regal",
    "REQUIRED": "fmdp._base.parameters",
    "Random": "fmdp.learning.random",
    "Results": "fmdp.experiments.results",
    "Rollout": "fmdp.planning.alp.rollout",
    "Run": "fmdp.simulation",
    "SCAL": "fmdp.learning.scal",
    "SLFRmax": "fmdp.learning.unknown.rmax",
    "SLFUCRL": "fmdp.learning.unknown.slf_ucrl",
    "Service": "fmdp.service",
    "SpanConstrained": "fmdp.planning.span",
    "Statistics": "fmdp.learning.statistics",
    "Status": "fmdp.planning.status",
    "Structure": "fmdp.model",
    "Sum": "fmdp.model",
    "Summary": "fmdp.planning.occupancy.records",
    "TSDE": "fmdp.learning.tsde",
    "TablePolicy": "fmdp.planning.policies.policy",
    "TimedPolicy": "fmdp.planning.policies.timed",
    "Trajectory": "fmdp.simulation",
    "UCRL2": "fmdp.learning.ucrl2",
    "UCRL3": "fmdp.learning.ucrl3",
    "UCRLFactored": "fmdp.learning.ucrl_factored",
    "WhatIf": "fmdp.simulation",
    "apart": "fmdp.model",
    "at_most": "fmdp.model",
    "budget": "fmdp.model",
    "chains": "fmdp.planning.alp",
    "compare": "fmdp.experiments.comparison",
    "confidence_tables": "fmdp.learning.confidence",
    "edge_probabilities": "fmdp.learning.unknown.learner",
    "estimated_model": "fmdp.learning.estimate",
    "evaluate": "fmdp.simulation",
    "expand": "fmdp.model",
    "fit": "fmdp.logs",
    "flatten": "fmdp.model",
    "forbid": "fmdp.model",
    "from_simulator": "fmdp.interop.simulator",
    "inspect": "fmdp.simulation",
    "learn": "fmdp.simulation",
    "load": "fmdp.model",
    "load_agent": "fmdp.learning.files",
    "load_policy": "fmdp.planning.policies.files",
    "load_results": "fmdp.experiments.results",
    "named": "fmdp.planning.policies.rule",
    "pareto": "fmdp.planning.constrained.front",
    "plan": "fmdp.planning.choice",
    "problem": "fmdp.problems",
    "reference_for": "fmdp.simulation",
    "register": "fmdp._base.registries",
    "sample_model": "fmdp.learning.posterior",
    "save": "fmdp.model",
    "setting": "fmdp._base.settings",
    "simulate": "fmdp.simulation",
    "sweep": "fmdp.experiments.api",
    "warm": "fmdp.logs",
    "whatif": "fmdp.simulation",
    "with_reward_factors": "fmdp.learning.bonuses",
    "write_report": "fmdp.reports.report",
}

# Whole rooms: fmdp.problems.Circle without an import of its own.
_ROOMS = ("measures", "problems", "testing")

__all__ = sorted([*_HOME, "__version__"])

if TYPE_CHECKING:  # the same names for type checkers and editors; a test compares the two
    from fmdp._base.parameters import REQUIRED as REQUIRED
    from fmdp._base.registries import register as register
    from fmdp._base.settings import setting as setting
    from fmdp.errors import FmdpError as FmdpError
    from fmdp.experiments.api import sweep as sweep
    from fmdp.experiments.comparison import compare as compare
    from fmdp.experiments.priors import DirichletPrior as DirichletPrior
    from fmdp.experiments.priors import FamilyPrior as FamilyPrior
    from fmdp.experiments.priors import Prior as Prior
    from fmdp.experiments.results import Results as Results
    from fmdp.experiments.results import load_results as load_results
    from fmdp.interop.simulator import from_simulator as from_simulator
    from fmdp.learning.agent import Agent as Agent
    from fmdp.learning.agent import Decision as Decision
    from fmdp.learning.bonuses import with_reward_factors as with_reward_factors
    from fmdp.learning.confidence import confidence_tables as confidence_tables
    from fmdp.learning.cpsrl import CPSRL as CPSRL
    from fmdp.learning.dbn_ucrl import DBNUCRL as DBNUCRL
    from fmdp.learning.default import Default as Default
    from fmdp.learning.dorl import DORL as DORL
    from fmdp.learning.e3 import E3 as E3
    from fmdp.learning.estimate import estimated_model as estimated_model
    from fmdp.learning.f_euler import FEULER as FEULER
    from fmdp.learning.f_ucbvi import FUCBVI as FUCBVI
    from fmdp.learning.files import load_agent as load_agent
    from fmdp.learning.flat import Flat as Flat
    from fmdp.learning.frmax import FRmax as FRmax
    from fmdp.learning.fsrl import FSRL as FSRL
    from fmdp.learning.imed_rl import IMEDRL as IMEDRL
    from fmdp.learning.kl_ucrl import KLUCRL as KLUCRL
    from fmdp.learning.kl_ucrl import KLUCRLFactored as KLUCRLFactored
    from fmdp.learning.learner import Learner as Learner
    from fmdp.learning.learner import OptimisticLearner as OptimisticLearner
    from fmdp.learning.learner import PlanningLearner as PlanningLearner
    from fmdp.learning.opsrl import OPSRL as OPSRL
    from fmdp.learning.oracle import Oracle as Oracle
    from fmdp.learning.pmevi import PMEVI as PMEVI
    from fmdp.learning.posterior import sample_model as sample_model
    from fmdp.learning.psrl import PSRL as PSRL
    from fmdp.learning.random import Random as Random
    from fmdp.learning.regal import REGAL as REGAL
    from fmdp.learning.scal import SCAL as SCAL
    from fmdp.learning.statistics import Statistics as Statistics
    from fmdp.learning.tsde import TSDE as TSDE
    from fmdp.learning.ucrl2 import UCRL2 as UCRL2
    from fmdp.learning.ucrl3 import UCRL3 as UCRL3
    from fmdp.learning.ucrl_factored import UCRLFactored as UCRLFactored
    from fmdp.learning.unknown.learner import edge_probabilities as edge_probabilities
    from fmdp.learning.unknown.rmax import LSERmax as LSERmax
    from fmdp.learning.unknown.rmax import SLFRmax as SLFRmax
    from fmdp.learning.unknown.slf_ucrl import SLFUCRL as SLFUCRL
    from fmdp.logs import Fit as Fit
    from fmdp.logs import fit as fit
    from fmdp.logs import warm as warm
    from fmdp.model import Alike as Alike
    from fmdp.model import All as All
    from fmdp.model import Any as Any
    from fmdp.model import AtMost as AtMost
    from fmdp.model import Budget as Budget
    from fmdp.model import Count as Count
    from fmdp.model import Derived as Derived
    from fmdp.model import Effect as Effect
    from fmdp.model import Effects as Effects
    from fmdp.model import FactoredMDP as FactoredMDP
    from fmdp.model import Finding as Finding
    from fmdp.model import Forbidden as Forbidden
    from fmdp.model import Intervals as Intervals
    from fmdp.model import Noise as Noise
    from fmdp.model import OptimisticTables as OptimisticTables
    from fmdp.model import Quantity as Quantity
    from fmdp.model import Structure as Structure
    from fmdp.model import Sum as Sum
    from fmdp.model import apart as apart
    from fmdp.model import at_most as at_most
    from fmdp.model import budget as budget
    from fmdp.model import expand as expand
    from fmdp.model import flatten as flatten
    from fmdp.model import forbid as forbid
    from fmdp.model import load as load
    from fmdp.model import save as save
    from fmdp.planning.alp import ALP as ALP
    from fmdp.planning.alp import chains as chains
    from fmdp.planning.alp.rollout import Rollout as Rollout
    from fmdp.planning.choice import plan as plan
    from fmdp.planning.constrained.front import Front as Front
    from fmdp.planning.constrained.front import pareto as pareto
    from fmdp.planning.counts.planner import Counts as Counts
    from fmdp.planning.coupled import Coupled as Coupled
    from fmdp.planning.exact.planner import Exact as Exact
    from fmdp.planning.explain.explanation import Explanation as Explanation
    from fmdp.planning.occupancy.records import Summary as Summary
    from fmdp.planning.plan import Plan as Plan
    from fmdp.planning.plan import Planner as Planner
    from fmdp.planning.plan import Prepared as Prepared
    from fmdp.planning.policies.files import load_policy as load_policy
    from fmdp.planning.policies.mixed import MixedPolicy as MixedPolicy
    from fmdp.planning.policies.policy import Policy as Policy
    from fmdp.planning.policies.policy import TablePolicy as TablePolicy
    from fmdp.planning.policies.randomised import ExploringPolicy as ExploringPolicy
    from fmdp.planning.policies.rule import named as named
    from fmdp.planning.policies.timed import TimedPolicy as TimedPolicy
    from fmdp.planning.span import SpanConstrained as SpanConstrained
    from fmdp.planning.status import Status as Status
    from fmdp.problems import Problem as Problem
    from fmdp.problems import problem as problem
    from fmdp.reports.report import write_report as write_report
    from fmdp.service import Service as Service
    from fmdp.simulation import Environment as Environment
    from fmdp.simulation import Run as Run
    from fmdp.simulation import Trajectory as Trajectory
    from fmdp.simulation import WhatIf as WhatIf
    from fmdp.simulation import evaluate as evaluate
    from fmdp.simulation import inspect as inspect
    from fmdp.simulation import learn as learn
    from fmdp.simulation import reference_for as reference_for
    from fmdp.simulation import simulate as simulate
    from fmdp.simulation import whatif as whatif


def __getattr__(name: str) -> _Anything:
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f"fmdp.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'fmdp' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_ROOMS})
