"""Policies by name: what is asked by name is answered by name, from a file too."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp import TablePolicy
from fmdp._base.archives import pack
from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.model.naming import Naming
from fmdp.planning.policies.archive import policy_bytes, policy_digest
from fmdp.planning.policies.files import load_policy
from fmdp.planning.policies.randomised import ExploringPolicy, UniformPolicy

from ..named import pumps

MODEL = pumps()
STRUCTURE = MODEL.structure
STATE = {"pump_a": "worn", "pump_b": "new", "price": "high"}
PLANNERS = ["exact", "alp", "span,budget=9", "exact,criterion=discounted"]


@pytest.fixture(scope="module", params=PLANNERS)
def policy(request: pytest.FixtureRequest) -> Any:
    return fmdp.plan(MODEL, request.param).policy


def every_way(policy: Any, state: tuple[int, ...]) -> None:
    action = policy(state)
    named = STRUCTURE.name_state(state)
    assert isinstance(action, tuple)
    assert policy(list(state)) == policy(np.array(state)) == action
    assert policy(tuple(named.values())) == action
    answer = STRUCTURE.name_action(action)
    assert policy(named) == policy(",".join(map("=".join, named.items()))) == answer


def test_names_in_names_out_numbers_in_numbers_out(policy: Any) -> None:
    for state in itertools.product(range(3), range(3), range(2)):
        every_way(policy, state)


def test_a_file_keeps_the_names(policy: Any, tmp_path: Path) -> None:
    policy.save(tmp_path / "policy.npz")
    for told in (None, STRUCTURE):
        found: Any = load_policy(tmp_path / "policy.npz", told)
        assert found.naming == STRUCTURE.naming
        assert found(STATE) == policy(STATE)
        every_way(found, (1, 0, 1))


def test_a_wrong_name_is_refused_in_one_line(policy: Any) -> None:
    for state, words in (
        ({**STATE, "pump_a": "wron"}, '"pump_a" has no value "wron".*did you mean "worn"'),
        ({**STATE, "pump_c": "new"}, 'no state variable is called "pump_c"'),
        ({"pump_a": "new"}, '"pump_b", "price" are missing'),
    ):
        with pytest.raises(InvalidParameter, match=words):
            policy(state)


def test_randomised_policies_keep_the_names(tmp_path: Path) -> None:
    base = fmdp.plan(MODEL).policy
    for policy in (ExploringPolicy(base, 0.25), UniformPolicy.of(STRUCTURE)):  # type: ignore[arg-type]
        policy.save(tmp_path / "policy.npz")
        found: Any = load_policy(tmp_path / "policy.npz")
        assert found.naming == policy.naming == STRUCTURE.naming
    ExploringPolicy(base, 0.25).save(tmp_path / "policy.npz")  # type: ignore[arg-type]
    found = load_policy(tmp_path / "policy.npz")
    assert found.base(STATE) == base(STATE)  # type: ignore[misc]


# ---- files without names, and for other names ----------------------------------------------------


def older(policy: TablePolicy, path: Path) -> Path:
    """Its file as version 2 had it."""
    header, arrays = policy.parts()
    whole = {"format": "fmdp-policy", "version": 2, "kind": "table", **header}
    path.write_bytes(pack(whole, arrays))
    return path


def test_older_files_are_read_without_names(tmp_path: Path) -> None:
    policy: Any = fmdp.plan(MODEL).policy
    path = older(policy, tmp_path / "old.npz")
    nameless: Any = load_policy(path)
    assert nameless.naming.is_default
    assert nameless((1, 0, 1)) == policy((1, 0, 1))
    assert nameless({"s0": "1", "s1": "0", "s2": "1"}) == {"a0": policy((1, 0, 1))[0]}
    with pytest.raises(InvalidParameter, match='no state variable is called "pump_a"'):
        nameless(STATE)
    told: Any = load_policy(path, STRUCTURE)
    assert told(STATE) == policy(STATE)


def test_names_that_differ_are_refused_and_default_ones_are_taken(tmp_path: Path) -> None:
    policy: Any = fmdp.plan(MODEL).policy
    policy.save(tmp_path / "policy.npz")
    other = pumps(
        transitions=list(zip(STRUCTURE.transition_scopes, MODEL.transitions, strict=True)),
        rewards=list(zip(STRUCTURE.reward_scopes, MODEL.rewards, strict=True)),
        state_names=["motor", "pump_b", "price"],
        initial_state=None,
    )
    words = 'state variable 0 of its policy is called "pump_a"; that of the problem is "motor"'
    with pytest.raises(FileProblem, match=words):
        load_policy(tmp_path / "policy.npz", other.structure)
    with pytest.raises(InvalidParameter, match='of the policy is called "pump_a"'):
        fmdp.simulate(other, policy, 3)
    values = pumps(action_values=[("none", "pump_a", "pump_b")])
    with pytest.raises(FileProblem, match=r'the values of "crew".*rest, pump_a.*are none, pump_a'):
        load_policy(tmp_path / "policy.npz", values.structure)
    bare = fmdp.Structure(STRUCTURE.state_sizes, STRUCTURE.action_sizes, ((),) * 3, ())
    kept: Any = load_policy(tmp_path / "policy.npz", bare)
    assert kept(STATE) == policy(STATE)


def test_a_digest_does_not_depend_on_names() -> None:
    """Runs in stores are known by it, and those were there before names were."""
    policy: Any = fmdp.plan(MODEL).policy
    bare = TablePolicy(policy.state_sizes, policy.action_sizes, policy.actions)
    assert bare == policy
    assert policy_bytes(bare) != policy_bytes(policy)
    assert policy_digest(bare) == policy_digest(policy)
    assert policy_digest(ExploringPolicy(bare, 0.5)) == policy_digest(ExploringPolicy(policy, 0.5))
    known = TablePolicy((2, 3), (4,), np.array([0, 1, 2, 3, 0, 1]))
    assert policy_digest(known).startswith("sha256:")


NAMES = STRUCTURE.naming.header()
assert NAMES is not None


@pytest.mark.parametrize(
    "names",
    [
        7,
        [],
        {},
        {**NAMES, "more": []},
        {**NAMES, "state_names": ["a", "b"]},
        {**NAMES, "state_names": ["a", "b", "a"]},
        {**NAMES, "state_names": ["a", "b", "crew"]},
        {**NAMES, "state_names": ["a", "b", "c\n"]},
        {**NAMES, "state_names": ["a", "b", 3]},
        {**NAMES, "state_names": "abc"},
        {**NAMES, "state_values": [["x"], [], []]},
        {**NAMES, "state_values": [[["x"]] * 3, [], []]},
        {**NAMES, "state_values": [["x", "x", "y"], [], []]},
        {**NAMES, "state_values": {"pump_a": []}},
        {**NAMES, "action_values": None},
    ],
)
def test_names_that_lie_are_refused(names: Any, tmp_path: Path) -> None:
    policy: Any = fmdp.plan(MODEL).policy
    header, arrays = policy.parts()
    whole = {"format": "fmdp-policy", "version": 3, "kind": "table", **header, "names": names}
    (tmp_path / "policy.npz").write_bytes(pack(whole, arrays))
    for told in (None, STRUCTURE):
        with pytest.raises(FileProblem, match=r"policy\.npz holds no policy: ") as refused:
            load_policy(tmp_path / "policy.npz", told)
        assert "\n" not in str(refused.value)


def test_a_base_with_other_names_than_its_header_is_refused(tmp_path: Path) -> None:
    policy = ExploringPolicy(fmdp.plan(MODEL).policy, 0.25)  # type: ignore[arg-type]
    header, arrays = policy.parts()
    whole = {"format": "fmdp-policy", "version": 3, "kind": "exploring", **header, "names": None}
    (tmp_path / "policy.npz").write_bytes(pack(whole, arrays))
    with pytest.raises(FileProblem, match="other names than its header says"):
        load_policy(tmp_path / "policy.npz")


def test_a_naming_for_other_sizes_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="must be for"):
        TablePolicy((2,), (2,), np.zeros(2, dtype=int), STRUCTURE.naming)
    with pytest.raises(InvalidParameter, match=r"as structure\.naming is"):
        TablePolicy((2,), (2,), np.zeros(2, dtype=int), "names")  # type: ignore[arg-type]
    assert TablePolicy((2,), (2,), np.zeros(2, dtype=int)).naming == Naming.default((2,), (2,))


# ---- rules of one's own --------------------------------------------------------------------------


@fmdp.named
def careful(state: dict[str, str]) -> str:
    return "pump_a" if state["pump_a"] != "new" else "rest"


def by_number(state: tuple[int, ...]) -> int:
    return 1 if state[0] != 0 else 0


def a_mapping(state: tuple[int, ...]) -> dict[str, str]:
    return {"crew": "pump_a" if state[0] != 0 else "rest"}


def a_text(state: tuple[int, ...]) -> str:
    return f"crew={'pump_a' if state[0] != 0 else 'rest'}"


def test_a_rule_may_be_asked_and_may_answer_by_name() -> None:
    runs = [
        fmdp.simulate(MODEL, rule, 300, seed=3).regret
        for rule in (by_number, a_mapping, a_text, careful, fmdp.named(lambda s: careful(s)))
    ]
    assert len(set(runs)) == 1
    gains = {fmdp.evaluate(MODEL, rule).gain for rule in (by_number, careful)}
    assert len(gains) == 1
    place = f"{careful.__module__}:careful"
    assert fmdp.simulate(MODEL, f"policy,policy={place}", 300, seed=3).regret == runs[0]


def test_a_rule_that_answers_with_a_wrong_name_is_refused() -> None:
    with pytest.raises(FmdpError, match=r'Rule.*in state.*no value "pumpa".*mean "pump_a"'):
        fmdp.simulate(MODEL, lambda _: "pumpa", 3)
    with pytest.raises(FmdpError, match="named takes a function"):
        fmdp.named(3)  # type: ignore[type-var]


def test_scopes_of_a_basis_by_name() -> None:
    by_name = fmdp.plan(MODEL, fmdp.ALP(basis=[["pump_a", "price"], ["pump_b"]]))  # type: ignore[list-item]
    assert by_name.objective == fmdp.plan(MODEL, fmdp.ALP(basis=[(0, 2), (1,)])).objective  # type: ignore[arg-type]
    with pytest.raises(FmdpError, match=r'called "pump".*did you mean "pump_[ab]"'):
        fmdp.plan(MODEL, fmdp.ALP(basis=[["pump"]]))  # type: ignore[list-item]
    with pytest.raises(FmdpError, match="must be a state variable"):
        fmdp.plan(MODEL, fmdp.ALP(basis=[["crew"]]))  # type: ignore[list-item]


def test_a_policy_that_depends_on_the_time_is_asked_by_name(tmp_path: Path) -> None:
    policy: Any = fmdp.plan(MODEL, fmdp.Exact(criterion="finite", horizon=5)).policy
    policy.save(tmp_path / "timed.npz")
    for found in (policy, load_policy(tmp_path / "timed.npz")):
        for step in range(5):
            action = found((1, 0, 1), step=step)
            assert found(STATE, step=step) == STRUCTURE.name_action(action)
