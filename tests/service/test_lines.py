"""The protocol: one answer a line, errors that change nothing, answers after the fsync."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp import Service
from fmdp.errors import FileProblem
from fmdp.service import journal as journal_module
from fmdp.service import lines
from fmdp.service.lines import MOST_BYTES, MOST_ERROR, batches, serve

MODEL = fmdp.problem("circle:3")
STEP = {"state": [1, 1, 0], "action": [0], "rewards": [1, 1, 0], "next_state": [1, 1, 1]}


def answers(service: Service, *given: Any, batch: int = 1000) -> list[Any]:
    """What comes of these lines: texts and bytes as they are, anything else as JSON."""
    out: list[bytes] = []
    with tempfile.TemporaryFile(buffering=0) as file:
        for one in given:
            text = one if isinstance(one, str | bytes) else json.dumps(one)
            file.write((text if isinstance(text, bytes) else text.encode()) + b"\n")
        file.seek(0)
        serve(service, file.fileno(), out.append, batch=batch)
    return [json.loads(line) for line in b"".join(out).splitlines()]


@pytest.fixture
def service(tmp_path: Path) -> Any:
    with Service(MODEL, "psrl", tmp_path / "a") as made:
        yield made


def test_questions_observations_and_both(service: Service) -> None:
    s = MODEL.structure
    by_name = {
        "state": s.name_state((1, 1, 0)),
        "action": s.name_action((0,)),
        "rewards": dict(zip(s.reward_names, (1, 1, 0), strict=True)),
        "next_state": s.name_state((1, 1, 1)),
    }
    text = ",".join(f"{name}={value}" for name, value in by_name["state"].items())
    found = answers(
        service,
        {"state": [1, 1, 0]},
        {"state": by_name["state"], "id": 7},
        {"state": text},
        {"observe": STEP},
        {"observe": by_name, "id": {"any": ["thing", None]}},
        {"observe": STEP, "state": [1, 1, 1]},
        {"status": True},
    )
    action = service.agent.act((1, 1, 0))
    assert found[0].keys() == {"action"}
    named = s.name_action(s.check_action(found[0]["action"]))
    assert found[1] == {"id": 7, "action": named}
    assert found[2] == {"action": named}
    assert found[3] == {"observed": 1}
    assert found[4] == {"id": {"any": ["thing", None]}, "observed": 2}
    assert found[5].keys() == {"observed", "action"}
    assert found[6]["status"]["observed"] == 3
    assert len(action) == 1


BAD: dict[str, tuple[Any, str]] = {
    "no JSON": ("state=1", "not JSON"),
    "nothing": ("", "not JSON"),
    "cut short": ('{"state": [1, 1', "not JSON"),
    "two objects": ('{"status": true} {"status": true}', "not JSON"),
    "no object": ([1, 2], "must be a JSON object"),
    "no UTF-8": (b'{"state": "\xff"}', "not UTF-8"),
    "UTF-16": ('{"status": true}'.encode("utf-16"), "not"),
    "NaN": ('{"state": [NaN, 1, 1]}', "number NaN is not finite"),
    "infinity": ('{"state": [1, -Infinity, 1]}', "number -Infinity is not finite"),
    "too large a number": (
        json.dumps({"observe": STEP}).replace("[1, 1, 0]", "[1e999, 1, 0]"),
        "1e999",
    ),
    "a number of thousands of digits": ('{"state": [' + "9" * 6000 + "]}", "6,000 characters"),
    "an id of a hundred thousand digits": ('{"id": ' + "9" * 100_000 + "}", "100,000 characters"),
    "an infinite id": ('{"id": 1e999, "status": true}', "1e999 is not finite"),
    "an id that is NaN": ('{"id": NaN, "status": true}', "NaN is not finite"),
    "a long id": ({"id": "x" * 1_000_000, "status": True}, "id has 1,000,002 characters"),
    "a long name": ({"x" * 1_000_000: 1}, "a line has no key"),
    "a long list": ({"state": [1] * 300_000}, "..."),
    "a lone surrogate": ('{"state": "\\ud800"}', "must be name=value"),
    "zero bytes": (b"\0" * 1000, "not JSON"),
    "a name twice among many": (
        "{" + ",".join(f'"{number % 89_999}": 1' for number in range(90_000)) + "}",
        "key '0' stands twice",
    ),
    "a repeated key": ('{"id": 1, "id": 2, "status": true}', "stands twice"),
    "an unknown key": ({"stat": True}, 'did you mean "state"'),
    "an empty object": ({}, "must have a state, an observe or a status"),
    "an id alone": ({"id": 3}, "must have a state, an observe or a status"),
    "a status that is no question": ({"status": 1}, "status must be true"),
    "nested": ("[" * 200_000, "nested too deeply"),
    "nested a little less": ('{"id":' + "[" * 99 + "]" * 99 + "}", "must have a state"),
    "too long": ("x" * (MOST_BYTES + 1), "too long"),
    "far too long": ("x" * (3 * MOST_BYTES), "too long"),
    "a state that is no state": ({"state": [1, 1, 2]}, "must be in 0..1"),
    "a state of another shape": ({"state": 5}, "must be an object of names"),
    "a short state": ({"state": [1, 1]}, "must have 3"),
    "an unknown variable": ({"state": {"machine_9": "0"}}, "machine_9"),
    "no step": ({"observe": 5}, "observe must be an object"),
    "a step with a part missing": ({"observe": {"state": [1, 1, 0]}}, "lacks 'action'"),
    "a step with a part too much": ({"observe": {**STEP, "reward": 1}}, 'did you mean "rewards"'),
    "rewards that are words": ({"observe": {**STEP, "rewards": "good"}}, "must be 3 numbers"),
    "rewards out of range": ({"observe": {**STEP, "rewards": [1, 1, 5]}}, "5"),
    "an action by a wrong name": ({"observe": {**STEP, "action": {"a": "x"}}}, '"a"'),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_line_is_one_error_and_changes_nothing(what: str, service: Service) -> None:
    line, said = BAD[what]
    before = service.status()
    first, bad, *rest = answers(service, {"status": True}, line, {"observe": STEP})
    assert first == {"status": before}
    assert bad.keys() <= {"error", "id"}
    assert said in bad["error"]
    assert "\n" not in bad["error"]
    assert len(bad["error"]) <= MOST_ERROR
    assert rest == [{"observed": 1}]


def test_an_observation_counts_even_where_the_question_beside_it_is_none(service: Service) -> None:
    (found,) = answers(service, {"observe": STEP, "state": [7, 7, 7], "id": 1})
    assert found["observed"] == 1
    assert found["id"] == 1
    assert "must be in 0..1" in found["error"]


def test_an_id_comes_back(service: Service) -> None:
    for given in (None, 0, -1.5, "x" * 998, [[1], {"a": "\ud800"}]):
        assert answers(service, {"id": given, "state": [1, 1, 1]})[0]["id"] == given


def test_a_line_without_an_end_is_answered_once_and_takes_little_memory(service: Service) -> None:
    """The line after 200 MB without a newline is read as usual."""
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb", buffering=0) as file:
            for _ in range(200):
                file.write(b"{" * (1 << 20))
            file.write(b'\n{"observe": %s}' % json.dumps(STEP).encode())

    writer = threading.Thread(target=write)
    writer.start()
    out: list[bytes] = []
    tracemalloc.start()
    serve(service, reading, out.append)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    os.close(reading)
    writer.join()
    too_long, observed = map(json.loads, b"".join(out).splitlines())
    assert "too long" in too_long["error"]
    assert observed == {"observed": 1}
    assert peak < 8 << 20


def test_a_source_that_cannot_be_read_is_one_error(service: Service, tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(FileProblem, match="cannot read the lines"):
        serve(service, descriptor, lambda _: None)
    os.close(descriptor)


@pytest.mark.parametrize("size", [1, 3, 1 << 16])
def test_lines_are_found_whatever_a_read_brings(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_READ", size)
    monkeypatch.setattr(lines, "MOST_BYTES", 10)
    path = tmp_path / "lines"
    path.write_bytes(b"one\n\n0123456789\n01234567890\nlong long long long\ntwo\nlast")
    descriptor = os.open(path, os.O_RDONLY)
    found = [line for batch in batches(descriptor, 2) for line in batch]
    os.close(descriptor)
    assert found == [b"one", b"", b"0123456789", None, None, b"two", b"last"]


def test_lines_that_wait_together_share_one_fsync(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real = journal_module._synchronise
    monkeypatch.setattr(
        journal_module, "_synchronise", lambda descriptor: (calls.append(1), real(descriptor))
    )
    assert answers(service, *[{"observe": STEP}] * 50)[-1] == {"observed": 50}
    together = len(calls)
    answers(service, *[{"observe": STEP}] * 50, batch=1)
    assert (together, len(calls) - together) == (1, 50)


def test_no_answer_leaves_before_its_fsync(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every answer that says observed, the line is in the journal and synchronised."""
    journal = next(service.directory.glob("journal-*"))
    durable = [0]
    real = journal_module._synchronise

    def sync(descriptor: int) -> None:
        real(descriptor)
        durable[0] = journal.read_bytes().count(b'{"observe"')

    monkeypatch.setattr(journal_module, "_synchronise", sync)
    reading, writing = os.pipe()
    os.write(writing, b"".join(json.dumps({"observe": STEP}).encode() + b"\n" for _ in range(90)))
    os.close(writing)
    seen = []

    def write(data: bytes) -> None:
        seen.append(json.loads(data.splitlines()[-1])["observed"])
        assert seen[-1] <= durable[0]

    serve(service, reading, write, batch=7)
    os.close(reading)
    assert seen[-1] == 90


def test_whoever_waits_does_not_wait_for_a_plan(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    out: list[bytes] = []
    real = fmdp.Agent.plan

    def plan(*arguments: Any, **others: Any) -> Any:
        assert b"".join(out).count(b"observed") == 2
        return real(*arguments, **others)

    monkeypatch.setattr(fmdp.Agent, "plan", plan)
    reading, writing = os.pipe()
    for one in ({"observe": STEP}, {"observe": STEP}, {"state": [1, 1, 1]}):
        os.write(writing, json.dumps(one).encode() + b"\n")
    os.close(writing)
    serve(service, reading, out.append)
    os.close(reading)
    assert len(b"".join(out).splitlines()) == 3


def test_a_full_disk_is_an_error_a_line_and_goes_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    writes = [0]

    def sometimes(descriptor: int, data: bytes, place: int) -> int:
        writes[0] += place > 0
        if place > 0 and writes[0] % 2:
            raise OSError(28, "No space left on device")
        return real(descriptor, data, place)

    monkeypatch.setattr(os, "pwrite", sometimes)
    found = answers(service, *[{"observe": STEP}] * 6)
    assert [one.get("observed") for one in found] == [None, 1, None, 2, None, 3]
    assert all("No space left" in one["error"] for one in found[::2])


def test_after_a_failed_fsync_nothing_is_acknowledged_and_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(MODEL, "psrl", tmp_path / "b")

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(journal_module, "_synchronise", broken)
    out: list[bytes] = []
    reading, writing = os.pipe()
    os.write(writing, b'{"observe": %s, "id": 1}\n{"bad": 1}\n' % json.dumps(STEP).encode())
    os.close(writing)
    with pytest.raises(FileProblem, match="cannot be made durable"):
        serve(service, reading, out.append)
    os.close(reading)
    first, second = map(json.loads, b"".join(out).splitlines())
    assert first["id"] == 1
    assert first["error"].startswith("not acknowledged")
    assert second["error"].startswith("a line has no key")
    monkeypatch.undo()
    service.close()
    with Service(MODEL, "psrl", tmp_path / "b") as again:
        assert again.status()["observed"] in (0, 1)


class Failing(fmdp.Learner):
    """Fails in its third decision, or while it watches its third step."""

    watching: bool = fmdp.setting(False, "whether it fails in watch")

    def decide(self, agent: Any) -> fmdp.Decision:
        if agent.steps == 2 and not self.watching:
            raise RuntimeError("no\nidea")
        s = agent.structure
        first = np.zeros(s.n_states, dtype=np.int64)
        return fmdp.Decision(fmdp.TablePolicy(s.state_sizes, s.action_sizes, first), steps=1)

    def watch(self, agent: Any, *step: Any) -> None:
        if agent.steps == 3 and self.watching:
            raise ZeroDivisionError("nothing there")


@pytest.mark.parametrize("watching", [False, True])
def test_a_learner_that_raises_is_one_error_and_the_service_goes_on(
    watching: bool, tmp_path: Path
) -> None:
    state = [1, 1, 1]
    step = {"state": state, "action": [0], "rewards": [1, 1, 1], "next_state": state}
    ask, tell = {"state": state}, {"observe": step}
    model, learner = fmdp.problem("circle:3"), Failing(watching=watching)
    with Service(model, learner, tmp_path / "live") as service:
        given = answers(service, ask, tell, ask, tell, tell if watching else ask, {"status": True})
        assert [list(answer) for answer in given[:4]] == [["action"], ["observed"]] * 2
        (error,) = given[4].values()
        assert error.startswith("learner failing failed: ")
        named = "ZeroDivisionError: nothing there" if watching else "RuntimeError: no idea"
        assert f"{named} (test_lines.py, line " in error
        assert given[5]["status"]["observed"] == 2
    # The folder is intact, and so is what was acknowledged.
    with Service(model, learner, tmp_path / "live") as service:
        assert answers(service, {"status": True})[0]["status"]["observed"] == 2


def test_a_bug_of_fmdp_itself_is_not_hidden(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows its traceback; an error of a user's code is one line."""

    def broken(*given: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(type(service.agent.learner), "decide", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        answers(service, {"state": [1, 1, 1]})
