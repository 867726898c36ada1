"""Policies that randomise in some states: asked, saved, evaluated, simulated, exported."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import FactoredMDP, MixedPolicy, TablePolicy
from fmdp.cli import main
from fmdp.errors import FileProblem, InvalidParameter
from fmdp.planning import evaluate as evaluation
from fmdp.planning.evaluate import evaluate_exactly
from fmdp.planning.explain.export import exported
from fmdp.planning.policies.archive import policy_bytes, policy_digest
from fmdp.planning.policies.files import policy_from_bytes
from fmdp.planning.policies.mixed import Mixture, mixed_policy, mixture_of
from fmdp.simulation.evaluate import evaluate_by_simulation
from fmdp.testing import oracles, strategies

UP = ",".join(f"machine_{i}=working" for i in range(4))


def on_circle() -> tuple[FactoredMDP, MixedPolicy]:
    """A plan for a small model that draws one of three actions where all machines run."""
    model = fmdp.problem("circle:4,dynamics=ippc")
    base: Any = fmdp.plan(model).policy
    return model, MixedPolicy(base, {(1, 1, 1, 1): {(0,): 0.5, (1,): 0.25, (3,): 0.25}})


@st.composite
def mixtures(draw: st.DrawFn, model: FactoredMDP) -> Mixture:
    """Two or three tables, mixed in every state or in a few."""
    n = model.structure.n_states
    tables = [draw(strategies.policies(model.structure)) for _ in range(draw(st.integers(2, 3)))]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    weights = rng.dirichlet(np.ones(len(tables)), n)
    pure = rng.random(n) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    weights[pure] = np.eye(len(tables))[0]
    return [(weights[:, k].copy(), table) for k, table in enumerate(tables)]


def gain_of_mixture(model: FactoredMDP, mixture: Mixture) -> Any:
    """The gain of every state, from the limiting matrix of the mixed chain."""
    dense = oracles.dense(model)
    chain, reward = 0.0, 0.0
    for weights, actions in mixture:
        rows, paid = oracles.policy_chain(dense, actions)
        chain, reward = chain + weights[:, None] * rows, reward + weights * paid
    return oracles.limiting_matrix(chain) @ reward


@pytest.mark.parametrize("direct", [True, False])
@given(data=st.data())
@settings(max_examples=40)
def test_gain_of_any_mixture(direct: bool, data: st.DataObject) -> None:
    model = data.draw(strategies.models())
    mixture = data.draw(mixtures(model))
    policy = mixed_policy(model.structure, mixture)
    expected = gain_of_mixture(model, mixture)
    with pytest.MonkeyPatch.context() as patch:
        if not direct:
            patch.setattr(evaluation, "DIRECT_STATES", 0)
        result = evaluate_exactly(model, policy, tolerance=1e-8, max_iterations=20_000)
    start = np.ravel_multi_index(model.initial_state, model.structure.state_sizes)
    assert result.gain_lower <= expected.min() + 1e-9
    assert result.gain_upper >= expected.max() - 1e-9
    if result.gain is not None:
        assert result.gain == pytest.approx(expected[start], abs=1e-6)
    else:
        assert not direct


@given(st.data())
@settings(max_examples=40)
def test_a_mixture_is_what_the_policy_says_and_is_read_back(data: st.DataObject) -> None:
    model = data.draw(strategies.models())
    structure = model.structure
    mixture = data.draw(mixtures(model))
    policy = mixed_policy(structure, mixture)
    again = policy_from_bytes(policy_bytes(policy), "it", structure)
    assert again == policy
    assert policy_digest(again) == policy_digest(policy)
    chances = np.zeros((structure.n_states, structure.n_actions))
    for weights, actions in mixture:
        chances[np.arange(structure.n_states), actions] += weights
    written = np.zeros_like(chances)
    for weights, actions in mixture_of(policy, structure):
        written[np.arange(structure.n_states), actions] += weights
    np.testing.assert_allclose(written, chances, atol=1e-14)
    if isinstance(policy, MixedPolicy):
        for number, state in enumerate(np.ndindex(*structure.state_sizes)):
            for action, chance in policy.distribution(state):
                index = np.ravel_multi_index(action, structure.action_sizes)
                assert chances[number, index] == pytest.approx(chance, abs=1e-14)


def test_drawn_by_its_distribution_and_by_name() -> None:
    _, policy = on_circle()
    generator = np.random.default_rng(0)
    drawn = [policy((1, 1, 1, 1), generator)[0] for _ in range(4000)]
    assert np.bincount(drawn, minlength=4) / 4000 == pytest.approx([0.5, 0.25, 0, 0.25], abs=0.03)
    assert policy((1, 1, 1, 0)) == policy.base((1, 1, 1, 0))
    assert policy.distribution((1, 1, 1, 0)) == [(policy.base((1, 1, 1, 0)), 1.0)]
    with pytest.raises(InvalidParameter, match="call it with a generator"):
        policy((1, 1, 1, 1))
    (first, chance), *_ = policy.distribution(UP)
    assert chance == 0.5
    assert isinstance(first, dict)


@pytest.mark.parametrize(
    ("chances", "match"),
    [
        ({(1, 1, 1, 1): {(0,): 0.5}}, "have the sum 0.5"),
        ({(1, 1, 1, 1): {(0,): 1.5, (1,): -0.5}}, "at least 0"),
        ({(1, 1, 1, 1): {(9,): 1.0}}, "action"),
        ({(1, 1, 1, 2): {(0,): 1.0}}, "state"),
        ({(1, 1, 1, 1): {}}, "at least one action"),
        ({(1, 1, 1, 1): {(0,): "x"}}, "must be numbers"),
        ({(1, 1, 1, 1): 3}, "action: probability"),
        (3, "state: "),
    ],
)
def test_what_is_no_distribution_is_refused(chances: Any, match: str) -> None:
    _, policy = on_circle()
    with pytest.raises(InvalidParameter, match=match):
        MixedPolicy(policy.base, chances)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    _, policy = on_circle()
    policy.probabilities.flags.writeable = True
    policy.probabilities[0] = 0.75
    policy.save(tmp_path / "bad.npz")
    with pytest.raises(FileProblem, match=r"have the sum 1\.25"):
        fmdp.load_policy(tmp_path / "bad.npz")


def test_forbidden_actions_are_refused() -> None:
    free = FactoredMDP.from_factors(
        [2], [3], [([0, 1], np.full((2, 3, 2), 0.5))], [([0], [0.0, 1.0])]
    )
    bound = FactoredMDP.from_factors(
        [2],
        [3],
        [([0, 1], np.full((2, 3, 2), 0.5))],
        [([0], [0.0, 1.0])],
        constraints=[fmdp.forbid(free, {"s0": "1", "a0": "2"})],
    )
    policy = MixedPolicy(TablePolicy((2,), (3,), np.zeros(2, int)), {(1,): {(0,): 0.5, (2,): 0.5}})
    assert fmdp.evaluate(free, policy).gain == pytest.approx(0.5)
    for use in (fmdp.evaluate, lambda m, p: fmdp.simulate(m, p, steps=5)):
        with pytest.raises(InvalidParameter, match="forbid"):
            use(bound, policy)


def test_the_simulator_agrees_with_the_exact_gain() -> None:
    model, policy = on_circle()
    exact = fmdp.evaluate(model, policy)
    simulated = evaluate_by_simulation(model, policy, steps=60_000, seed=1)
    assert simulated.gain == evaluate_by_simulation(model, policy, steps=60_000, seed=1).gain
    assert simulated.gain_lower <= exact.gain <= simulated.gain_upper
    assert exact.gain < fmdp.evaluate(model, policy.base).gain  # a control: mixing costs something


def test_the_same_seed_plays_the_same_run(tmp_path: Path) -> None:
    model, policy = on_circle()
    policy.save(tmp_path / "p.npz")
    runs = [
        fmdp.simulate(model, played, steps=300, seed=seed, record=True)
        for played, seed in ((policy, 5), (str(tmp_path / "p.npz"), 5), (policy, 6))
    ]
    first, second, other = (run.trajectory.actions for run in runs)
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_exported_as_csv_and_python_and_refused_as_a_tree() -> None:
    _, policy = on_circle()
    rows = list(csv.DictReader(io.StringIO("".join(exported(policy, "csv")[0]))))
    assert len(rows) == 16 + 2
    assert [float(row["probability"]) for row in rows[-3:]] == [0.5, 0.25, 0.25]
    assert all(row["probability"] == "1.0" for row in rows[:-3])
    space: dict[str, Any] = {}
    exec("".join(exported(policy, "python")[0]), space)
    up = dict.fromkeys(policy.naming.states.names, "working")
    listed = [space["act"](up, number) for number in (0.0, 0.49, 0.5, 0.74, 0.75, 0.999)]
    values = [policy.naming.actions.as_listed((a,)) for a in (0, 0, 1, 1, 3, 3)]
    assert listed == values
    assert space["act"](up) in values
    for state in np.ndindex(2, 2, 2, 2):
        if state != (1, 1, 1, 1):
            asked = policy.naming.states.as_listed(state)
            assert space["act"](asked) == policy.naming.actions.as_listed(policy(state))
    with pytest.raises(InvalidParameter, match="a tree has one action in each leaf"):
        exported(policy, "tree")


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, policy = on_circle()
    path = str(tmp_path / "p.npz")
    policy.save(path)
    problem = "circle:4,dynamics=ippc"
    assert main(["evaluate", problem, path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "exact"
    asked = ["--state", UP]
    assert main(["act", problem, path, *asked, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [chance for _, chance in printed["probabilities"]] == [0.5, 0.25, 0.25]
    assert printed["action"] is None
    assert main(["act", problem, path, *asked]) == 0
    assert "0.25" in capsys.readouterr().out
    assert main(["export", path, str(tmp_path / "t"), "--as", "tree"]) == 2
    assert "randomise" in capsys.readouterr().err
