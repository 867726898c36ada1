"""A service goes on to the bit after any end, and its folder is its own."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp import Service
from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.model import Forbidden
from fmdp.service import service as module
from fmdp.simulation import Environment

MODEL = fmdp.problem("circle:3")
STEPS = 60

LEARNERS: dict[str, Any] = {
    "psrl": "psrl",
    "fsrl": "fsrl",
    "dorl by linear programs": fmdp.DORL(planner="alp"),
    "frmax": "frmax",
    "random": "random",
    "tsde": fmdp.PSRL(episodes="tsde"),
    "unknown scopes": "default,scopes=unknown",
}


class Walk:
    """The same luck for every service: a client that asks and tells, now and then skips asking."""

    def __init__(self, steps: int = STEPS, seed: int = 3) -> None:
        self.environment = Environment(MODEL, np.random.default_rng(seed))
        self.luck = random.Random(seed)
        self.left = steps

    def step(self, service: Service) -> None:
        state = self.environment.state
        asks = self.luck.random() < 0.8
        own = self.luck.randrange(4)
        action = service.act(state) if asks else (own,)
        assert isinstance(action, tuple)
        rewards, next_state = self.environment.step(action)
        self.left -= 1
        service.observe(state, action, rewards, next_state)
        if self.luck.random() < 0.25:
            service.act(next_state)  # answered, and perhaps killed before it is told


def final(directory: Path) -> bytes:
    """The bytes of the one snapshot that is there at rest."""
    (path,) = directory.glob("agent-*.npz")
    return path.read_bytes()


def undisturbed(learner: Any, directory: Path) -> bytes:
    walk = Walk()
    with Service(MODEL, learner, directory, seed=5) as service:
        while walk.left:
            walk.step(service)
    return final(directory)


@pytest.mark.parametrize("name", LEARNERS)
def test_killed_after_every_step_it_ends_as_one_that_was_not(name: str, tmp_path: Path) -> None:
    """A kill is a copy of the folder: what the next process finds."""
    learner = LEARNERS[name]
    expected = undisturbed(learner, tmp_path / "calm")
    walk, place = Walk(), tmp_path / "0"
    for number in range(1, STEPS + 1):
        with_few = 7 if number % 3 else 100_000
        service = Service(MODEL, learner, place, seed=5, snapshot_every=with_few)
        walk.step(service)
        killed = tmp_path / str(number)
        shutil.copytree(place, killed)
        service.close(snapshot=False)
        shutil.rmtree(place)
        place = killed
    Service(MODEL, learner, place, seed=5).close()
    assert final(place) == expected


def test_an_answer_is_the_same_after_a_kill(tmp_path: Path) -> None:
    service = Service(MODEL, "random", tmp_path / "a", seed=1)
    for _ in range(10):
        action = service.act((1, 1, 0))
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        with Service(MODEL, "random", tmp_path / "b", seed=1) as other:
            assert other.act((1, 1, 0)) == action
        shutil.rmtree(tmp_path / "b")
        service.observe((1, 1, 0), action, (1, 1, 0), (1, 1, 0))
    service.close()


def test_acts_that_decide_nothing_are_no_events(tmp_path: Path) -> None:
    with Service(MODEL, "psrl,episodes=fixed,length=100", tmp_path / "a") as service:
        for _ in range(20):
            service.act((1, 1, 1))
        assert service.status()["events"] == 1


def test_names_are_answered_by_names(tmp_path: Path) -> None:
    s = MODEL.structure
    with Service(MODEL, "psrl", tmp_path / "a") as service:
        state = s.name_state((1, 0, 1))
        action = service.act(state)
        assert isinstance(action, dict)
        assert s.name_action(s.check_action(action)) == action
        assert service.act((1, 0, 1)) == s.check_action(action)
        rewards = dict(zip(s.reward_names, (1.0, 0.0, 1.0), strict=True))
        assert service.observe(state, action, rewards, state) == 1


BAD_STEPS: dict[str, tuple[tuple[Any, ...], str]] = {
    "state": (((1, 2, 0), (0,), (1, 1, 0), (1, 1, 0)), "machine_1"),
    "action": (((1, 1, 0), (9,), (1, 1, 0), (1, 1, 0)), "must be in 0..3"),
    "next state": (((1, 1, 0), (0,), (1, 1, 0), (1, 1)), "next state"),
    "few rewards": (((1, 1, 0), (0,), (1, 1), (1, 1, 0)), "must be 3 numbers"),
    "a reward out of its range": (((1, 1, 0), (0,), (1, 7, 0), (1, 1, 0)), "7"),
    "no number": (((1, 1, 0), (0,), (1, None, 0), (1, 1, 0)), "must be a number"),
    "not a number": (((1, 1, 0), (0,), (1, float("nan"), 0), (1, 1, 0)), "nan"),
    "true": (((1, 1, 0), (0,), (1, True, 0), (1, 1, 0)), "must be a number"),
    "a name that is none": (((1, 1, 0), (0,), {"works": 1}, (1, 1, 0)), "no reward is called"),
    "a name too few": (((1, 1, 0), (0,), {}, (1, 1, 0)), "rewards lack"),
}


@pytest.mark.parametrize("what", BAD_STEPS)
def test_a_step_that_cannot_be_leaves_no_trace(what: str, tmp_path: Path) -> None:
    step, said = BAD_STEPS[what]
    with Service(MODEL, "psrl", tmp_path / "a") as service:
        before = service.status()
        with pytest.raises(InvalidParameter, match=said):
            service.observe(*step)
        assert service.status() == before
        assert service.observe((1, 1, 0), (0,), (1, 1, 0), (1, 1, 0)) == 1


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"model": fmdp.problem("circle:4")}, "another model"),
        ({"learner": "dorl"}, "another learner: it has psrl; got dorl"),
        ({"learner": "psrl,c=1"}, "other settings of the learner: it has c=0.75; got c=1"),
        ({"learner": fmdp.PSRL(planner="alp")}, "another planner: it has none; got alp"),
        ({"seed": 1}, "another seed: it has 0; got 1"),
    ],
)
def test_a_folder_remembers_what_it_serves(
    others: dict[str, Any], said: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"model": MODEL, "learner": "psrl", "seed": 0}
    with Service(**given, directory=tmp_path / "a") as service:
        service.observe((1, 1, 0), (0,), (1, 1, 0), (1, 1, 0))
    with pytest.raises(InvalidParameter, match=said):
        Service(**{**given, **others}, directory=tmp_path / "a")
    with Service(**given, directory=tmp_path / "a") as service:
        assert service.status()["observed"] == 1


def test_two_in_one_folder_are_refused(tmp_path: Path) -> None:
    with (
        Service(MODEL, "psrl", tmp_path / "a"),
        pytest.raises(FileProblem, match="another process serves there"),
    ):
        Service(MODEL, "psrl", tmp_path / "a")
    Service(MODEL, "psrl", tmp_path / "a").close()


STEP = ((1, 1, 0), (0,), (1, 1, 0), (1, 1, 0))


def test_a_folder_that_is_renamed_is_served_on_and_another_may_take_its_name(
    tmp_path: Path,
) -> None:
    """Snapshots of the first go to its own folder, and remove nothing from the second."""
    live, old = tmp_path / "live", tmp_path / "old"
    first = Service(MODEL, "psrl", live, snapshot_every=5)
    first.observe(*STEP)
    live.rename(old)
    second = Service(MODEL, "psrl", live, snapshot_every=1000)
    for number in range(12):
        assert first.observe(*STEP) == number + 2
        assert second.observe(*STEP) == number + 1
    with pytest.raises(FileProblem, match="another process serves there"):
        Service(MODEL, "psrl", old)
    first.close()
    second.close(snapshot=False)
    for folder, known in ((old, 13), (live, 12)):
        with Service(MODEL, "psrl", folder) as again:
            assert again.status()["observed"] == known


@pytest.mark.parametrize("how", ["removed", "one file", "replaced", "moved out", "swapped"])
def test_nothing_is_acknowledged_into_files_that_are_not_in_the_folder(
    how: str, tmp_path: Path
) -> None:
    live = tmp_path / "live"
    service = Service(MODEL, "psrl", live)
    for _ in range(3):
        service.observe(*STEP)
    shutil.copytree(live, tmp_path / "copy")
    if how == "removed":
        shutil.rmtree(live)
    elif how == "one file":
        (live / "service.json").unlink()
    elif how == "replaced":
        (tmp_path / "copy" / "journal-0").replace(live / "journal-0")
    elif how == "moved out":
        (live / "agent-0.npz").rename(tmp_path / "agent-0.npz")
    else:
        shutil.rmtree(live)
        (tmp_path / "copy").rename(live)
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(FileProblem, match=r"live/.* was removed or replaced"):
        service.observe(*STEP)
    with pytest.raises(FileProblem, match="was removed or replaced"):
        service.observe(*STEP)
    service.close()
    if how in ("removed", "swapped"):
        assert kept == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["service.json", "agent-1.npz", "journal-1"])
def test_a_file_that_is_removed_during_a_snapshot_is_noticed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    """The files that a snapshot writes are known from then on, not as they are found later."""
    service = Service(MODEL, "psrl", tmp_path / "a", snapshot_every=1, say=told.append)
    real = Service._expect_files

    def expect(self: Service) -> None:
        (tmp_path / "a" / name).unlink()
        real(self)

    with monkeypatch.context() as patch:
        patch.setattr(Service, "_expect_files", expect)
        assert service.observe(*STEP) == 1
    for _ in range(2):
        with pytest.raises(FileProblem, match=f"{name}: was removed or replaced"):
            service.observe(*STEP)
    service.close()
    assert told == []


def test_a_removal_that_a_snapshot_notices_ends_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    """The observation before it was acknowledged; the next is refused with the reason."""
    service = Service(MODEL, "psrl", tmp_path / "a", snapshot_every=1, say=told.append)
    real = Service.tidy

    def tidy(self: Service) -> None:
        shutil.rmtree(tmp_path / "a")
        real(self)

    with monkeypatch.context() as patch:
        patch.setattr(Service, "tidy", tidy)
        assert service.observe(*STEP) == 1
    with pytest.raises(FileProblem, match="was removed or replaced"):
        service.observe(*STEP)
    service.close()
    assert told == []


def test_the_end_of_a_service_whose_folder_is_gone_is_an_error(tmp_path: Path) -> None:
    service = Service(MODEL, "psrl", tmp_path / "a")
    service.observe(*STEP)
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(FileProblem, match="was removed or replaced"):
        service.close()
    with pytest.raises(FileProblem, match="closed"):
        service.act((1, 1, 1))


def test_a_folder_of_before_with_its_lock_file_is_resumed(tmp_path: Path) -> None:
    with Service(MODEL, "psrl", tmp_path / "a") as service:
        service.observe(*STEP)
    (tmp_path / "a" / "lock").touch()
    with Service(MODEL, "psrl", tmp_path / "a") as service:
        assert service.status()["observed"] == 1


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(FileProblem, match=r"holds 'thesis.tex' and no service.json"):
        Service(MODEL, "psrl", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"thesis.tex"}


@pytest.mark.parametrize("kept", [[], ["journal-0"], ["agent-0.npz", "journal-0"]])
def test_a_beginning_that_was_cut_off_begins_again(kept: list[str], tmp_path: Path) -> None:
    Service(MODEL, "psrl", tmp_path / "a").close()
    for path in (tmp_path / "a").iterdir():
        if path.name not in kept:
            path.unlink()
    with Service(MODEL, "psrl", tmp_path / "a") as service:
        assert service.status()["observed"] == 0


@pytest.fixture
def told() -> list[str]:
    return []


def full_disk(*_: Any) -> int:
    raise OSError(28, "No space left on device")


def test_on_a_full_disk_nothing_is_acknowledged_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    expected = undisturbed("psrl", tmp_path / "calm")
    walk = Walk()
    luck = random.Random(0)
    with Service(MODEL, "psrl", tmp_path / "a", seed=5, say=told.append) as service:
        while walk.left:
            if luck.random() < 0.5:
                before = service.status()["observed"]
                with monkeypatch.context() as patch:
                    patch.setattr(os, "pwrite", full_disk)
                    for _ in range(2):
                        with pytest.raises(FileProblem, match="No space left"):
                            service.observe((1, 1, 0), (0,), (1, 1, 0), (1, 1, 0))
                assert service.status()["observed"] == before
            walk.step(service)
    assert final(tmp_path / "a") == expected


def test_an_act_that_could_not_be_written_is_written_before_the_next_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(MODEL, "psrl", tmp_path / "a")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full_disk)
        with pytest.raises(FileProblem, match="No space left"):
            service.act((1, 1, 0))
    service.observe((1, 1, 0), (0,), (1, 1, 0), (1, 1, 0))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    service.close()
    Service(MODEL, "psrl", tmp_path / "b").close()
    assert final(tmp_path / "b") == final(tmp_path / "a")


def test_a_snapshot_that_cannot_be_made_is_said_and_the_journal_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    expected = undisturbed("psrl", tmp_path / "calm")
    walk = Walk()

    def refuse(*_: Any) -> None:
        raise FileProblem("no room")

    with Service(
        MODEL, "psrl", tmp_path / "a", seed=5, snapshot_every=5, say=told.append
    ) as service:
        monkeypatch.setattr(module, "agent_content", refuse)
        while walk.left:
            walk.step(service)
    assert told[0].startswith("no snapshot, so the journal grows")
    assert len(told) < 8
    assert {path.name for path in (tmp_path / "a").iterdir()} == {
        *("agent-0.npz", "journal-0", "service.json")
    }
    monkeypatch.undo()
    Service(MODEL, "psrl", tmp_path / "a", seed=5).close()
    assert final(tmp_path / "a") == expected


@pytest.mark.parametrize("moment", ["create", "save", "unlink"])
def test_a_kill_in_the_middle_of_a_snapshot(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder as it is just before each step of a snapshot is a whole service."""
    expected = undisturbed("psrl", tmp_path / "calm")
    walk, killed = Walk(), tmp_path / "killed"
    place = {
        "create": (module.Journal, "create"),
        "save": (module, "agent_content"),
        "unlink": (Service, "_clear_old"),
    }[moment]
    real = getattr(*place)

    def copied(*arguments: Any) -> Any:
        shutil.copytree(tmp_path / "a", killed)
        monkeypatch.undo()
        return real(*arguments)

    service = Service(MODEL, "psrl", tmp_path / "a", seed=5)
    for _ in range(20):
        walk.step(service)
    monkeypatch.setattr(*place, copied)
    service.close()
    assert killed.exists()
    with Service(MODEL, "psrl", killed, seed=5) as service:
        while walk.left:
            walk.step(service)
    assert final(killed) == expected
    kinds = sorted(path.name.partition("-")[0] for path in killed.iterdir())
    assert [kind for kind in kinds if kind != "log"] == ["agent", "journal", "service.json"]


def test_an_interrupt_in_the_middle_of_anything_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed("psrl", tmp_path / "calm")
    walk = Walk()
    luck = random.Random(4)

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with Service(MODEL, "psrl", tmp_path / "a", seed=5) as service:
        while walk.left:
            if luck.random() < 0.4:
                with monkeypatch.context() as patch:
                    patch.setattr(fmdp.Agent, "plan", interrupted)
                    if service.agent.changed_by_act:
                        with pytest.raises(KeyboardInterrupt):
                            service.act((1, 1, 1))
            walk.step(service)
    assert final(tmp_path / "a") == expected


class Fragile(fmdp.PSRL):
    """Fails while it looks on, at the third step."""

    name = "fragile"

    def watch(self, agent: fmdp.Agent, *step: Any) -> None:
        if agent.steps == 3:
            raise ValueError("of the user's own")


def test_an_observation_that_a_learner_fails_at_did_not_happen(tmp_path: Path) -> None:
    fmdp.register(Fragile)
    try:
        with Service(MODEL, Fragile(), tmp_path / "a") as service:
            for _ in range(2):
                service.observe((1, 1, 0), (0,), (1, 1, 0), (1, 1, 0))
            for _ in range(2):
                with pytest.raises(ValueError, match="of the user's own"):
                    service.observe((1, 1, 0), (0,), (1, 1, 0), (1, 1, 0))
            service.act((1, 1, 0))
            assert service.status()["observed"] == 2
    finally:
        from fmdp.learning.registry import LEARNERS as known

        known.forget("fragile")


def test_plans_by_the_clock_are_kept_by_snapshots(tmp_path: Path) -> None:
    """They cannot be made again, so what was decided is on disk before the answer."""
    learner = fmdp.PSRL(planner="exact,max_seconds=100")
    service = Service(MODEL, learner, tmp_path / "a")
    action = service.act((1, 1, 0))
    assert service.status() | {"snapshot": 0, "events": 0} == service.status()
    service.observe((1, 1, 0), action, (1, 1, 0), (1, 1, 0))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with Service(MODEL, learner, tmp_path / "b") as other:
        assert other.agent.planner_calls == 1
        assert not other.agent.changed_by_act or other.agent.steps == 1
    service.close()


def test_damage_is_one_line(tmp_path: Path) -> None:
    service = Service(MODEL, "psrl", tmp_path / "a")
    for _ in range(5):
        service.observe((1, 1, 0), (0,), (1, 1, 0), (1, 1, 0))
    service.close(snapshot=False)
    sound = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    luck = random.Random(1)
    for number in range(200):
        name = luck.choice(["journal-0", "agent-0.npz", "service.json"])
        content = bytearray(sound[name])
        place = luck.randrange(len(content))
        content[place] ^= 1 << luck.randrange(8)
        (tmp_path / "a" / name).write_bytes(content)
        said = str(tmp_path / "a")
        try:
            with Service(MODEL, "psrl", tmp_path / "a", say=lambda _: None) as found:
                # What nobody reads may be changed, such as a date in an archive.
                assert found.status()["observed"] == 5, (number, name, place)
        except FmdpError as error:
            said = str(error)
        assert str(tmp_path / "a") in said, (number, said)
        for path in (tmp_path / "a").iterdir():
            path.unlink()
        for other, whole in sound.items():
            (tmp_path / "a" / other).write_bytes(whole)


def test_damage_of_what_is_served_is_told_from_other_settings(tmp_path: Path) -> None:
    Service(MODEL, "psrl", tmp_path / "a", seed=3).close()
    path = tmp_path / "a" / "service.json"
    sound = path.read_text()
    for old, new in (('"seed": 3', '"seed": 7'), ('"settings"', '"setting"'), ("psrl", "psrm")):
        path.write_text(sound.replace(old, new))
        with pytest.raises(FileProblem, match=r"service\.json: is damaged"):
            Service(MODEL, "psrl", tmp_path / "a", seed=3)
    known = json.loads(sound)
    del known["crc32"]  # a folder of before there was one
    path.write_text(json.dumps(known))
    Service(MODEL, "psrl", tmp_path / "a", seed=3).close()


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    service = Service(MODEL, "psrl", tmp_path / "a")
    service.observe((1, 1, 0), (0,), (1, 1, 0), (1, 1, 0))
    service.close()
    journal = next((tmp_path / "a").glob("journal-*"))
    content = journal.read_bytes()
    journal.unlink()
    with pytest.raises(FileProblem, match="no such file; must be the journal"):
        Service(MODEL, "psrl", tmp_path / "a")
    journal.write_bytes(content)
    (tmp_path / "a" / "service.json").unlink()
    with pytest.raises(FileProblem, match=r"no service.json"):
        Service(MODEL, "psrl", tmp_path / "a")


def test_a_closed_service_says_so(tmp_path: Path) -> None:
    service = Service(MODEL, "psrl", tmp_path / "a")
    service.close()
    service.close()
    with pytest.raises(FileProblem, match="closed"):
        service.act((1, 1, 1))
    with pytest.raises(FileProblem, match="closed"):
        service.commit()


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    with pytest.raises(FileProblem, match="is no folder; must be one"):
        Service(MODEL, "psrl", tmp_path / "a")
    with pytest.raises(FileProblem, match="cannot be written"):
        Service(MODEL, "psrl", tmp_path / ("x" * 300))


def test_what_a_structure_knows_is_kept(tmp_path: Path) -> None:
    """Alike rows are counted together after a restart too, and a forbidden action is refused."""
    alike = fmdp.problem("circle:3,dynamics=guestrin,alike=machines")
    with Service(alike, "psrl", tmp_path / "a") as service:
        service.observe((1, 1, 0), service.act((1, 1, 0)), (1, 1, 0), (1, 1, 1))  # type: ignore[arg-type]
    with Service(alike, "psrl", tmp_path / "a") as service:
        assert service.agent.structure.alike == alike.structure.alike
    s = MODEL.structure
    forbidding = fmdp.FactoredMDP(
        s.with_factors(
            s.transition_scopes,
            s.reward_scopes,
            s.reward_ranges,
            s.reward_names,
            constraints=(Forbidden((0, 3), np.arange(8) == 4, "let be what works"),),
        ),
        MODEL.transitions,
        MODEL.rewards,
    )
    with Service(forbidding, "psrl", tmp_path / "b") as service:
        with pytest.raises(InvalidParameter, match="let be what works"):
            service.observe((1, 1, 0), (0,), (1, 1, 0), (1, 1, 1))
        assert service.observe((0, 1, 0), (0,), (0, 1, 0), (1, 1, 1)) == 1
    with Service(forbidding, "psrl", tmp_path / "b") as service:
        assert service.agent.structure == forbidding.structure
