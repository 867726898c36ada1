"""Joint actions swept in parts: the same backup, whoever sweeps what in which order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fmdp
from fmdp.elimination import tuning
from fmdp.elimination.backup import Backup
from fmdp.elimination.split import bytes_of, split_layout, take_larger, tiles, transpose
from fmdp.model import FactoredMDP
from fmdp.testing import oracles, strategies


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts wherever there can be any."""
    monkeypatch.setattr(tuning, "SPLIT_SECONDS", 0.0)
    monkeypatch.setattr(tuning, "SPLIT_GAIN", 1e-9)


@pytest.mark.usefixtures("always")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(strategies.models(), st.data())
def test_the_same_backup_in_parts(model: FactoredMDP, data: st.DataObject) -> None:
    backup = Backup(model.structure, share_for=model)
    h = data.draw(strategies.values(model.structure))
    mdp = oracles.dense(model)
    expected = oracles.bellman(mdp, h)
    assert backup.apply(h) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    values, actions = backup.greedy(h)
    assert values == pytest.approx(expected, rel=1e-12, abs=1e-12)
    chosen = oracles.action_values(mdp, h)[actions, np.arange(mdp.n_states)]
    assert chosen == pytest.approx(expected, rel=1e-8, abs=1e-8)
    lowest = np.empty(mdp.n_states)
    backup.lowest(backup.to_internal(h), lowest)
    least = oracles.action_values(mdp, h)
    least = np.where(np.isneginf(least), np.inf, least).min(axis=0)
    assert backup.to_canonical(lowest) == pytest.approx(least, rel=1e-12, abs=1e-12)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("threads", [1, 3])
def test_a_ring_in_parts(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every machine in one part; a third of the steps less."""
    monkeypatch.setattr(tuning, "PARALLEL_STATES", 1)
    model = fmdp.problem("circle:9,dynamics=guestrin")
    backup = Backup(model.structure, share_for=model, threads=threads)
    assert len(backup.rotations) > 1
    actions = [part.layout.classes.actions[:, 0] for part in backup.rotations]
    assert sorted(np.concatenate(actions).tolist()) == list(range(10))
    steps = sum(part.layout.multiply_adds for part in backup.rotations)
    assert steps < 0.8 * backup.layout.multiply_adds
    h = np.random.default_rng(1).normal(size=512)
    expected = oracles.bellman(oracles.dense(model), h)
    assert backup.apply(h) == pytest.approx(expected, abs=1e-12)


@pytest.mark.usefixtures("always")
def test_plans_in_parts_are_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fmdp.problem("circle:9,dynamics=guestrin")
    parts = fmdp.Exact().plan(model)
    monkeypatch.setattr(tuning, "SPLIT_SECONDS", np.inf)
    whole = fmdp.Exact().plan(model)
    assert parts.gain == pytest.approx(whole.gain, abs=1e-6)
    assert parts.bias == pytest.approx(whole.bias, abs=1e-4)
    assert parts.gain_lower <= whole.gain_upper
    assert whole.gain_lower <= parts.gain_upper
    assert parts.stats["memory_bytes"] > whole.stats["memory_bytes"]


def test_certificates_allow_for_the_roundings_of_all_programs() -> None:
    """Policies are found by the whole program, and its groups are not those of the parts."""
    model = fmdp.problem("circle:20,dynamics=guestrin")
    backup = Backup(model.structure, share_for=model, threads=1)
    layouts = [backup.layout, *(part.layout for part in backup.rotations)]
    assert len(layouts) > 2
    assert backup.roundings == max(map(backup._count_roundings, layouts))


def test_not_where_it_costs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learned tables: every action matters to every machine. Grids: a rotation leaves variables
    open. And not where there is no memory for it."""
    monkeypatch.setattr(tuning, "SPLIT_SECONDS", 0.0)
    model = fmdp.problem("circle:16,dynamics=guestrin")
    rng = np.random.default_rng(0)
    rows = [rng.dirichlet([1, 1], len(table)) for table in model.transitions]
    learned = FactoredMDP(model.structure, rows, model.rewards)
    assert not Backup(model.structure, share_for=learned, threads=1).rotations
    grid = fmdp.problem("grid:16,dynamics=talebi")
    assert not Backup(grid.structure, share_for=grid, threads=1).rotations
    ring = fmdp.problem("circle:20,dynamics=guestrin")
    layout = Backup(ring.structure, share_for=ring, threads=1).layout
    found = split_layout(layout, 1, 1 << 40)
    assert len(found) > 1
    assert split_layout(layout, 1, bytes_of(found, layout, 1)) != ()
    assert split_layout(layout, 1, 1000) == ()


def test_tiles_of_any_shape() -> None:
    for rows, columns in ((1, 1), (1, 70), (33, 64), (100, 3), (64, 65)):
        h = np.random.default_rng(2).normal(size=rows * columns)
        out = np.empty_like(h)
        for piece in range(tiles(rows)):
            transpose(h, rows, columns, piece, piece + 1, out)
        assert (out.reshape(columns, rows) == h.reshape(rows, columns).T).all()
        larger = h - 1.0
        larger[::2] += 2.0
        expected = np.maximum(h, larger)
        for piece in range(tiles(rows)):
            take_larger(out, rows, columns, piece, piece + 1, larger)
        assert (larger == expected).all()
