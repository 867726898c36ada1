"""Small trees keep the constraints of the model, or are refused with the leaves that they need."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import TablePolicy
from fmdp.errors import FmdpError, InvalidParameter
from fmdp.model.constraints import AtMost, Constraint, Forbidden
from fmdp.model.structure import Structure
from fmdp.planning.explain.export import exported, table_of
from fmdp.planning.explain.tree_growth import grow
from fmdp.planning.explain.tree_kernels import LEAF
from fmdp.planning.explain.trees import PolicyTree

from .test_export import function


def block() -> fmdp.FactoredMDP:
    """Two teams, two theatres, three queues: a team works off a queue, never two in one theatre."""
    queues = ("knee", "heart", "eye")
    theatres = ["rest", "A", "B"]

    def transition(name: str, v: Any) -> Any:
        served = sum(v[team] != "rest" and _serves(team, v[team]) == name for team in TEAMS)
        left = max(0, v[name] - served)
        return {left: 0.6, min(3, left + 1): 0.4} if left < 3 else left

    return fmdp.FactoredMDP.from_functions(
        {queue: range(4) for queue in queues},
        dict.fromkeys(TEAMS, theatres),
        {queue: [queue, *TEAMS] for queue in queues},
        transition,
        costs={queue: ([queue], lambda v, queue=queue: v[queue] ** 2) for queue in queues},
        constraints=(
            fmdp.apart(
                Structure(
                    (4, 4, 4),
                    (3, 3),
                    ((),) * 3,
                    (),
                    state_names=queues,
                    action_names=TEAMS,
                    action_values=(theatres, theatres),
                ),
                TEAMS,
                besides="rest",
            ),
        ),
    )


TEAMS = ("team_1", "team_2")


def _serves(team: str, theatre: str) -> str:
    return {
        ("team_1", "A"): "knee",
        ("team_1", "B"): "heart",
        ("team_2", "A"): "eye",
        ("team_2", "B"): "heart",
    }[team, theatre]


def forbidden_states(tree: PolicyTree, structure: Structure) -> int:
    states = itertools.product(*map(range, structure.state_sizes))
    return sum(not structure.allowed(state, tree(state)) for state in states)


def test_without_the_constraints_small_trees_break_them() -> None:
    """A control: trees of each team by itself send both teams into one theatre."""
    model = block()
    policy: Any = fmdp.plan(model).policy
    broken = [
        forbidden_states(grow(policy, max_leaves=leaves), model.structure) for leaves in (6, 10, 20)
    ]
    assert any(broken)


@pytest.mark.parametrize("leaves", [1, 2, 4, 10, 40])
def test_teams_are_never_in_one_theatre(leaves: int) -> None:
    model = block()
    policy: Any = fmdp.plan(model).policy
    tree = grow(policy, max_leaves=leaves, constraints=model.structure.constraints)
    assert tree.leaves <= leaves
    assert forbidden_states(tree, model.structure) == 0
    states = itertools.product(*map(range, model.structure.state_sizes))
    assert tree.wrong == sum(tree(state) != policy(state) for state in states)
    space = function("".join(exported(policy, "python", max_leaves=leaves)[0]))
    for state in itertools.product(*map(range, model.structure.state_sizes)):
        named = dict(zip(("knee", "heart", "eye"), state, strict=True))
        assert space(named) == tree(named)


def test_a_tree_that_needs_more_leaves_is_refused_with_their_number() -> None:
    """In state i only action i is allowed: nothing but the exact tree will do."""
    policy = TablePolicy((4,), (4,), np.arange(4))
    only = Forbidden((0, 1), ~np.eye(4, dtype=np.bool_).reshape(-1))
    with pytest.raises(
        InvalidParameter, match=r"at most 3 leaves and keeps the constraints .* at least 4 leaves"
    ):
        grow(policy, max_leaves=3, constraints=[only])
    assert grow(policy, max_leaves=4, constraints=[only]).wrong == 0
    # In states 0 and 1 action 0 is forbidden, elsewhere nothing: action 3 serves all of them.
    table = np.zeros((4, 4), dtype=np.bool_)
    table[:2, 0] = True
    free = grow(TablePolicy((4,), (4,), np.array([3, 3, 0, 0])), max_leaves=1,
                constraints=[Forbidden((0, 1), table.reshape(-1))])  # fmt: skip
    assert free.trees[0].values(0) == (3,)
    assert free.wrong == 2


def test_an_action_that_the_policy_never_takes_may_be_the_one_that_is_allowed() -> None:
    forbidden = np.array([[False, True, False], [True, False, False]])
    policy = TablePolicy((2,), (3,), np.array([0, 1]))
    tree = grow(policy, max_leaves=1, constraints=[Forbidden((0, 1), forbidden.reshape(-1))])
    assert tree((0,)) == tree((1,)) == (2,)
    assert tree.wrong == 2


def test_a_policy_that_breaks_the_constraints_is_refused() -> None:
    policy = TablePolicy((2,), (2,), np.array([0, 1]))
    with pytest.raises(InvalidParameter, match="constraints of the model forbid: s0=1, a0=1"):
        grow(policy, constraints=[Forbidden((0, 1), np.array([False, False, False, True]))])


@st.composite
def constrained(draw: st.DrawFn) -> tuple[TablePolicy, tuple[Constraint, ...], Structure]:
    """A structure with constraints that leave an action in every state, and an allowed table."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    states = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    actions = tuple(draw(st.lists(st.integers(2, 3), min_size=1, max_size=3)))
    m, sizes = len(states), (*states, *actions)
    made: list[Constraint] = []
    for _ in range(draw(st.integers(0, 2))):
        scope = tuple(v for v in range(m) if generator.random() < 0.4)
        scope += tuple(sorted(m + generator.permutation(len(actions))[: generator.integers(1, 3)]))
        rows = int(np.prod([sizes[v] for v in scope]))
        made.append(Forbidden(tuple(map(int, scope)), generator.random(rows) < 0.3))
    if len(actions) > 1 and draw(st.booleans()):
        made.append(AtMost(tuple(range(m, m + len(actions))), 1))
    try:
        structure = Structure(states, actions, ((),) * m, (), constraints=tuple(made))
    except FmdpError:
        made = []
        structure = Structure(states, actions, ((),) * m, ())
    joint = list(itertools.product(*map(range, actions)))
    chosen = []
    for state in itertools.product(*map(range, states)):
        allowed = [n for n, action in enumerate(joint) if structure.allowed(state, action)]
        # Few different actions, so that trees have something to find.
        chosen.append(allowed[int(generator.integers(min(2, len(allowed))))])
    return TablePolicy(states, actions, np.array(chosen)), tuple(made), structure


@given(constrained(), st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_every_small_tree_is_allowed_and_refusals_tell_the_least(given: Any, leaves: int) -> None:
    policy, constraints, structure = given
    try:
        tree = grow(policy, max_leaves=leaves, constraints=constraints)
    except InvalidParameter as error:
        if "has a tree for each" in str(error):
            return
        least = int(str(error).split("at least ")[1].split()[0])
        assert least > leaves
        tree = grow(policy, max_leaves=least, constraints=constraints)
        assert tree.leaves == least
    assert forbidden_states(tree, structure) == 0
    for one in tree.trees:
        assert (one.variable[0] == LEAF) == (one.leaves == 1)
    states = itertools.product(*map(range, policy.state_sizes))
    assert tree.wrong == sum(tree(state) != policy(state) for state in states)
    assert np.array_equal(
        tree.table.actions,
        [
            np.ravel_multi_index(tree(state), policy.action_sizes)
            for state in itertools.product(*map(range, policy.state_sizes))
        ],
    )


@given(constrained(), st.floats(0.0, 1.0))
@settings(max_examples=60, deadline=None)
def test_trees_by_their_share_of_errors_are_allowed_too(given: Any, share: float) -> None:
    policy, constraints, structure = given
    tree = grow(policy, max_error=share, constraints=constraints)
    assert forbidden_states(tree, structure) == 0
    assert tree.wrong <= share * tree.n_states


def test_files_know_the_constraints(tmp_path: Path) -> None:
    model = block()
    plan = fmdp.plan(model)
    policy: Any = plan.policy
    policy.save(tmp_path / "p.npz")
    saved: Any = fmdp.load_policy(tmp_path / "p.npz")
    assert saved.constraints == model.structure.constraints
    parts, what = exported(saved, "tree", max_leaves=10)
    assert "team_1 = " in "".join(parts)
    assert "gain" not in what
    parts, what = exported(saved, "tree", max_leaves=10, model=model)
    tree = grow(saved, max_leaves=10, constraints=model.structure.constraints)
    small = fmdp.evaluate(model, tree.table).gain
    assert f"; gain {small:.7g}, the policy's is {plan.policy_gain:.7g}" in what
    assert what in next(parts)
    bare = TablePolicy(policy.state_sizes, policy.action_sizes, policy.actions)
    bare.save(tmp_path / "bare.npz")
    nothing: Any = fmdp.load_policy(tmp_path / "bare.npz")
    assert nothing.constraints is None
    with pytest.raises(InvalidParameter, match="does not say which constraints"):
        exported(nothing, "tree", max_leaves=10)
    exported(nothing, "tree")
    known: Any = fmdp.load_policy(tmp_path / "bare.npz", model.structure)
    assert known.constraints == model.structure.constraints


def test_greedy_policies_know_them_too(tmp_path: Path) -> None:
    model = block()
    policy: Any = fmdp.plan(model, "alp,basis=pairs").policy
    policy.save(tmp_path / "p.npz")
    saved: Any = fmdp.load_policy(tmp_path / "p.npz")
    table = table_of(saved)
    assert table.constraints == model.structure.constraints
    tree = grow(table, max_leaves=5, constraints=table.constraints or ())
    assert forbidden_states(tree, model.structure) == 0


def test_leaves_are_weighted_by_time_where_that_gains_more() -> None:
    model = fmdp.problem("circle:4")
    policy = fmdp.plan(model).policy
    assert isinstance(policy, fmdp.TablePolicy)
    for leaves in (2, 3, 4, 5):
        _, what = exported(policy, "tree", max_leaves=leaves, model=model)
        plain = grow(policy, max_leaves=leaves)
        gain = float(what.split("; gain ")[1].split(",")[0])
        assert gain >= fmdp.evaluate(model, plain.table).gain - 1e-6  # type: ignore[operator]
        assert "(loses " in what
