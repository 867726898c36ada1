"""Observations come back as a log, and move to another model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.errors import FileProblem, InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.service.observations import export_log, migrate, observations


def pump(parents: list[str], values: tuple[str, ...] = ("good", "bad"), **more: Any) -> FactoredMDP:
    given: dict[str, Any] = {
        "states": {"pump": list(values), "price": [10, 20]},
        "actions": {"crew": ["rest", "fix"]},
        "parents": {"pump": parents, "price": []},
        "transition": lambda n, v: [0.5, 0.5] if n == "price" else [1 / len(values)] * len(values),
        "reward": {"flow": (["pump"], lambda v: v["pump"] == "good")},
    }
    return FactoredMDP.from_functions(**(given | more))


def served(model: FactoredMDP, folder: Path, steps: int, every: int = 7) -> fmdp.Run:
    """Serve a random run in three processes, with a snapshot every seven events."""
    run = fmdp.simulate(model, "random", steps, seed=1, record=True, regret=False)
    trajectory = run.trajectory
    assert trajectory is not None
    done = 0
    for part in (steps // 3, steps // 2, steps):
        with fmdp.Service(model, "psrl", folder, snapshot_every=every) as service:
            for t in range(done, part):
                state = trajectory.states[t].tolist()
                service.act(state)
                service.observe(
                    state,
                    trajectory.actions[t].tolist(),
                    trajectory.rewards[t].tolist(),
                    trajectory.states[t + 1].tolist(),
                )
        done = part
    return run


def test_a_log_that_fit_reads(tmp_path: Path) -> None:
    model = pump(["pump", "crew"])
    run = served(model, tmp_path / "live", 60)
    stored = export_log(tmp_path / "live", tmp_path / "log.csv")
    assert (len(stored.steps), stored.missing) == (60, 0)
    assert (tmp_path / "log.csv").read_text().splitlines()[0] == (
        "pump,price,crew,flow,next_pump,next_price"
    )
    fitted = fmdp.fit(tmp_path / "log.csv", model)
    assert fitted.steps == 60
    assert fitted.notes == ()
    agent = fmdp.PSRL().start(model, 0)
    fmdp.warm(agent, tmp_path / "log.csv")
    assert run.trajectory is not None
    with fmdp.Service(model, "psrl", tmp_path / "live", snapshot_every=7) as service:
        for one, other in zip(
            service.agent.statistics.counts, agent.statistics.counts, strict=True
        ):
            assert np.array_equal(one, other)


def test_tables_of_a_model_may_change_and_its_structure_may_not(tmp_path: Path) -> None:
    model = pump(["pump", "crew"])
    served(model, tmp_path / "live", 20)
    changed = model.with_reward("flow", [0.5, 0.25])
    with fmdp.Service(changed, "psrl", tmp_path / "live") as service:
        assert service.agent.steps == 20
    for other, said in (
        (pump(["pump"]), "its scope of 'pump' is pump, crew; got pump "),
        (
            pump(["pump", "crew"], ("good", "bad", "gone")),
            "its values of 'pump' are good, bad; got",
        ),
        (model.with_range("flow", 0, 2), r"its range of 'flow' is \[0.0, 1.0\]; got \[0.0, 2.0\]"),
    ):
        with pytest.raises(InvalidParameter, match=said):
            fmdp.Service(other, "psrl", tmp_path / "live")


def test_observations_move_to_other_scopes_and_values(tmp_path: Path) -> None:
    model = pump(["pump", "crew"])
    served(model, tmp_path / "old", 30)
    before = {path.name for path in (tmp_path / "old").iterdir()}
    smaller = pump(["pump"], ("gone", "bad", "good"))
    with fmdp.Service(smaller, "psrl", tmp_path / "new") as service:
        lines = migrate(service, tmp_path / "old")
        assert lines[0] == "kept 30 of 30 observations"
        counts = service.agent.statistics.transition_counts(0)
        assert (counts.sum(), counts[0].sum(), counts[:, 0].sum()) == (30, 0, 0)
        with pytest.raises(InvalidParameter, match="has 30 observations; must be a new folder"):
            migrate(service, tmp_path / "old")
    assert {path.name for path in (tmp_path / "old").iterdir()} == before
    with fmdp.Service(smaller, "psrl", tmp_path / "new") as service:
        assert service.agent.steps == 30
    fewer = pump(["pump"], reward={}, states={"pump": ["good", "broken"], "price": [10, 20]})
    with fmdp.Service(fewer, "psrl", tmp_path / "fewer") as service:
        text = " ".join(migrate(service, tmp_path / "old"))
    assert "dropped reward 'flow'" in text
    assert "observations: " in text
    more = pump(["pump"], actions={"crew": ["rest", "fix"], "boss": ["in", "out"]})
    said = "have no action 'boss', which the model has"
    with (
        fmdp.Service(more, "psrl", tmp_path / "more") as service,
        pytest.raises(InvalidParameter, match=said),
    ):
        migrate(service, tmp_path / "old")


def test_what_is_no_folder_of_a_service(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="no such folder"):
        observations(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileProblem):
        observations(tmp_path)
    model = pump(["pump"])
    served(model, tmp_path / "live", 40)
    (tmp_path / "live" / "log-0").unlink()
    assert export_log(tmp_path / "live", tmp_path / "log.csv").missing > 0
    logs = sorted((tmp_path / "live").glob("log-*"), key=lambda path: int(path.name[4:]))
    logs[1].unlink()
    with pytest.raises(FileProblem, match="must begin after"):
        observations(tmp_path / "live")


def test_the_status_says_why_the_planner(tmp_path: Path) -> None:
    model = pump(["pump"])
    with fmdp.Service(model, "psrl", tmp_path / "a") as service:
        assert service.status()["planner"] == "exact"
        assert "default" in service.status()["planner_reason"]
    with fmdp.Service(model, fmdp.PSRL(planner=fmdp.Exact()), tmp_path / "b") as service:
        assert service.status()["planner_reason"] == "it was given"
    with fmdp.Service(model, "random", tmp_path / "c") as service:
        assert service.status()["planner_reason"] is None
