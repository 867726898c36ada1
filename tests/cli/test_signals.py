"""Signals and streams of the program: how it ends when it is told to, or cannot print."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp._base import progress
from fmdp._base.interrupts import held
from fmdp.cli.signals import Signals
from fmdp.elimination.backup import backup_for

HUGE = "0x" + 5000 * "f"
ANSWER_SECONDS = 300.0  # of a machine that has much else to do; the work would take far longer


def python(script: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, **settings
    )


def command(*arguments: str, **settings: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fmdp", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_while_the_commands_are_imported(number: str, status: int) -> None:
    """The signal comes with the first module that the commands need."""
    script = (
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        f"            signal.raise_signal(signal.{number})\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from fmdp.cli import main\n"
        "sys.exit(main())\n"
    )
    ran = python(script)
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, "", "fmdp: interrupted\n")


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_exception_that_a_library_loses(number: str, status: int) -> None:
    """The work goes on to its end, and the status says that there was a signal."""
    script = (
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            try:\n"
        f"                signal.raise_signal(signal.{number})\n"
        "            except KeyboardInterrupt:\n"
        "                pass\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from fmdp.cli import main\n"
        "sys.argv[1:] = ['--version']\n"
        "sys.exit(main())\n"
    )
    ran = python(script)
    assert ran.returncode == status
    assert ran.stdout == f"fmdp {fmdp.__version__}\n"
    assert ran.stderr == "fmdp: interrupted\n"


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_inside_code_that_is_made_of_a_text(number: str, status: int, tmp_path: Path) -> None:
    """A dataclass that is being made while a module is run: Python noted KeyboardInterrupt as one
    that nobody has caught, and ended by SIGINT."""
    (tmp_path / "program.py").write_text(
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        f"            exec('import signal; signal.raise_signal(signal.{number})')\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from fmdp.cli import main\n"
        "sys.exit(main())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "program"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, "", "fmdp: interrupted\n")


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_what_a_plan_knows_is_printed_and_saved(number: str, status: int, tmp_path: Path) -> None:
    out = tmp_path / "policy.npz"
    script = (
        "import signal, sys\n"
        "from fmdp.planning.exact import iteration\n"
        "from fmdp.cli import main\n"
        "advance = iteration.OptimalOperator.__init__\n"
        "def interrupted(self, backup):\n"
        "    advance(self, backup)\n"
        "    real, calls = self.iterate, []\n"
        "    def iterate(*arguments):\n"
        "        calls.append(0)\n"
        "        if len(calls) == 2 and backup.n_states == 64:\n"
        f"            signal.raise_signal(signal.{number})\n"
        "        return real(*arguments)\n"
        "    self.iterate = iterate\n"
        "iteration.OptimalOperator.__init__ = interrupted\n"
        f"sys.argv = ['fmdp', 'plan', 'circle:6', '--tolerance', '1e-12', '--out', {str(out)!r}]\n"
        "sys.exit(main())\n"
    )
    ran = python(script)
    assert ran.returncode == status, ran.stderr
    assert "interrupted: stopped by hand" in ran.stdout
    assert "Traceback" not in ran.stderr
    fmdp.load_policy(out, fmdp.problem("circle:6").structure)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_a_learner_knows_is_saved(number: int, status: int, tmp_path: Path) -> None:
    out = tmp_path / "learner.npz"
    arguments = ("learn", "circle:5", "--learner", "random", "--steps", str(10**12))
    with command(*arguments, "--out", str(out)) as process:
        assert process.stderr is not None
        process.stderr.readline()  # it says how far it is
        while process.poll() is None and "regret" not in process.stderr.readline():
            pass
        process.send_signal(number)
        process.send_signal(number)
        output, errors = process.communicate(timeout=ANSWER_SECONDS)
    assert process.returncode == status, errors
    assert "Traceback" not in errors
    assert fmdp.load_agent(out).steps > 0 or "interrupted" in errors
    assert "interrupted" in output + errors


def test_signals_are_noted_while_they_are_held() -> None:
    reached = False
    try:
        with held() as signals:
            for _ in range(3):
                signal.raise_signal(signal.SIGINT)
            reached = signals.came == signal.SIGINT
    except KeyboardInterrupt:
        assert reached
    else:
        pytest.fail("the signals were lost")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_no_second_interrupt_ends_the_wait_for_threads() -> None:
    """Threads write into buffers that are used again: a storm of Ctrl-C must not let one write on
    behind the back of whoever looks at them next."""
    backup = backup_for(fmdp.problem("circle:13"), threads=2)
    writing = 0
    lock = threading.Lock()

    def slow(part: Any) -> None:
        nonlocal writing
        with lock:
            writing += 1
        while backup._stop[0] == 0:
            time.sleep(0.001)
        time.sleep(0.3)  # as long as one step of a large model takes
        with lock:
            writing -= 1

    over = threading.Event()

    def storm() -> None:
        while not writing and not over.is_set():
            time.sleep(0.001)
        while not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.0003)

    caught = False

    def impatient(number: int, frame: Any) -> None:
        if not caught:  # or one would come into the clearing up of this test
            raise KeyboardInterrupt

    still = None
    before = signal.signal(signal.SIGINT, impatient)
    sender = threading.Thread(target=storm)
    sender.start()
    try:
        backup._over_branches(slow)
    except KeyboardInterrupt:
        caught = True
        still = writing
    finally:
        caught = True
        over.set()
        sender.join()
        signal.signal(signal.SIGINT, before)
    assert still == 0


def test_an_interrupted_backup_can_be_used_again() -> None:
    backup = backup_for(fmdp.problem("circle:13"), threads=2)
    h = np.zeros(backup.n_states)
    good, after = np.empty_like(h), np.empty_like(h)
    backup.sweep(h, good)
    with pytest.raises(KeyboardInterrupt):
        backup._over_branches(lambda part: signal.raise_signal(signal.SIGINT) or time.sleep(0.2))
    backup.sweep(h, after)
    assert np.array_equal(good, after)


def test_a_signal_while_machine_code_is_made_waits_for_it(tmp_path: Path) -> None:
    """It was lost in LLVM's call back into Python, and Numba then missed the code."""
    (tmp_path / "program.py").write_text(
        "import signal\n"
        "from numba.core import codegen\n"
        "kind = codegen.CPUCodeLibrary\n"
        "real = kind._object_compiled_hook.__func__\n"
        "once = [signal.SIGINT]\n"
        "def hook(cls, *arguments):\n"
        "    if once and 'after' in arguments[0].name:\n"
        "        signal.raise_signal(once.pop())\n"
        "    return real(cls, *arguments)\n"
        "kind._object_compiled_hook = classmethod(hook)\n"
        "from fmdp._base.compiled import njit\n"
        "@njit()\n"
        "def after(number):\n"
        "    return number + 1\n"
        "try:\n"
        "    after(1)\n"
        "except KeyboardInterrupt:\n"
        "    print('heard', after(2))\n"
    )
    ran = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "heard 3\n", "")


# ---- streams ------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    "arguments", [("list",), ("list", "--json"), ("show", "circle:3"), ("plan", "circle:3")]
)
def test_a_full_disk_under_standard_output(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "fmdp", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1:] == [
        "fmdp: cannot write to standard output: No space left on device"
    ]
    assert "Traceback" not in ran.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell that closes descriptors")
def test_a_closed_standard_output_is_refused_before_the_work() -> None:
    ran = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m fmdp list >&-"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    line = "fmdp: cannot write to standard output: it is closed\n"
    assert (ran.returncode, ran.stderr) == (2, line)


def test_a_pipe_that_is_not_standard_output_is_not_taken_for_it(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep whose workers could not be started ended with status 0 and without a word."""

    def broken(*_: Any, **__: Any) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    (tmp_path / "spec.toml").write_text(
        'steps = 5\nseeds = 1\nproblems = ["circle:2"]\nlearners = ["random"]'
    )
    with monkeypatch.context() as patch:
        patch.setattr("multiprocessing.context.SpawnProcess.start", broken)
        ran = run("sweep", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"))
    assert (ran.status, ran.out) == (2, "")
    assert "fmdp: worker processes cannot be started: Broken pipe" in ran.err
    monkeypatch.setattr("fmdp.problems.problem", broken)
    with pytest.raises(RuntimeError, match="is broken"):
        run("plan", "circle:3")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell that closes descriptors")
def test_a_closed_standard_error_hides_nothing() -> None:
    ran = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m fmdp show nix 2>&-"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (ran.returncode, ran.stdout) == (2, "")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
def test_every_encoding_can_show_a_network(encoding: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "fmdp", "show", "star:4"],
        capture_output=True,
        timeout=300,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    text = ran.stdout.decode(encoding)
    lines = text.splitlines()
    assert any("machine_0 " in line for line in lines)
    if encoding != "utf-8":
        assert "network (a > b: a influences b; (a): drawn elsewhere)" in lines
        assert any("-+>" in line for line in lines)


# ---- limits of time -----------------------------------------------------------------------------


def test_time_is_looked_at_while_a_plan_is_prepared() -> None:
    """With a million joint actions the preparation alone took most of a minute."""
    n = 300_000
    structure = fmdp.Structure((2, 2), (n,), ((0,), (0, 1)), ((1,), (2,)))
    rows = [[0.5, 0.5], [0.2, 0.8]]
    model = fmdp.FactoredMDP(
        structure, [rows, [*rows, *rows]], [[0.0, 1.0], np.linspace(0.0, 1.0, n)]
    )
    found = fmdp.plan(model, "exact,max_seconds=0.001")
    assert found.status is fmdp.Status.TIME_LIMIT
    assert found.policy is None
    assert found.gain_bounds == (0.0, 2.0)
    span = fmdp.plan(model, "span,budget=3,max_seconds=0.001")
    assert span.status is fmdp.Status.TIME_LIMIT


@pytest.mark.parametrize("settings", ["", ",method=factored", ",criterion=average"])
def test_time_is_looked_at_while_a_linear_program_is_prepared(settings: str) -> None:
    """Networks of two hundred machines were built, and policies taken out of them, when time was
    long up."""
    found = fmdp.plan(fmdp.problem("circle:200"), f"alp,max_seconds=0.001{settings}")
    assert found.status is fmdp.Status.TIME_LIMIT
    assert found.policy is None
    assert found.gain_bounds == (0.0, 200.0)


def test_time_is_looked_at_while_a_model_is_built(run: Any, monkeypatch: Any) -> None:
    def endless(text: str) -> None:
        while True:
            time.sleep(0.01)

    monkeypatch.setattr("fmdp.problems.problem", endless)
    ran = run("plan", "circle:4", "--max-seconds", "0.2", "--json")
    assert ran.status == 1
    assert ran.json["status"] == "time_limit"
    assert ran.json["seconds"] >= 0.2  # and not for ever
    assert "time_limit" in run("plan", "circle:4", "--max-seconds", "0.2").out


def test_an_interrupt_while_a_plan_is_prepared_is_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fmdp.planning.exact.planner.tabular_backup", impatient)
    monkeypatch.setattr("fmdp.planning.alp.prepared_alp.BellmanResidual", impatient)
    for planner in ("exact", "alp"):
        found = fmdp.plan(fmdp.problem("circle:3"), planner)
        assert found.status is fmdp.Status.INTERRUPTED
        assert found.gain_bounds == (0.0, 3.0)


# ---- what a user can write ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "line"),
    [
        ('problems = [["circle:2"]]\nlearners = ["psrl"]', "must be a line of text; got ['circle:"),
        (
            'problems = ["circle:2"]\nlearners = [{name = "psrl", problems = [["circle:2"]]}]',
            "must be a line of text; got ['circle:2']",
        ),
        (f'problems = {"[" * 3000}{"]" * 3000}\nlearners = ["psrl"]', "nested too deeply"),
        (f'problems = ["circle:2"]\nlearners = {"9" * 5000}', "more than 4,300 digits"),
        (
            f'problems = ["circle:2"]\nlearners = [{{name = "psrl", set = {{c = {HUGE}}}}}]',
            "a value of type int that is too long to print",
        ),
    ],
)
def test_absurd_specs_are_one_line(run: Any, tmp_path: Path, entries: str, line: str) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(f"steps = 10\nseeds = 1\n{entries}\n")
    refusal = run("sweep", str(spec), "--out", str(tmp_path / "store")).refusal
    assert line in refusal
    assert "spec.toml" in refusal
    assert not (tmp_path / "store").exists()


def test_an_integer_beyond_64_bits_is_refused(run: Any) -> None:
    arguments = ("learn", "circle:2", "--learner", "frmax", "--steps", "2", "--set")
    assert (
        "no integer may be beyond 9223372036854775807" in run(*arguments, "m=1" + 22 * "0").refusal
    )
    assert run(*arguments, "m=9223372036854775807").status == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "circle:2", "--out"),
        ("learn", "circle:2", "--learner", "random", "--out"),
        ("convert", "circle:2"),
    ],
)
def test_a_target_that_cannot_be_is_refused_before_the_work(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    def worked(*_: Any, **__: Any) -> None:
        raise AssertionError("it has begun to work")

    monkeypatch.setattr("fmdp.problems.problem", worked)
    for target in (tmp_path / ("n" * 300 + ".json"), tmp_path / "none" / "a.json"):
        assert "cannot write" in run(*arguments, str(target)).refusal

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    assert "No space left" in run(*arguments, str(tmp_path / "a.json")).refusal


@pytest.mark.parametrize("address", ["tls://127.0.0.1:1", "ucx://a:1", "inproc://"])
def test_what_is_no_address_of_a_scheduler(run: Any, tmp_path: Path, address: str) -> None:
    pytest.importorskip("distributed")
    spec = tmp_path / "spec.toml"
    spec.write_text('steps = 10\nseeds = 1\nproblems = ["circle:2"]\nlearners = ["random"]\n')
    ran = run("sweep", str(spec), "--out", str(tmp_path / "store"), "--dask", address)
    assert "--dask must be the address of a Dask scheduler" in ran.refusal


def rest() -> None:
    """For long, in short pieces: a signal that is sent again does not end a sleep."""
    for _ in range(3000):
        time.sleep(0.02)


class Unraisable:
    """What the interpreter hands to its hook; a second signal comes while it is looked at."""

    @property
    def exc_type(self) -> type[BaseException]:
        signal.raise_signal(signal.SIGTERM)
        return KeyboardInterrupt


def test_a_signal_inside_the_hook_for_lost_signals_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was raised there, printed as a traceback by the interpreter, and lost."""
    monkeypatch.setattr("fmdp.cli.signals._SOON_SECONDS", 1.0)  # time to wait for it
    signals = Signals(whole_program=False)
    signals.listen()
    try:
        signals._unraisable(Unraisable())
        with pytest.raises(KeyboardInterrupt):
            rest()
        assert signals.status(130) == 143
    finally:
        signals.leave()


def test_a_display_is_started_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal while its thread starts comes when it has: inside, a lock was released twice."""
    start = threading.Thread.start
    started: list[str] = []

    def interrupted(thread: threading.Thread) -> None:
        signal.raise_signal(signal.SIGINT)
        start(thread)
        started.append(thread.name)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), progress.showing("work", compiles=False):
        pass
    assert started
