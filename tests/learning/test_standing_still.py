"""No learner stands still because of a degenerate plan.

The average-reward linear program, min lambda subject to lambda + h_w >= R + P h_w, is degenerate
under optimism: as soon as the optimistic gain is the largest reward, w = 0 is optimal, every action
is greedy, and a learner that takes the last (do nothing) does so for ever. That program is solved
here as it stands, as the negative control; fmdp's planners have to go on learning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import fmdp
from fmdp import Exact, OptimisticTables, Structure
from fmdp.learning.registry import LEARNERS
from fmdp.model.spaces import all_assignments
from fmdp.planning.alp import ALP
from fmdp.planning.plan import Plan, Status, Tables
from fmdp.simulation import Reference, reference_for
from fmdp.testing import oracles

MODEL = fmdp.problem("circle:3,dynamics=guestrin")
STEPS = 400


class Naive:
    """The average-reward linear program over all states and actions, with the paper's basis."""

    name = "naive"

    def prepare(self, structure: Structure) -> Naive:
        return self

    def solve(self, tables: Tables) -> Plan:
        extended = tables.extended() if isinstance(tables, OptimisticTables) else tables
        mdp = oracles.dense(extended)
        basis = all_assignments(MODEL.structure.state_sizes).astype(float)  # h_i(s) = s_i
        # R + P B w - B w <= lambda for every action and state.
        change = (mdp.transitions @ basis - basis).reshape(-1, basis.shape[1])
        rows = np.hstack([change, -np.ones((len(change), 1))])
        cost = np.zeros(rows.shape[1])
        cost[-1] = 1.0
        found = linprog(
            cost, A_ub=rows, b_ub=-mdp.rewards.reshape(-1), bounds=(None, None), method="highs"
        )
        values = oracles.action_values(mdp, basis @ found.x[:-1])  # [A, S]
        best = values >= values.max(axis=0) - 1e-9
        last = len(values) - 1 - best[::-1].argmax(axis=0)
        actions = last // (len(values) // MODEL.structure.n_actions)  # targets are the fastest
        policy = fmdp.TablePolicy(
            MODEL.structure.state_sizes, MODEL.structure.action_sizes, actions
        )
        return Plan(
            planner=self.name,
            status=Status.CONVERGED,
            policy=policy,
            gain=None,
            gain_lower=None,
            gain_upper=float(found.x[-1]),
            span=None,
            factored_spans=None,
            objective=None,
            iterations=1,
            seconds=0.0,
            ties="last",
        )

    def warm_state(self) -> Any:
        return {}


@dataclass(frozen=True)
class Case:
    reference: Reference
    at_worst: float


@pytest.fixture(scope="module")
def case() -> Case:
    """The reference, and the gap regret of doing nothing for ever."""
    reference = reference_for(MODEL)

    class Still:
        def act(self, state: Any) -> tuple[int, ...]:
            return (3,)

        def observe(self, *step: Any) -> None: ...

    run = fmdp.simulate(MODEL, Still(), STEPS, seed=1, reference=reference)
    assert run.gap_regret is not None
    return Case(reference, run.gap_regret)


def gap_regret(case: Case, learner: str, planner: Any) -> float:
    settings = {"m": 10} if learner == "frmax" else {}
    made = LEARNERS.find(learner).make(settings, planner=planner)
    run = fmdp.simulate(MODEL, made, STEPS, seed=1, reference=case.reference)
    assert run.gap_regret is not None
    return run.gap_regret


@pytest.mark.parametrize("learner", ["dorl", "frmax"])
def test_the_naive_program_stands_still(case: Case, learner: str) -> None:
    assert gap_regret(case, learner, Naive()) == case.at_worst


@pytest.mark.parametrize("learner", ["psrl", "dorl", "frmax"])
@pytest.mark.parametrize(
    "planner",
    [
        Exact(),
        Exact(ties="last"),
        ALP(),
        ALP(ties="last"),
        ALP(method="factored"),
        ALP(criterion="average"),
        ALP(criterion="average", ties="last"),
    ],
    ids=lambda planner: f"{planner.name}-{planner.criterion}-{planner.ties}",
)
def test_no_learner_stands_still(case: Case, learner: str, planner: Any) -> None:
    assert gap_regret(case, learner, planner) < 0.4 * case.at_worst
