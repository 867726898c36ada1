"""Policies: asked, saved, loaded, evaluated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmdp import TablePolicy
from fmdp.errors import FileProblem, InvalidParameter
from fmdp.planning.evaluate import evaluate_exactly
from fmdp.planning.policies.files import load_policy
from fmdp.planning.spans import factored_spans, span
from fmdp.planning.status import Status
from fmdp.problems import problem
from fmdp.testing import oracles, strategies


@given(st.data())
@settings(max_examples=60)
def test_gain_of_any_policy(data: st.DataObject) -> None:
    model = data.draw(strategies.models())
    actions = data.draw(strategies.policies(model.structure))
    gains = oracles.policy_gain(oracles.dense(model), actions)
    policy = TablePolicy(model.structure.state_sizes, model.structure.action_sizes, actions)
    found = evaluate_exactly(model, policy, tolerance=1e-8, max_iterations=20_000)
    start = np.ravel_multi_index(model.initial_state, model.structure.state_sizes)
    assert found.gain == pytest.approx(gains[start], abs=1e-6)
    assert found.gain_lower <= gains.min() + 1e-9
    assert found.gain_upper >= gains.max() - 1e-9
    assert (found.status is Status.CONVERGED) == (gains.max() - gains.min() < 1e-7)


@given(st.data())
@settings(max_examples=40)
def test_factored_spans_by_their_definition(data: st.DataObject) -> None:
    structure = data.draw(strategies.structures())
    h = data.draw(strategies.values(structure))
    cube = h.reshape(structure.state_sizes)
    expected = [np.ptp(cube, axis=i).max() for i in range(structure.m)]
    spans = factored_spans(h, structure.state_sizes)
    assert spans == pytest.approx(expected)
    assert span(h) <= sum(spans) + 1e-9  # Proposition 1
    assert sum(spans) <= structure.m * span(h) + 1e-9


def test_round_trip(tmp_path: Path) -> None:
    actions = np.array([0, 2, 1, 2, 0, 0, 1, 1])
    policy = TablePolicy((2, 4), (3,), actions)
    path = tmp_path / "p.policy"
    policy.save(path)
    loaded = load_policy(path)
    assert loaded == policy
    assert loaded((1, 2)) == (1,)
    assert list(tmp_path.iterdir()) == [path]  # nothing half-written beside it


def test_a_million_states_take_a_megabyte() -> None:
    policy = TablePolicy((2,) * 20, (21,), np.zeros(1 << 20, dtype=np.int64))
    assert policy.actions.nbytes == 1 << 20


def test_bad_files_are_one_line(tmp_path: Path) -> None:
    good = tmp_path / "good"
    TablePolicy((2, 2), (3,), np.zeros(4, dtype=np.int64)).save(good)
    half = tmp_path / "half"
    half.write_bytes(good.read_bytes()[:-20])
    text = tmp_path / "text"
    text.write_text("{}")
    archive = tmp_path / "archive.npz"
    np.savez(archive, header=np.array('{"format": "other"}'))
    for path, words in (
        (tmp_path / "none", "no policy file"),
        (half, "cut short"),
        (text, "not a policy file"),
        (archive, "format"),
        (tmp_path, "is a directory; must be a policy file"),
    ):
        with pytest.raises(FileProblem, match=words) as error:
            load_policy(path)
        assert "\n" not in str(error.value)
    with pytest.raises(FileProblem, match=r"state sizes \(2, 2\); the problem has \(2, 2, 2\)"):
        load_policy(good, problem("circle:3").structure)


def test_out_of_range() -> None:
    with pytest.raises(InvalidParameter, match="state 1 is 7; allowed: 0 to 2"):
        TablePolicy((2,), (3,), np.array([0, 7]))
    policy = TablePolicy((2, 3), (2,), np.zeros(6, dtype=np.int64))
    with pytest.raises(InvalidParameter, match=r'"s1" is 3; must be in 0\.\.2'):
        policy((0, 3))
    with pytest.raises(InvalidParameter, match="has 1 values; must have 2"):
        policy((0,))
