"""Why this action: values and gaps of one state, against direct products and the definitions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

import fmdp
from fmdp.errors import FmdpError, InvalidParameter, TooLarge
from fmdp.model import AtMost, Forbidden, product
from fmdp.model.spaces import decode, encode
from fmdp.planning.alp.bases import make_basis
from fmdp.planning.explain import one_state
from fmdp.planning.explain.explain import explain_greedy, explain_policy, explain_timed
from fmdp.planning.explain.one_state import ActionSum, values_of_basis, values_of_table
from fmdp.planning.explain.policy_bias import policy_bias
from fmdp.testing.oracles import dense
from fmdp.testing.strategies import models

from ..named import pumps

MODEL = pumps()
STATE = {"pump_a": "worn", "pump_b": "broken", "price": "high"}


# ---- one state's backup --------------------------------------------------------------------------


@given(models(), st.integers(0, 2**32 - 1), st.sampled_from([1, 8, 64, 1 << 22]))
@settings(max_examples=60)
def test_values_are_those_of_the_dense_model(model: Any, seed: int, at_once: int) -> None:
    generator = np.random.default_rng(seed)
    flat = dense(model)
    h = generator.normal(size=flat.n_states)
    place = int(generator.integers(flat.n_states))
    state = decode(place, model.structure.state_sizes)
    expected = flat.rewards[:, place] + 0.9 * flat.transitions[:, place] @ h
    before = one_state._AT_ONCE
    one_state._AT_ONCE = at_once  # both ways of summing out, and mixes of them
    try:
        found = values_of_table(model, h, state, 0.9)
    finally:
        one_state._AT_ONCE = before
    np.testing.assert_allclose(found, expected, atol=1e-12)


@given(models(), st.integers(0, 2**32 - 1), st.sampled_from(["singles", "pairs", "indicators"]))
@settings(max_examples=60)
def test_values_of_a_basis_are_those_of_its_table(model: Any, seed: int, family: str) -> None:
    generator = np.random.default_rng(seed)
    structure = model.structure
    basis = make_basis(structure, family)
    weights = generator.normal(size=basis.size)
    h = np.array([basis.value(weights, s) for s in np.ndindex(*structure.state_sizes)])
    state = decode(int(generator.integers(structure.n_states)), structure.state_sizes)
    found = values_of_basis(model, basis, weights, state, 0.9)
    expected = values_of_table(model, h, state, 0.9)
    np.testing.assert_allclose(found.all(), expected, atol=1e-12)
    for place in range(structure.n_actions):
        assert found.at(decode(place, structure.action_sizes)) == pytest.approx(expected[place])


@given(st.data())
@settings(max_examples=80)
def test_the_best_few_come_in_order_under_constraints(data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    n = len(sizes)
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    scopes = [
        tuple(sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=2)))) for _ in range(3)
    ]
    tables = tuple(
        generator.integers(0, 6, size=int(np.prod([sizes[v] for v in scope], dtype=int))) / 2.0
        for scope in scopes
    )
    constraints: list[Any] = []
    if data.draw(st.booleans()):
        constraints.append(AtMost(tuple(range(2, 2 + n)), data.draw(st.integers(0, n))))
    if data.draw(st.booleans()):
        table = generator.random(2 * sizes[0]) < 0.4
        table[::2] |= False
        table[[0, sizes[0]]] = False  # doing nothing stays
        constraints.append(Forbidden((0, 2), table))
    structure = fmdp.Structure((2, 1), sizes, ((), ()), (), constraints=tuple(constraints))
    state = (data.draw(st.integers(0, 1)), 0)
    total = ActionSum(sizes, tuple(scopes), tables)
    everything = total.all()
    allowed = structure.allowed_actions(state)
    found = total.best(7, structure, state)
    assert [value for _, value in found] == sorted(everything[allowed], reverse=True)[:7]
    places = [encode(action, sizes) for action, _ in found]
    assert len(set(places)) == len(places)
    assert set(places) <= set(allowed.tolist())
    assert all(everything[place] == value for place, (_, value) in zip(places, found, strict=True))


def test_many_actions_that_move_their_own_variables() -> None:
    """Sixteen machines, each with its own action: 65,536 joint ones, the best known by hand."""
    n = 16
    generator = np.random.default_rng(1)
    up = generator.random((n, 2, 2))
    tables = [([i, n + i], np.stack([1 - up[i], up[i]], axis=-1)) for i in range(n)]
    model = fmdp.FactoredMDP.from_factors([2] * n, [2] * n, tables, [([0], [0.0, 1.0])])
    weights = generator.normal(size=n)
    h = sum(weights[i] * (np.arange(2**n) >> (n - 1 - i) & 1).astype(float) for i in range(n))
    state = tuple(generator.integers(0, 2, size=n).tolist())
    found = values_of_table(model, h, state, 1.0)  # type: ignore[arg-type]
    top = sum(max(weights[i] * up[i, state[i]]) for i in range(n)) + float(state[0])
    assert found.max() == pytest.approx(top)


# ---- plans ---------------------------------------------------------------------------------------


def test_the_best_value_is_the_gain() -> None:
    plan = fmdp.plan(MODEL)
    for state in itertools.product(range(3), range(3), range(2)):
        said = plan.explain(state)
        assert said.values[0].value == pytest.approx(plan.gain, abs=1e-5)
        assert said.chosen.gap == pytest.approx(0.0, abs=1e-9)
        assert said.action == plan.policy(MODEL.structure.name_state(state))  # type: ignore[misc]
        gaps = [one.gap for one in said.values]
        assert gaps == sorted(gaps)
        assert min(gaps) == 0.0
        assert len(gaps) == said.n_actions == 3


def test_a_gap_is_what_the_action_costs_taken_once() -> None:
    """Take another action once, then follow the policy: the loss of the reward in the long run."""
    plan = fmdp.plan(MODEL)
    flat = dense(MODEL)
    actions = plan.policy.actions  # type: ignore[union-attr]
    states = np.arange(flat.n_states)
    follow, pays = flat.transitions[actions, states], flat.rewards[actions, states]
    said = plan.explain(STATE)
    place = encode(MODEL.structure.check_state(STATE), MODEL.structure.state_sizes)

    def total(action: int) -> float:
        law, reward = flat.transitions[action, place], float(flat.rewards[action, place])
        for _ in range(2000):
            reward += float(law @ pays)
            law = law @ follow
        return reward

    best = total(int(actions[place]))
    for one in said.values:
        (action,) = MODEL.structure.check_action(one.action)
        assert best - total(action) == pytest.approx(one.gap, abs=1e-6)


def test_discounted_values_are_those_of_the_bellman_equation() -> None:
    plan = fmdp.plan(MODEL, "exact,criterion=discounted,discount=0.9,tolerance=1e-9")
    flat = dense(MODEL)
    value = np.zeros(flat.n_states)
    for _ in range(2000):
        value = (flat.rewards + 0.9 * flat.transitions @ value).max(axis=0)
    place = encode(MODEL.structure.check_state(STATE), MODEL.structure.state_sizes)
    said = plan.explain(STATE)
    assert (said.criterion, said.discount) == ("discounted", 0.9)
    for one in said.values:
        (action,) = MODEL.structure.check_action(one.action)
        expected = flat.rewards[action, place] + 0.9 * flat.transitions[action, place] @ value
        assert one.value == pytest.approx(expected, abs=1e-6)
    assert said.values[0].value == pytest.approx(value[place], abs=1e-6)


@pytest.mark.parametrize(
    "planner",
    [
        "alp",
        "alp,basis=pairs",
        "alp,criterion=average",
        "span,budget=9",
        "exact",
        "exact,criterion=discounted",
    ],
)
def test_the_policy_is_greedy_for_what_explains_it(planner: str) -> None:
    for model in (MODEL, fmdp.problem("machines:2"), fmdp.problem("random:4,seed=3")):
        plan = fmdp.plan(model, planner)
        for place in range(0, model.structure.n_states, 3):
            said = plan.explain(decode(place, model.structure.state_sizes))
            assert said.chosen.gap <= 1e-6
            assert said.runner_up in said.values


def test_many_joint_actions_give_the_best_few_exactly() -> None:
    """2^20 joint actions by elimination; fewer, by enumeration, agree with it."""
    model = fmdp.problem("machines:20")
    plan = fmdp.plan(model, "alp,basis=local")
    state = "status_3=fail,status_7=dead"
    named = {name: "idle" if "load" in name else "good" for name in model.structure.state_names}
    named |= dict(part.split("=") for part in state.split(","))
    said = plan.explain(named)
    assert said.n_actions == 2**20
    assert len(said.values) in (20, 21)
    assert said.chosen.gap <= 1e-6
    small = fmdp.problem("machines:5")
    found = fmdp.plan(small, "alp,basis=local")
    basis = make_basis(small.structure, "local")
    weights = found.stats["weights"]
    total = values_of_basis(small, basis, weights, small.initial_state, 0.95)
    best = [value for _, value in total.best(10, small.structure, small.initial_state)]
    np.testing.assert_allclose(best, np.sort(total.all())[::-1][:10], atol=1e-9)


def test_forbidden_actions_are_left_out_and_listed() -> None:
    table = np.zeros(9, dtype=bool)
    table[2 * 3 + 1] = True  # a broken pump a is not repaired
    model = pumps(constraints=[Forbidden((0, 3), table, "beyond repair")])
    said = explain_policy(model, fmdp.TablePolicy((3, 3, 2), (3,), np.zeros(18, int)), STATE)
    assert said.forbidden == ()
    broken = {**STATE, "pump_a": "broken"}
    policy = fmdp.TablePolicy((3, 3, 2), (3,), np.full(18, 2))
    said = explain_policy(model, policy, broken)
    assert said.forbidden == ({"crew": "pump_a"},)
    assert {one.action["crew"] for one in said.values} == {"rest", "pump_b"}
    assert "forbidden here: crew=pump_a" in str(said)


# ---- policies without a plan ---------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["circle:4", "riverswim:2", "random:4,seed=2"])
def test_the_bias_of_a_policy_solves_its_equation(problem: str) -> None:
    model = fmdp.problem(problem)
    flat = dense(model)
    policy: Any = fmdp.plan(model).policy
    gain = fmdp.evaluate(model, policy).gain
    states = np.arange(flat.n_states)
    h = policy_bias(model, policy, 0).h
    residual = (
        flat.rewards[policy.actions, states] + flat.transitions[policy.actions, states] @ h - h
    )
    np.testing.assert_allclose(residual, gain, atol=1e-6)


def test_the_bias_of_a_larger_policy_is_iterated(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fmdp.problem("circle:4")
    policy: Any = fmdp.plan(model).policy
    direct = policy_bias(model, policy, 3)
    assert direct.error.max() < 1e-12
    monkeypatch.setattr("fmdp.planning.explain.policy_bias.DIRECT_STATES", 0)
    iterated = policy_bias(model, policy, 3)
    assert (np.abs(iterated.h - direct.h) <= iterated.error + direct.error).all()
    assert iterated.error.max() < 1e-7
    assert iterated.h[3] == iterated.error[3] == 0.0
    monkeypatch.setattr("fmdp.planning.explain.policy_bias.TABULATED_STATES", 1)
    with pytest.raises(TooLarge, match="at most 1 can"):
        policy_bias(model, policy, 3)


@pytest.mark.parametrize("place", [0, 43, 215])
def test_the_bias_of_independent_parts_is_a_sum(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fmdp.problem("riverswim:3")
    monkeypatch.setattr("fmdp.planning.joining.JOINT_PAIRS", 0)
    policy: Any = fmdp.plan(model).policy
    summed = policy_bias(model, policy, place)
    monkeypatch.setattr("fmdp.planning.joining.JOINT_PAIRS", 1 << 40)
    jointly = policy_bias(model, policy, place)
    assert (np.abs(summed.h - jointly.h) <= summed.error + jointly.error).all()
    assert abs(summed.gain - jointly.gain) <= summed.gain_error + jointly.gain_error
    assert summed.h[place] == 0.0
    assert summed.error.max() < 1e-9
    assert summed.defined.all()
    assert jointly.defined.all()


def test_parts_of_several_classes_are_explained_where_all_are_defined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One part is absorbed in state 0 or 2 from state 1; the other part has one class."""
    rows, rewards = [[1, 0, 0], [0.5, 0, 0.5], [0, 0, 1]], [0.0, 0.0, 1.0]
    split, _ = _one_action(rows, rewards)
    model = product(split, _one_action([[0.5, 0.5], [0.5, 0.5]], [0.0, 1.0])[0])
    policy = fmdp.TablePolicy((3, 2), (1, 1), np.zeros(6, int))
    monkeypatch.setattr("fmdp.planning.joining.JOINT_PAIRS", 0)
    for state, defined in ((4, [4, 5]), (1, [0, 1])):
        bias = policy_bias(model, policy, state)
        assert np.flatnonzero(bias.defined).tolist() == defined
        assert bias.gain == pytest.approx(0.5 + (state == 4))
    with pytest.raises(InvalidParameter, match="2 recurrent classes"):
        policy_bias(model, policy, 2)


def _one_action(rows: Any, rewards: Any) -> tuple[fmdp.FactoredMDP, fmdp.TablePolicy]:
    """A chain as a model, and its only policy."""
    n = len(rows)
    table = np.asarray(rows, dtype=float)[:, None, :]
    model = fmdp.FactoredMDP.from_factors([n], [1], [([0, 1], table)], [([0], rewards)])
    return model, fmdp.TablePolicy((n,), (1,), np.zeros(n, int))


@pytest.mark.parametrize("states", [0, 1 << 10])
def test_a_policy_whose_gain_depends_on_the_state_is_refused(
    states: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both where the chain is solved and where it is iterated."""
    monkeypatch.setattr("fmdp.planning.explain.policy_bias.DIRECT_STATES", states)
    model, policy = _one_action([[0.3, 0.7, 0], [0, 1, 0], [0.5, 0.25, 0.25]], [0.0, 1.0, 0.0])
    assert explain_policy(model, policy, (2,)).chosen.value == pytest.approx(1.0, abs=1e-8)
    model, policy = _one_action([[0.3, 0.3, 0.4], [0, 1, 0], [0, 0, 1]], [0.0, 1.0, 0.0])
    with pytest.raises(InvalidParameter, match="depends on the state"):
        explain_policy(model, policy, (0,))


def test_values_are_given_where_every_action_leads_to_one_class() -> None:
    """States 0 and 1 are one class, 2 another; only from state 0 an action leads over."""
    moves = np.zeros((3, 2, 3))
    moves[0, 0], moves[0, 1] = [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]
    moves[1, :] = [1.0, 0.0, 0.0]
    moves[2, :, 2] = 1.0
    model = fmdp.FactoredMDP.from_factors(
        [3], [2], [([0, 1], moves)], [([0, 1], [[0.0, 0.0], [1.0, 2.0], [5.0, 4.0]])]
    )
    policy = fmdp.TablePolicy((3,), (2,), np.zeros(3, int))
    # The gain of {0, 1} is 1/3, that of {2} is 5.
    said = explain_policy(model, policy, (1,))
    assert [one.value for one in said.values] == pytest.approx([4 / 3, 1 / 3])
    said = explain_policy(model, policy, (2,))
    assert [one.value for one in said.values] == pytest.approx([5.0, 4.0])
    with pytest.raises(InvalidParameter, match="another recurrent class") as refused:
        explain_policy(model, policy, (0,))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("leak", [1e-6, 1e-9, 1e-12, 1e-14, 1e-18])
def test_slow_chains_are_right_to_the_printed_digits(leak: float) -> None:
    """Two rooms that pay 0.3 and 0.5, left with the leak: h differs by 0.1 / leak, so that the
    policy's own value is its gain 0.4 and moving over with probability 1/2 is worth 0.05 / leak
    more than its reward 0.4."""
    moves = np.zeros((2, 2, 2))
    moves[:, 0] = [[1 - leak, leak], [leak, 1 - leak]]
    moves[:, 1] = 0.5
    model = fmdp.FactoredMDP.from_factors(
        [2], [2], [([0, 1], moves)], [([0, 1], [[0.3, 0.4], [0.5, 0.4]])]
    )
    policy = fmdp.TablePolicy((2,), (2,), np.zeros(2, int), model.structure.naming)
    said = explain_policy(model, policy, (0,))
    assert said.chosen.value == pytest.approx(0.4, rel=1e-14)
    assert said.values[0].value == pytest.approx(0.4 + 0.05 / leak, rel=1e-14)
    row = str(said).splitlines()[4].split()
    assert row[:2] == ["0", "0.4"]


def test_a_step_that_happens_to_be_zero_does_not_end_the_refinement() -> None:
    """Two states that pay the same: h is 0, though the gain of the first solution is off by a bit,
    which 5e13 steps would make 0.003."""
    moves = np.array(
        [[0.9999999916850475, 8.31495246732012e-09], [2.1070505810482705e-14, 0.9999999999999789]]
    )
    model, policy = _one_action(moves, [0.4, 0.4])
    bias = policy_bias(model, policy, 0)
    assert np.abs(bias.h).max() <= bias.error.max() < 1e-12


def test_values_that_rounding_leaves_unknown_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fmdp.problem("circle:3")
    policy: Any = fmdp.plan(model).policy
    monkeypatch.setattr("fmdp.planning.explain.policy_bias._REFINEMENTS", 0)
    with pytest.raises(InvalidParameter, match="unknown by up to"):
        explain_policy(model, policy, model.initial_state)


def test_a_bad_policy_shows_its_gap() -> None:
    """It never repairs: repairing would be better, and the table says by how much."""
    policy = fmdp.TablePolicy((3, 3, 2), (3,), np.zeros(18, int), MODEL.structure.naming)
    said = explain_policy(MODEL, policy, STATE)
    assert said.action == {"crew": "rest"}
    assert said.chosen.gap > 0
    assert said.values[0].action != said.action
    assert said.chosen.value == pytest.approx(fmdp.evaluate(MODEL, policy).gain, abs=1e-6)


@pytest.mark.parametrize("problem", ["circle:17", "machines:9"])
def test_the_gaps_of_a_greedy_policy_are_those_of_its_plan(problem: str) -> None:
    model = fmdp.problem(problem)
    plan = fmdp.plan(model, "alp,basis=local")
    policy: Any = plan.policy
    assert type(policy).__name__ == "GreedyPolicy"
    state = model.initial_state
    said, known = explain_greedy(model, policy, state), plan.explain(state)
    assert said.chosen.value is None
    gaps = [one.gap for one in said.values]
    np.testing.assert_allclose(gaps, [one.gap for one in known.values], atol=1e-8)


def test_what_cannot_be_explained_is_said_in_one_line() -> None:
    plan = fmdp.plan(MODEL)
    for call, words in (
        (lambda: plan.explain("pump_a=wron,pump_b=new,price=low"), 'did you mean "worn"'),
        (lambda: plan.explain("pump_a=worn"), '"pump_b", "price" are missing'),
        (lambda: fmdp.Plan("x", fmdp.Status.CONVERGED).explain((0,)), "does not know its model"),
        (
            lambda: fmdp.Plan("x", fmdp.Status.INFEASIBLE).explain((0,), model=MODEL),
            "no policy to explain",
        ),
    ):
        with pytest.raises(FmdpError, match=words) as refused:
            call()
        assert "\n" not in str(refused.value)


def test_a_plan_of_a_planner_itself_knows_its_model() -> None:
    for planner in (fmdp.Exact(), fmdp.ALP(basis="singles"), fmdp.SpanConstrained(budget=9.0)):
        said = planner.plan(MODEL).explain(STATE)
        assert said.state == STATE


def test_a_plan_that_was_stopped_has_its_policy_evaluated() -> None:
    plan = fmdp.plan(MODEL, "exact,max_iterations=1")
    assert plan.bias is None
    said = plan.explain(STATE)
    assert "bias of the policy" in said.of
    assert said.chosen.value == pytest.approx(fmdp.evaluate(MODEL, plan.policy).gain, abs=1e-6)  # type: ignore[arg-type]


def test_it_prints_a_small_table() -> None:
    lines = str(fmdp.plan(MODEL).explain(STATE)).splitlines()
    assert lines[0] == "state   pump_a=worn, pump_b=broken, price=high"
    assert lines[1] == "action  crew=pump_b"
    assert lines[2].split() == ["crew", "value", "gap"]
    assert lines[3].split()[:3] == ["pump_b", "2.518367", "0"]
    assert lines[3].endswith("<- the policy's")
    assert lines[-1] == "value   R + P h - h(s), h the optimal bias: the best is the gain"
    assert max(map(len, lines)) < 140


# ---- intervals ----------------------------------------------------------------------------------


def _least_over_box(lower: Any, upper: Any, h: NDArray[np.float64]) -> float:
    ends = list(zip(lower, upper, strict=True))
    found = linprog(h, A_eq=[[1.0] * len(h)], b_eq=[1.0], bounds=ends)
    return float(found.fun)


@pytest.mark.parametrize(("case", "sign"), [("robust", 1.0), ("optimistic", -1.0)])
def test_plans_for_intervals_are_explained_by_the_rows_that_nature_chooses(
    case: str, sign: float
) -> None:
    exact = fmdp.problem("jao:1")
    off = np.zeros_like(exact.transitions[0])
    off[:2] = 0.1
    ends = (exact.transitions[0] - off, exact.transitions[0] + off)
    known = fmdp.Intervals((ends[0],), (ends[1],), exact.rewards, exact.rewards)
    model = fmdp.FactoredMDP(exact.structure, exact.transitions, exact.rewards, intervals=known)
    model = model.with_constraints(fmdp.Forbidden((0, 1), np.array([False, False, True, False])))
    plan = fmdp.plan(model, fmdp.Exact(intervals=case))
    assert plan.bias is not None
    for state in range(2):
        said = plan.explain((state,))
        assert said.chosen.gap == pytest.approx(0.0, abs=1e-6)
        assert said.values[0].value == pytest.approx(plan.gain, abs=1e-6)
        assert len(said.values) + len(said.forbidden) == 2
        for one in said.values:
            row = 2 * state + model.structure.check_action(one.action)[0]
            moved = sign * _least_over_box(ends[0][row], ends[1][row], sign * plan.bias)
            assert one.value == pytest.approx(state + moved - plan.bias[state], abs=1e-9)


# ---- a horizon -----------------------------------------------------------------------------------


@given(models(), st.integers(1, 5), st.sampled_from([1.0, 0.8]), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_values_at_a_step_are_those_of_backward_induction(
    model: Any, horizon: int, discount: float, seed: int
) -> None:
    share = None if discount == 1.0 else discount
    plan = fmdp.plan(model, fmdp.Exact(criterion="finite", horizon=horizon, discount=share))
    flat = dense(model)
    generator = np.random.default_rng(seed)
    place, step = int(generator.integers(flat.n_states)), int(generator.integers(horizon))
    value = np.zeros(flat.n_states)
    for _ in range(horizon - 1 - step):
        value = (flat.rewards + discount * flat.transitions @ value).max(axis=0)
    expected = flat.rewards[:, place] + discount * flat.transitions[:, place] @ value
    state = decode(place, model.structure.state_sizes)
    said = plan.explain(state, step=step)
    assert said.criterion == "finite"
    assert said.discount == discount
    found = {tuple(one.action.values()): one.value for one in said.values}
    name = model.structure.naming.actions.as_listed
    for index, number in enumerate(expected):
        action = tuple(name(decode(index, model.structure.action_sizes)).values())
        assert found[action] == pytest.approx(number, abs=1e-6)
    assert said.chosen.gap < 1e-6
    assert said.action == name(plan.policy(state, step))  # type: ignore[misc, call-arg]


def test_a_step_is_for_a_horizon_and_comes_round() -> None:
    plan = fmdp.plan(MODEL, fmdp.Exact(criterion="finite", horizon=3))
    assert plan.explain(STATE, step=4) == plan.explain(STATE, step=1)
    assert "in the 1 step after" in str(plan.explain(STATE, step=1))
    with pytest.raises(InvalidParameter, match="a step is for policies with a horizon"):
        fmdp.plan(MODEL).explain(STATE, step=1)
    with pytest.raises(InvalidParameter, match="step"):
        plan.explain(STATE, step=-1)
    with pytest.raises(InvalidParameter, match="state sizes"):
        explain_timed(fmdp.problem("circle:2"), plan.policy, (0, 0))  # type: ignore[arg-type]
