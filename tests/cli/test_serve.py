"""`fmdp serve` as a program: its streams, signals, statuses and folder."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fmdp

from .conftest import Ran

Start = Callable[..., subprocess.Popen[str]]
ROOT = Path(__file__).parents[2]
WORDS = ["serve", "--model", "circle:2", "--learner", "psrl"]
STEP = {"state": [1, 1], "action": [0], "rewards": [1, 1], "next_state": [1, 0]}


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts servers, which end with the test."""
    begun: list[subprocess.Popen[str]] = []

    def starter(folder: Path, *more: str, **others: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "fmdp", *WORDS, "--dir", str(folder), *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **others,
        )
        begun.append(process)
        return process

    yield starter
    for process in begun:
        process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        process.wait()


def ask(process: subprocess.Popen[str], request: Any) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_kill_terms_and_the_end_of_the_input(tmp_path: Path, start: Start) -> None:
    folder = tmp_path / "live"
    observed = 0
    for number, status in ((None, 0), (signal.SIGTERM, 143), (signal.SIGINT, 130), (9, -9)):
        process = start(folder)
        for _ in range(5):
            observed += 1
            assert ask(process, {"observe": STEP, "state": [1, 0]})["observed"] == observed
        if number is None:
            assert process.stdin is not None
            process.stdin.close()
        else:
            process.send_signal(number)
        assert process.wait(60) == status
        assert process.stderr is not None
        assert process.stderr.read() == ("fmdp: interrupted\n" if status in (130, 143) else "")
        journal = next(folder.glob("journal-*"))
        at_rest = journal.read_bytes().count(b"\n") == 1
        assert at_rest == (number != 9), "a snapshot leaves an empty journal"
    process = start(folder)
    assert ask(process, {"status": True})["status"]["observed"] == 20
    second = subprocess.run(
        [sys.executable, "-m", "fmdp", *WORDS, "--dir", str(folder)],
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 2
    assert second.stderr == (
        f"fmdp: {folder}: another process serves there; must be one at a time for a folder\n"
    )
    process.communicate()
    assert process.returncode == 0


def test_a_folder_that_is_removed_ends_the_service(tmp_path: Path, start: Start) -> None:
    folder = tmp_path / "live"
    process = start(folder)
    assert ask(process, {"observe": STEP}) == {"observed": 1}
    shutil.rmtree(folder)
    answer = ask(process, {"observe": STEP, "id": 7})
    assert answer["id"] == 7
    assert answer["error"].startswith("not acknowledged: ")
    assert process.wait(60) == 2
    assert process.stderr is not None
    line = process.stderr.read()
    assert line.startswith(f"fmdp: {folder}")
    assert line.endswith(
        "was removed or replaced while it was in use; nothing further is acknowledged\n"
    )
    assert line.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut at half", "cut at a line", "newline"])
def test_acknowledged_observations_that_are_gone_are_noticed(
    damage: str, tmp_path: Path, start: Start
) -> None:
    process = start(tmp_path / "live")
    for _ in range(10):
        ask(process, {"observe": STEP})
    process.kill()
    process.wait()
    journal = next((tmp_path / "live").glob("journal-*"))
    content = journal.read_bytes()
    damaged = {
        "cut at half": content[: len(content) // 2],
        "cut at a line": content[: content[:-1].rindex(b"\n") + 1],
        "newline": content[:-1] + b"\x1a",
    }[damage]
    journal.write_bytes(damaged)
    process = start(tmp_path / "live")
    out, err = process.communicate('{"status": true}\n')
    assert (process.returncode, out) == (2, "")
    assert err.startswith(f"fmdp: {journal}")
    assert "is damaged" in err
    assert err.count("\n") == 1
    assert journal.read_bytes() == damaged


def test_a_torn_line_is_said(tmp_path: Path, start: Start) -> None:
    process = start(tmp_path / "live")
    ask(process, {"observe": STEP})
    process.kill()
    process.wait()
    journal = next((tmp_path / "live").glob("journal-*"))
    journal.write_bytes(journal.read_bytes() + b"00c0ffee 2 {obs")
    process = start(tmp_path / "live")
    out, err = process.communicate('{"status": true}\n')
    assert json.loads(out)["status"]["observed"] == 1
    assert err.startswith(f"fmdp: {journal}: the last line was cut off and is dropped (15 bytes)")
    assert process.returncode == 0


def test_damage_and_other_settings_are_refused(tmp_path: Path, start: Start) -> None:
    process = start(tmp_path / "live")
    for _ in range(3):
        ask(process, {"observe": STEP})
    process.kill()
    process.wait()
    journal = next((tmp_path / "live").glob("journal-*"))
    content = journal.read_bytes()
    journal.write_bytes(content.replace(b"1.0", b"0.0", 1))
    process = start(tmp_path / "live")
    out, err = process.communicate("")
    assert (process.returncode, out) == (2, "")
    assert err.startswith(f"fmdp: {journal}, line 2: is damaged")
    assert err.count("\n") == 1
    journal.write_bytes(content)
    process = start(tmp_path / "live", "--set", "c=2")
    _, err = process.communicate("")
    assert process.returncode == 2
    assert "it has c=0.75; got c=2" in err


def test_a_disk_without_room(tmp_path: Path, start: Start) -> None:
    """Lines are refused one by one, the service ends cleanly, and a restart is whole."""
    folder = tmp_path / "live"
    process = start(folder)
    process.communicate()

    def little() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, resource.RLIM_INFINITY))

    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_DISABLE_CACHING": "1"}
    process = start(folder, preexec_fn=little, env=env)
    found = [ask(process, {"observe": STEP, "id": number}) for number in range(12)]
    _, err = process.communicate()
    acknowledged = [one["observed"] for one in found if "observed" in one]
    assert acknowledged == list(range(1, len(acknowledged) + 1))
    assert 0 < len(acknowledged) < 12
    assert all("cannot be written" in one["error"] for one in found if "error" in one)
    assert process.returncode == 0
    assert "no snapshot at the end, the journal has everything" in err
    process = start(folder)
    out, _ = process.communicate('{"status": true}\n')
    assert json.loads(out)["status"]["observed"] == len(acknowledged)


def test_a_reader_that_goes_away_is_the_end(tmp_path: Path, start: Start) -> None:
    process = start(tmp_path / "live")
    assert process.stdin is not None
    assert process.stdout is not None
    assert ask(process, {"observe": STEP})["observed"] == 1
    process.stdout.close()
    process.stdin.write(json.dumps({"observe": STEP}) + "\n")
    process.stdin.flush()
    assert process.wait(60) == 0
    process = start(tmp_path / "live")
    out, _ = process.communicate('{"status": true}\n')
    assert json.loads(out)["status"]["observed"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--learner", "psrll", "--dir", "x"], 'did you mean "psrl"'),
        (["--learner", "psrl", "--dir", "x", "--batch", "0"], "'batch' parameter"),
        (["--learner", "psrl", "--dir", "x", "--snapshot-every", "no"], "'snapshot_every'"),
        (["--learner", "psrl", "--dir", "x", "--seed", "-1"], "'seed' parameter"),
        (["--learner", "random", "--dir", "x", "--planner", "exact"], "does not plan"),
        (["--learner", "psrl"], "missing option '--dir'"),
    ],
)
def test_refusals(
    words: list[str],
    said: str,
    run: Callable[..., Ran],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in run("serve", "--model", "circle:2", *words).refusal
    assert list(tmp_path.iterdir()) == []


def test_the_example_goes_on_where_it_was(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "examples" / "serve_client.py"), str(tmp_path / "live")]
    for known in (0, 40):
        ran = subprocess.run([*words, "40"], capture_output=True, text=True, check=True)
        assert ran.stdout.startswith(f"{known} steps known before, {known + 40} now;")
        assert ran.stderr == ""


NOISY = """
import os, sys
import fmdp

class Noisy(fmdp.PSRL):
    name = "noisy"

    def decide(self, agent):
        print("from Python")
        os.system("echo from a process; cat")
        os.write(1, b"from C\\n")
        print("on the first stream", file=sys.__stdout__, flush=True)
        sys.stdout.write(sys.stdin.read())
        return super().decide(agent)
"""


@pytest.fixture
def noisy(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "noisy.py").write_text(NOISY)
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def test_what_a_learner_prints_and_reads_is_not_the_protocol(
    tmp_path: Path, noisy: dict[str, str]
) -> None:
    words = [sys.executable, "-m", "fmdp", "serve", "--model", "circle:2"]
    asked = "".join(json.dumps({"observe": STEP, "state": [1, 0]}) + "\n" for _ in range(3))
    ran = subprocess.run(
        [*words, "--learner", "noisy:Noisy", "--dir", str(tmp_path / "live")],
        input=asked,
        env=noisy,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [json.loads(line)["observed"] for line in ran.stdout.splitlines()] == [1, 2, 3]
    for text in ("from Python", "from a process", "from C", "on the first stream"):
        assert text in ran.stderr


def test_what_a_learner_prints_is_not_the_json(tmp_path: Path, noisy: dict[str, str]) -> None:
    words = [sys.executable, "-m", "fmdp", "learn", "circle:2", "--steps", "20", "--json"]
    ran = subprocess.run(
        [*words, "--learner", "noisy:Noisy"],
        env=noisy,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ran.stdout)["steps"] == 20
    assert "from C" in ran.stderr


def test_export_and_migration(tmp_path: Path) -> None:
    """Observations come back as a log, and begin the folder of another model."""
    model = fmdp.problem("circle:2")
    state, rewards = [1, 1], [1.0, 1.0]
    with fmdp.Service(model, "psrl", tmp_path / "live") as service:
        for _ in range(3):
            service.observe(state, [0], rewards, state)

    def serve(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fmdp", "serve", *words]
        return subprocess.run(
            command, cwd=tmp_path, input="", capture_output=True, text=True, check=False
        )

    ran = serve("--dir", "live", "--export", "log.csv")
    assert (ran.returncode, ran.stdout) == (0, "")
    assert "3 observations in log.csv" in ran.stderr
    assert fmdp.fit(tmp_path / "log.csv", model).steps == 3
    words = ["--model", "circle:2,dynamics=guestrin", "--learner", "psrl", "--dir", "new"]
    ran = serve(*words, "--migrate", "live")
    assert ran.returncode == 0
    assert "kept 3 of 3 observations" in ran.stderr
    for refused, said in (
        (["--dir", "live"], "needs --model MODEL and --learner NAME"),
        (["--dir", "none", "--export", "log.csv"], "no such folder"),
        (["--dir", "live", "--export", "x.csv", "--model", "circle:2"], "needs --dir alone"),
        ([*words, "--migrate", "live"], "must be a new folder"),
    ):
        ran = serve(*refused)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert said in ran.stderr
        assert len(ran.stderr.splitlines()) == 1
