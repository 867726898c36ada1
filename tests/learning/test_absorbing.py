"""Models with absorbing values: their theorem, E3 that decides by them, and heaven."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import FactoredMDP, Flat
from fmdp.errors import FmdpError, InvalidParameter
from fmdp.learning.absorbing import (
    KnownRows,
    estimated_parts,
    known_entries,
    model_with_absorbing_values,
    original_states,
    structure_with_absorbing_values,
)
from fmdp.learning.agent import Agent
from fmdp.learning.discounted import for_learning_discounted, sweeps_enough
from fmdp.learning.e3 import least_tried, models_of
from fmdp.model import flat_model
from fmdp.model.entries import entries_of
from fmdp.model.spaces import all_assignments
from fmdp.testing import check_learner, strategies


def values(model: FactoredMDP, discount: float) -> Any:
    """V* of every state, in C order."""
    planner = fmdp.Exact(criterion="discounted", discount=discount, tolerance=1e-9)
    found = planner.prepare(model.structure).solve(model, describe=True)
    assert found.bias is not None
    return found.bias


def random_knowledge(model: FactoredMDP, share: float, seed: int) -> KnownRows:
    rng = np.random.Generator(np.random.PCG64(seed))
    return KnownRows(
        [rng.random(len(table)) < share for table in model.transitions],
        [rng.random(len(table)) < share for table in model.rewards],
    )


# ---- the models ---------------------------------------------------------------------------------


def two_states() -> FactoredMDP:
    """Moves surely from the first state to the second, for .2; the second has no visits."""
    return FactoredMDP.from_factors(
        (2,), (1,), [([0], [[0.0, 1.0], [0.5, 0.5]])], [([0], [0.2, 0.7])]
    )


def test_the_models_by_hand() -> None:
    model = two_states()
    known = KnownRows([np.array([True, False])], [np.array([True, False])])
    parts = models_of(model.structure, model.transitions, model.rewards, known)
    here = original_states(model.structure)
    assert here.tolist() == [0, 1]
    # .2 and then nothing; .2 + (1 + 1/2 + 1/4 + ...) / 2; (1 + 1/2 + ...) / 2.
    assert values(parts.known, 0.5)[here] == pytest.approx([0.2, 0.0])
    assert values(parts.heaven, 0.5)[here] == pytest.approx([1.2, 2.0])
    assert values(parts.explore, 0.5)[here] == pytest.approx([1.0, 2.0])
    assert parts.heaven.transitions[0].tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]


def test_elsewhere_spreads_along_the_scopes_and_no_further() -> None:
    """b follows a, c is alone: unknown rows of a reach b one step later, and never c."""
    copy = [[1.0, 0.0], [0.0, 1.0]]
    model = FactoredMDP.from_factors(
        (2, 2, 2),
        (1,),
        [([0], copy), ([0], copy), ([2], copy)],
        [([0], [0.0, 0.0]), ([1], [0.0, 0.0]), ([2], [0.0, 0.0])],
    )
    unknown = [np.zeros(2, dtype=bool), np.ones(2, dtype=bool), np.ones(2, dtype=bool)]
    known = KnownRows(unknown, [np.ones(2, dtype=bool)] * 3)
    heaven = models_of(model.structure, model.transitions, model.rewards, known).heaven
    # a pays 1 from the next step on, b from the one after: .5 / .5 + .25 / .5.
    assert values(heaven, 0.5)[original_states(model.structure)] == pytest.approx([1.5] * 8)


@settings(max_examples=40, deadline=None)
@given(
    model=strategies.models(),
    share=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    seed=st.integers(0, 2**32 - 1),
    discount=st.sampled_from([0.5, 0.9]),
)
def test_the_truth_is_between_the_known_model_and_heaven(
    model: FactoredMDP, share: float, seed: int, discount: float
) -> None:
    """And exploring is worth the difference at least."""
    s = model.structure
    known = random_knowledge(model, share, seed)
    models = models_of(s, model.transitions, model.rewards, known)
    here, truth = original_states(s), values(model, discount)
    least, most, hidden = (values(one, discount)[here] for one in models)
    slack = 1e-6 * max(1.0, s.reward_size) / (1 - discount)
    assert (truth <= most + slack).all()
    assert s.constraints or (least <= truth + slack).all()
    nothing = sum(lo for lo, _ in s.reward_ranges) / (1 - discount)
    assert (hidden - nothing >= most - least - slack).all()
    if share == 1.0:
        assert np.allclose(least, most, atol=slack)
        assert np.allclose(least, truth, atol=slack)
    for one in models:  # distributions, rewards in their ranges
        FactoredMDP(one.structure, one.transitions, one.rewards)


def test_the_theorem_has_a_control() -> None:
    """With the middle of its range as pay the model is no bound on either side."""
    model = fmdp.problem("circle:3")
    known = random_knowledge(model, 0.5, 1)
    middle = [0.5 * (lo + hi) for lo, hi in model.structure.reward_ranges]
    made = model_with_absorbing_values(
        model.structure, model.transitions, model.rewards, known, middle
    )
    found = values(made, 0.9)[original_states(model.structure)]
    assert (found < values(model, 0.9) - 0.1).any()


def test_constraints_keep_an_action_everywhere() -> None:
    s = fmdp.problem("circle:3").structure
    table = np.zeros((2, 4), dtype=bool)
    table[0, 1] = table[1, 1] = table[1, 2] = True
    bound = replace(s, constraints=(fmdp.Forbidden((0, s.m), table.reshape(-1), "rule"),))
    mask = structure_with_absorbing_values(bound).allowed_mask().reshape(3, -1, 4)
    assert mask[0, 0].tolist() == [True, False, True, True]
    assert mask[1, 0].tolist() == [True, False, False, True]
    assert mask[2, 0].tolist() == [True, False, True, True]  # elsewhere: what all values forbid


# ---- plans under a discount ---------------------------------------------------------------------


def test_sweeps_enough_by_hand() -> None:
    assert sweeps_enough(0.0) == 1
    # 3 * .5^13 / .5 = .00073, and .5^12 is too much.
    assert sweeps_enough(0.5) == 13
    assert (
        3 * 0.99 ** sweeps_enough(0.99) / 0.01
        <= 1e-3
        < 3 * 0.99 ** (sweeps_enough(0.99) - 1) / 0.01
    )


def test_no_discount_makes_a_plan_that_never_ends() -> None:
    s = fmdp.problem("circle:2").structure
    near = fmdp.Exact(criterion="discounted", discount=1 - 2.0**-50)
    limited = for_learning_discounted(near, s)
    assert isinstance(limited, fmdp.Exact)
    assert limited.max_iterations == 20_000
    own = for_learning_discounted(replace(near, max_iterations=7, tolerance=0.5), s)
    assert isinstance(own, fmdp.Exact)
    assert (own.max_iterations, own.tolerance) == (7, 0.5)


@settings(max_examples=20, deadline=None)
@given(model=strategies.models(), discount=st.sampled_from([0.0, 0.5, 0.9, 0.99]))
def test_no_discounted_plan_meets_the_limit_of_sweeps(model: FactoredMDP, discount: float) -> None:
    s = model.structure
    planner = for_learning_discounted(fmdp.Exact(criterion="discounted", discount=discount), s)
    prepared = planner.prepare(s)
    other = [
        lo + hi - table for table, (lo, hi) in zip(model.rewards, s.reward_ranges, strict=True)
    ]
    for rewards in (model.rewards, other, model.rewards):  # warm from the contrary
        found = prepared.solve(FactoredMDP.trusted(s, model.transitions, rewards))
        assert found.status is fmdp.Status.CONVERGED


# ---- E3 -----------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(model=strategies.models(), seed=st.integers(0, 2**32 - 1))
def test_the_least_tried_action_is_that_of_a_plain_search(model: FactoredMDP, seed: int) -> None:
    s, entries = model.structure, entries_of(model.structure)
    rng = np.random.Generator(np.random.PCG64(seed))
    visits = rng.integers(0, 5, entries.n_entries)
    sure = visits >= 3
    actions, wandering = least_tried(s, visits, sure)
    joint_actions = all_assignments(s.action_sizes).tolist()
    scopes = [*s.transition_scopes, *s.reward_scopes]
    for number, state in enumerate(all_assignments(s.state_sizes).tolist()):
        tried: dict[int, int] = {}
        for a, action in enumerate(joint_actions):
            x = [*state, *action]
            if any(one.forbids(x, s.sizes) for one in s.constraints):
                continue
            for factor, scope in enumerate(scopes):
                row = entries.first_row[factor]
                if scope:
                    own = [x[v] for v in scope]
                    row += np.ravel_multi_index(own, [s.sizes[v] for v in scope])
                entry = entries.entry_of_row[row] if len(entries.entry_of_row) else row
                if not sure[entry]:
                    tried[a] = min(tried.get(a, 99), int(visits[entry]))
        assert bool(wandering[number]) == bool(tried)
        if tried:
            assert actions[number] == min(tried, key=lambda a: (tried[a], a))


def test_wandering_is_balanced() -> None:
    """One state, three actions: none is ever tried twice more than another until all are known."""
    rows = np.ones((3, 1))
    model = FactoredMDP.from_factors((1,), (3,), [([1], rows)], [([1], [0.1, 0.9, 0.5])])
    run = fmdp.simulate(model, fmdp.E3(m=7), 40, seed=0, record=True)
    assert run.trajectory is not None
    taken = run.trajectory.actions[:, 0]
    for t in range(1, 21):
        counts = np.bincount(taken[:t], minlength=3)
        assert counts.max() - counts.min() <= 1
    assert (taken[21:] == 1).all()  # and then the best


def test_what_is_constant_is_known() -> None:
    model = FactoredMDP.from_factors(
        (2,), (2,), [([0, 1], np.full((4, 2), 0.5))], [([0], [3.0, 3.0])], reward_ranges=[(3, 3)]
    )
    agent = fmdp.E3(m=1).start(model)
    sure = known_entries(agent.statistics, 1)
    assert sure.tolist() == [False] * 4 + [True] * 2


@pytest.mark.parametrize("eps", [0.0, 0.05, 0.3])
def test_it_exploits_where_the_known_model_is_within_eps_of_heaven(eps: float) -> None:
    """Against values that are computed by other plans, from nothing."""
    model = fmdp.problem("circle:3")
    learner = fmdp.E3(m=8, eps=eps, discount=0.9)
    run = fmdp.simulate(model, learner, 700, seed=1)
    agent = run.agent
    assert isinstance(agent, Agent)
    assert agent.planner_calls
    learner._plan(agent, int(known_entries(agent.statistics, 8).sum()))
    parts = estimated_parts(agent.statistics, known_entries(agent.statistics, 8))
    models, here = models_of(*parts), original_states(model.structure)
    gap = (values(models.heaven, 0.9) - values(models.known, 0.9))[here] * (1 - 0.9)
    gap /= model.structure.reward_range_total
    for state, near in enumerate(agent.memory["near"].tolist()):
        if abs(gap[state] - eps) > 3e-3:  # what the plans inside learners leave open
            assert bool(near) == (gap[state] <= eps)
    assert eps or agent.memory["near"].any() == (gap < 1e-3).any()


def test_a_plan_that_was_cut_off_explores() -> None:
    model = fmdp.problem("circle:3")
    learner = fmdp.E3(m=3, planner=fmdp.Exact(max_iterations=2))
    agent = fmdp.simulate(model, learner, 300, seed=0).agent
    assert isinstance(agent, Agent)
    assert agent.unconverged_plans
    assert not agent.memory["near"].any()


def test_e3_says_what_it_cannot_do() -> None:
    for planner, said in (
        ("alp", "got planner alp, must be exact"),
        ("span,budget=1", "got planner span, must be one that has criterion=discounted"),
        ("exact,criterion=finite,horizon=3", "got planner exact,criterion=finite"),
        ("exact,criterion=discounted,discount=0.5", "must be given once; got 0.95 for the learner"),
    ):
        with pytest.raises(InvalidParameter, match=said):
            fmdp.E3(planner=planner)
    with pytest.raises(InvalidParameter, match="177147 states with one value more") as refused:
        fmdp.E3().start(fmdp.problem("circle:11"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("state", 8),
        ("state", True),
        ("known", -2),
        ("near", np.full(8, 2)),
        ("explore", np.zeros(7)),
    ],
)
def test_a_memory_that_is_none_is_refused(name: str, value: Any, tmp_path: Any) -> None:
    model = fmdp.problem("circle:3")
    agent = fmdp.simulate(model, fmdp.E3(m=3), 300, seed=0).agent
    assert isinstance(agent, Agent)
    agent.save(tmp_path / "whole.npz")
    fmdp.load_agent(tmp_path / "whole.npz")
    agent.memory[name] = value
    agent.save(tmp_path / "agent.npz")
    with pytest.raises(FmdpError, match="is not a usable learner file"):
        fmdp.load_agent(tmp_path / "agent.npz")


# ---- heaven -------------------------------------------------------------------------------------


def test_heaven_is_rmax_on_one_factor() -> None:
    """An unknown pair is worth R_max / (1 - discount), written out by hand."""
    model = flat_model(fmdp.problem("circle:2"))
    learner = fmdp.FRmax(form="heaven", m=5)
    agent = fmdp.simulate(model, learner, 60, seed=2).agent
    assert isinstance(agent, Agent)
    seen, s = agent.statistics, model.structure
    known = (seen.transition_visits >= 5).reshape(s.n_states, s.n_actions)
    assert known.any()
    assert not known.all()
    hi, discount = s.reward_ranges[0][1], 0.95
    rows = seen.transition_means().reshape(s.n_states, s.n_actions, s.n_states)
    means = seen.reward_means().reshape(s.n_states, s.n_actions)
    value = np.zeros(s.n_states)
    for _ in range(2000):
        q = np.where(known, means + discount * rows @ value, hi / (1 - discount))
        value = q.max(axis=1)
    tables = learner.tables(agent)
    planner = fmdp.Exact(criterion="discounted", discount=discount, tolerance=1e-8)
    found = planner.prepare(tables.structure).solve(tables, describe=True)
    assert found.bias is not None
    assert found.bias[:-1] == pytest.approx(value, abs=1e-6)
    assert found.bias[-1] == pytest.approx(hi / (1 - discount))


def test_heaven_is_refused_where_it_is_nothing() -> None:
    for planner in ("exact", "alp,criterion=average", "exact,criterion=finite,horizon=4"):
        with pytest.raises(InvalidParameter, match="under average reward whatever ever reaches"):
            fmdp.FRmax(form="heaven", planner=planner)
    with pytest.raises(InvalidParameter, match="got planner alp, must be exact"):
        fmdp.FRmax(form="heaven", planner="alp")
    with pytest.raises(InvalidParameter, match="has no free mass, got targets=vertex"):
        fmdp.FRmax(form="heaven", targets="vertex")
    with pytest.raises(InvalidParameter, match="177147 states with one value more"):
        fmdp.FRmax(form="heaven").start(fmdp.problem("circle:11"))


def test_the_discount_of_heaven_is_the_planners() -> None:
    model = fmdp.problem("circle:2")
    agent = fmdp.FRmax(form="heaven").start(model)
    assert isinstance(agent.planner, fmdp.Exact)
    assert agent.planner.discount == 0.95
    chosen = fmdp.Exact(criterion="discounted", discount=0.5)
    agent = fmdp.FRmax(form="heaven", planner=chosen).start(model)
    assert isinstance(agent.planner, fmdp.Exact)
    assert agent.planner.discount == 0.5


# ---- flat ---------------------------------------------------------------------------------------


class FlatE3(Flat, fmdp.E3):
    """E3 on joint states and actions: Kearns and Singh's."""


class FlatRmax(Flat, fmdp.FRmax):
    """Rmax on joint states and actions: Brafman and Tennenholtz's."""


@pytest.mark.parametrize("problem", ["riverswim:1", "random:1,values=4,parents=1", "circle:2"])
@pytest.mark.parametrize(
    ("flat", "factored"),
    [
        (FlatE3(m=4), fmdp.E3(m=4)),
        *(
            tuple(kind(m=4, form=form, episodes="doubling") for kind in (FlatRmax, fmdp.FRmax))
            for form in ("heaven", "extreme")
        ),
    ],
    ids=["e3", "heaven", "extreme"],
)
def test_on_one_factor_flat_and_factored_take_the_same_actions(
    flat: Any, factored: Any, problem: str
) -> None:
    model = fmdp.problem(problem)
    model = model if model.structure.m == 1 else flat_model(model)
    taken = [
        fmdp.simulate(model, one, 400, seed=3, record=True).trajectory for one in (flat, factored)
    ]
    actions = [kept.actions.tolist() for kept in taken if kept is not None]
    assert actions[0] == actions[1]


@pytest.mark.parametrize("learner", [FlatE3(m=2), FlatRmax(m=2, form="heaven")])
def test_flat_ones_do_what_they_have_to(learner: Any) -> None:
    check_learner(learner, fmdp.problem("machines:1"), steps=80, seed=2, save_after=31)
