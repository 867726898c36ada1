"""Policies written out: trees that are exact, trees that err as they say, CSV and Python that
answer as the policy does, whatever things are called."""

from __future__ import annotations

import ast
import csv
import io
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import TablePolicy
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model.naming import Naming, Variables
from fmdp.planning.explain import export
from fmdp.planning.explain.export import csv_parts, exported, python_parts, tree_parts
from fmdp.planning.explain.tree_growth import grow
from fmdp.planning.explain.tree_kernels import LEAF
from fmdp.planning.explain.trees import PolicyTree
from fmdp.planning.policies.randomised import UniformPolicy

from ..named import pumps

PUMPS: Any = fmdp.plan(pumps()).policy

NAMES = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=6)
HOSTILE = (
    "=1+1",
    "@SUM(A1)",
    "+cmd|' /C calc'!A0",
    "-2+3",
    '"""',
    "'''",
    "\\",
    "\\'); import os; os.abort() #",
    "coding: utf-7",
    "a,b",
    "{x}",
    "%s",
    "é",
    "True",
    "lambda: 0",
    "__import__('os')",
)


@st.composite
def tables(draw: st.DrawFn, names: bool = False) -> TablePolicy:
    """Tables that depend on some variables, with noise or without, over any sizes."""
    sizes = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    actions = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_states, n_actions = int(np.prod(sizes)), int(np.prod(actions))
    kind = draw(st.sampled_from(["random", "some", "sum"]))
    digits = np.indices(sizes).reshape(len(sizes), -1)
    if kind == "random":
        table = generator.integers(0, n_actions, n_states)
    elif kind == "sum":
        table = digits.sum(axis=0) % n_actions
    else:
        kept = generator.random(len(sizes)) < 0.5
        table = (digits * kept[:, None]).sum(axis=0) % n_actions
    naming = None
    if names:
        words = st.one_of(NAMES, st.sampled_from(HOSTILE))
        called = draw(st.lists(words, min_size=6, max_size=6, unique=True))
        values = [tuple(draw(st.lists(words, min_size=k, max_size=k, unique=True))) for k in sizes]
        done = [tuple(draw(st.lists(words, min_size=k, max_size=k, unique=True))) for k in actions]
        n, k = len(sizes), len(actions)
        naming = Naming(
            Variables("state", tuple(called[:n]), tuple(values)),
            Variables("action", tuple(called[n : n + k]), tuple(done)),
        )
    return TablePolicy(sizes, actions, table, naming)


def answers(tree: PolicyTree, policy: TablePolicy) -> int:
    """In how many states it says something else."""
    states = itertools.product(*map(range, policy.state_sizes))
    return sum(tree(state) != policy(state) for state in states)


# ---- trees ---------------------------------------------------------------------------------------


@given(tables())
@settings(max_examples=80)
def test_a_tree_says_what_the_table_says(policy: TablePolicy) -> None:
    tree = grow(policy)
    assert tree.wrong == answers(tree, policy) == 0
    for one in tree.trees:
        for node in np.flatnonzero(one.variable != LEAF):
            yes, no = one.yes[node], one.no[node]
            assert yes > node
            assert no > node
            both = one.variable[[yes, no]] == LEAF
            assert not (both.all() and one.label[yes] == one.label[no])


@given(tables(), st.integers(2, 12))
@settings(max_examples=60)
def test_a_tree_of_few_leaves_errs_as_often_as_it_says(policy: TablePolicy, most: int) -> None:
    tree = grow(policy, max_leaves=most)
    assert tree.leaves <= most
    assert tree.wrong == answers(tree, policy)


@given(tables(), st.floats(0.0, 1.0))
@settings(max_examples=60)
def test_a_tree_errs_no_more_often_than_it_may(policy: TablePolicy, share: float) -> None:
    tree = grow(policy, max_error=share)
    assert tree.wrong == answers(tree, policy)
    assert tree.wrong <= share * tree.n_states
    assert tree.leaves <= grow(policy).leaves


def test_an_exclusive_or_asks_only_what_matters() -> None:
    """No single question leaves less entropy, and four leaves are enough."""
    digits = np.indices((2,) * 7).reshape(7, -1)
    tree = grow(TablePolicy((2,) * 7, (2,), digits[2] ^ digits[5]))
    assert tree.leaves == 4
    assert {*tree.trees[0].variable.tolist()} == {LEAF, 2, 5}


def test_hand_made_trees() -> None:
    one = grow(TablePolicy((5, 3), (2,), np.repeat([0, 0, 1, 1, 1], 3)))
    assert (one.leaves, one.depth) == (2, 1)  # up to the second value, or above
    assert "".join(tree_parts(one)) == (
        "# 2 leaves, depth 1; wrong in 0 of 15 states\nif s0 <= 1:\n    a0 = 0\nelse:\n    a0 = 1\n"
    )
    same = grow(TablePolicy((5, 3), (2, 2), np.full(15, 2)))
    assert (same.leaves, same.depth) == (2, 0)
    cut = grow(TablePolicy((10,), (2,), np.array([1] + [0] * 9)), max_error=0.1)
    assert (cut.leaves, cut.wrong) == (1, 1)
    assert str(cut) == "1 leaves, depth 0; wrong in 1 of 10 states (0.1 of them)"


def test_limits_that_no_tree_keeps_are_refused() -> None:
    policy = TablePolicy((4,), (4,), np.arange(4))
    with pytest.raises(InvalidParameter, match=r"no cut .* at most 2 leaves"):
        grow(policy, max_leaves=2, max_error=0.1)
    with pytest.raises(InvalidParameter, match="at least that many leaves; got at most 1"):
        grow(TablePolicy((2,), (2, 2), np.zeros(2, int)), max_leaves=1)
    with pytest.raises(TooLarge, match="5,000 values"):
        grow(TablePolicy((5000,), (2,), np.zeros(5000, int)))


def test_a_million_states() -> None:
    """2^20 states, an action that depends on ten of twenty variables."""
    places = np.arange(2**20)
    action = (places >> 3 & 1) + 2 * (places >> 9 & 1) * (places >> 17 & 1)
    tree = grow(TablePolicy((2,) * 20, (4,), action))
    assert tree.wrong == 0
    assert tree.leaves == 6


# ---- CSV and Python ------------------------------------------------------------------------------


def function(text: str) -> Any:
    """The function `act` of a Python file that holds nothing else that could run."""
    found: dict[str, Any] = {}
    allowed = (ast.Assign, ast.FunctionDef, ast.Import, ast.Expr)
    assert all(isinstance(node, allowed) for node in ast.parse(text).body)
    assert text.isascii()
    exec(compile(text, "policy.py", "exec"), found)
    return found["act"]


@given(tables(names=True), st.sampled_from([0, 1, 40]), st.booleans())
@settings(max_examples=80, deadline=None)
def test_python_answers_as_the_policy_does(policy: TablePolicy, deep: int, table: bool) -> None:
    """As nested ifs, as a list of nodes, as the table; by whatever names."""
    before, export._DEEP = export._DEEP, deep
    try:
        act = function("".join(python_parts(policy, None if table else grow(policy))))
    finally:
        export._DEEP = before
    for state in itertools.product(*map(range, policy.state_sizes)):
        named = policy.naming.states.named(state)
        assert act(named) == act(**named) == policy(named)


@given(tables(names=True))
@settings(max_examples=60)
def test_a_csv_has_a_row_for_every_state(policy: TablePolicy) -> None:
    head, *rows = csv.reader(io.StringIO("".join(csv_parts(policy))))
    naming = policy.naming
    states = list(itertools.product(*map(range, policy.state_sizes)))
    assert len(rows) == len(states)
    known = [[*naming.states.names, *naming.actions.names]]
    for state in states:
        named = naming.states.named(state)
        known.append([*named.values(), *policy(named).values()])
    for cells, names in zip([head, *rows], known, strict=True):
        for cell, name in zip(cells, names, strict=True):
            if cell[0] in "=+-@":
                float(cell)  # a number, and no formula
            assert cell == name or (cell == f"'{name}" and name[0] in "=+-@")


def test_a_cell_that_is_a_formula_is_made_a_text() -> None:
    naming = Naming(
        Variables("state", ("=x",), (("-1", "-1+cmd"),)),
        Variables("action", ("@a",), (("+2.5", "=HYPERLINK(1)"),)),
    )
    policy = TablePolicy((2,), (2,), np.array([0, 1]), naming)
    assert "".join(csv_parts(policy)).splitlines() == [
        "'=x,'@a",
        "-1,+2.5",
        "'-1+cmd,'=HYPERLINK(1)",
    ]


def test_a_wrong_state_is_refused_by_the_function() -> None:
    act = function("".join(exported(PUMPS, "python")[0]))
    good = {"pump_a": "new", "pump_b": "new", "price": "low"}
    assert act(good) == {"crew": "rest"}
    for state, words in (
        ({**good, "pump_c": "new"}, "no state variable is called 'pump_c'"),
        ({**good, "price": "none"}, "'price' has no value 'none'"),
        ({"pump_a": "new"}, "no value is given for"),
        ({}, "no value is given for"),
    ):
        with pytest.raises(ValueError, match=words):
            act(state)


def test_the_function_runs_without_fmdp(tmp_path: Path) -> None:
    path = tmp_path / "policy.py"
    path.write_text("".join(exported(PUMPS, "python")[0]))
    code = "import policy; print(policy.act(pump_a='worn', pump_b='broken', price='high'))"
    words = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}",
    ]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert ran.stdout == "{'crew': 'pump_b'}\n"


def test_a_policy_by_elimination_is_written_out_where_it_fits() -> None:
    model = fmdp.problem("circle:6,dynamics=guestrin")
    small: Any = fmdp.plan(model, fmdp.ALP(basis="singles", ties="first")).policy
    assert "leaves" in exported(small, "tree")[1]
    large = fmdp.plan(fmdp.problem("circle:30"), "alp,basis=singles").policy
    for kind in export.KINDS:
        with pytest.raises(TooLarge, match="1,073,741,824 states; at most"):
            exported(large, kind)
    with pytest.raises(InvalidParameter, match="at random"):
        exported(UniformPolicy((2,), (2,)), "csv")


def test_a_tree_of_many_leaves_becomes_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_MANY_LEAVES", 3)
    parts, what = exported(PUMPS, "python")
    assert what == "the table of 18 states, packed"
    act = function("".join(parts))
    for state in itertools.product(range(3), range(3), range(2)):
        named = PUMPS.naming.states.named(state)
        assert act(named) == PUMPS(named)
    wide = TablePolicy((5000,), (2,), np.arange(5000) % 2)
    assert function("".join(exported(wide, "python")[0]))({"s0": "4999"}) == {"a0": 1}
