"""The degeneracy of the average-reward form under optimism, and its cure.

When the optimistic gain is the largest reward, w = 0 attains it: the first stage alone leaves the
policy to chance, and a learner that acts on it stands still for ever.
"""

from __future__ import annotations

import numpy as np
import pytest
from oracle import average_lp, basis_matrix, residuals

import fmdp
from fmdp.model import OptimisticTables
from fmdp.planning.alp import ALP, cuts
from fmdp.planning.plan import Status


def half_known(name: str) -> OptimisticTables:
    """The model with a tenth of every row's mass free, all working machines able to stay so."""
    model = fmdp.problem(name)
    lower = tuple(0.9 * table for table in model.transitions)
    free = tuple(1.0 - table.sum(axis=1) for table in lower)
    return OptimisticTables(model.structure, lower, free, model.rewards)


def unknown_when_working() -> OptimisticTables:
    """Circle of 4: rows of a working machine are all free, the others known."""
    model = fmdp.problem("circle:4,dynamics=guestrin")
    lower, free = [], []
    for i, table in enumerate(model.transitions):
        scope = model.structure.transition_scopes[i]
        shape = [model.structure.sizes[v] for v in scope]
        works = np.indices(shape)[scope.index(i)].ravel() == 1
        lower.append(np.where(works[:, None], 0.0, table))
        free.append(works * 1.0)
    return OptimisticTables(model.structure, tuple(lower), tuple(free), model.rewards)


@pytest.mark.parametrize("method", ["cuts", "factored"])
def test_the_first_stage_is_degenerate_and_the_second_is_not(method: str) -> None:
    tables = unknown_when_working()
    structure = tables.structure
    phi = basis_matrix(structure, "singles")
    extended = tables.extended()
    # w = 0 attains the bound: the first stage would be content with it.
    assert average_lp(extended, phi) == pytest.approx(4.0, abs=1e-9)
    assert residuals(extended, np.zeros(16)).max() == pytest.approx(4.0, abs=1e-9)
    plan = ALP(criterion="average", method=method).prepare(structure).solve(tables)
    assert plan.objective == pytest.approx(4.0, abs=1e-6)
    assert plan.gain_upper == pytest.approx(4.0, abs=1e-4)
    assert (plan.stats["weights"] > 0.5).all()
    # A machine that is down is restarted: known to work at once, where nothing else is known to.
    for i in range(4):
        state = [1, 1, 1, 1]
        state[i] = 0
        assert plan.policy(state) == (i,)


@pytest.mark.parametrize("learner", ["DORL", "FRmax"])
def test_optimistic_learners_do_not_stand_still(learner: str) -> None:
    """Doing nothing useful costs about one a step on this circle: 4,575 of 5,000 (design)."""
    model = fmdp.problem("circle:4")
    settings = {"m": 20} if learner == "FRmax" else {}
    made = getattr(fmdp, learner)
    run = fmdp.simulate(
        model,
        made(planner=ALP(criterion="average"), **settings),
        steps=5000,
        seed=1,
    )
    assert run.gap_regret < 600
    late = [regret for t, regret in run.curve if t >= 2500]
    assert late[-1] - late[0] < 250  # it has learned: the second half costs little


def test_targets_depend_on_the_sign_of_the_weights() -> None:
    """A reward for being down: the free mass goes down as well."""
    base = half_known("circle:3,dynamics=guestrin")
    flipped = OptimisticTables(
        base.structure, base.lower, base.free, tuple(table[::-1].copy() for table in base.rewards)
    )
    phi = basis_matrix(base.structure, "indicators")
    plan = ALP(basis="indicators", criterion="average").prepare(base.structure).solve(flipped)
    assert plan.objective == pytest.approx(average_lp(flipped.extended(), phi), abs=1e-6)
    assert (plan.stats["weights"][0::2] > plan.stats["weights"][1::2]).all()


def test_a_flat_program_ends_because_cuts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few counts: nearly every weight is as good as any, and each round finds two cuts an action.
    A bundle of four cuts a weight forgets them faster than it learns."""
    structure = fmdp.problem("circle:30").structure
    seen = []

    class Looking(fmdp.DORL):
        def tables(self, agent: fmdp.Agent) -> OptimisticTables:
            seen.append(super().tables(agent))
            return seen[-1]

    hurried = Looking(planner=ALP(max_iterations=2))
    fmdp.simulate(fmdp.problem("circle:30"), hurried, steps=40, seed=0)
    # A plan that nobody looks at does not go on for ever, and is a feasible point all the same.
    few = ALP(tolerance=0.03).prepare(structure).solve(seen[-1])
    assert (few.status, few.iterations) == (Status.ITERATION_LIMIT, 20)
    planner = ALP(tolerance=0.03, max_iterations=300)
    found = planner.prepare(structure).solve(seen[-1])
    assert found.status is Status.CONVERGED
    assert found.objective - 0.03 <= few.objective <= 30.0 / (1.0 - planner.discount)
    monkeypatch.setattr(cuts, "_CUT_GROWTH", 0.0)
    assert planner.prepare(structure).solve(seen[-1]).iterations > 2 * found.iterations
