"""`fmdp doctor`: tells what is there and what is not; a self-test that can fail, and then does."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any

import pytest

import fmdp
from fmdp.diagnosis import checks, installed
from fmdp.diagnosis.checks import CHECKS


def test_a_healthy_installation(run: Any) -> None:
    ran = run("doctor", "--json")
    assert ran.status == 0, ran.json
    found = ran.json
    assert found["healthy"] is True
    assert found["fmdp"] == fmdp.__version__
    assert [check["name"] for check in found["checks"]] == list(CHECKS)
    assert all(check["ok"] for check in found["checks"])
    assert found["packages"]["numba"]
    assert found["extras"]["plots"]["install"] == "pip install 'fmdp[plots]'"


def test_people_are_told_how_to_get_what_is_missing(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = installed.version_of
    without = {"matplotlib": None, "pandas": "0.1"}
    monkeypatch.setattr(installed, "version_of", lambda name: without.get(name, real(name) or "9"))
    monkeypatch.setattr("fmdp.diagnosis.run_checks", lambda: iter(()))
    ran = run("doctor")
    assert ran.status == 0
    (plots,) = [line for line in ran.out.splitlines() if line.startswith("fmdp[plots]")]
    assert plots.endswith("not installed; pip install 'fmdp[plots]'")
    (frames,) = [line for line in ran.out.splitlines() if line.startswith("fmdp[frames]")]
    assert "pandas 0.1 is older than 2.2" in frames
    assert "pip install 'fmdp[gym]'" not in ran.out
    assert not any(line.startswith("fmdp[dev]") for line in ran.out.splitlines())


def test_a_wrong_gain_is_found_and_stops_no_other_check(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(checks.KNOWN_GAINS, "three-leg:4", 3.92)
    ran = run("doctor", "--json")
    assert ran.status == 1
    failed = [check for check in ran.json["checks"] if not check["ok"]]
    assert [check["name"] for check in failed] == ["exact planning"]
    assert "it has to be 3.92" in failed[0]["said"]
    assert ran.json["healthy"] is False


@pytest.mark.parametrize("function", ["iterate", "unique_bias", "emitted", "decide"])
def test_an_interrupted_check_has_not_failed(run: Any, function: str) -> None:
    """After Ctrl-C, planners and simulations return the results so far, which prove nothing."""

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == function:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    sys.setprofile(interrupt)
    try:
        ran = run("doctor")
    finally:
        sys.setprofile(None)
    assert (ran.status, ran.out, ran.err) == (130, "", "fmdp: interrupted\n")


def test_a_library_that_does_not_load_is_told_in_one_line(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("fmdp.planning.alp")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "highspy", None)
    ran = run("doctor")
    assert ran.status == 1
    (line,) = [line for line in ran.out.splitlines() if "FAILED" in line]
    assert line.startswith("linear programs")
    assert "highspy" in line
    assert ran.out.endswith("not healthy: 1 of 4 checks failed\n")


def test_a_learner_that_does_not_repeat_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from fmdp import simulation

    real, seeds = simulation.simulate, iter((0, 1))
    monkeypatch.setattr(
        simulation,
        "simulate",
        lambda *given, seed, **other: real(*given, seed=next(seeds), **other),
    )
    with pytest.raises(checks.CheckFailed, match="one seed, two regrets"):
        checks.check_learning()


def test_a_folder_that_nobody_can_write_to_is_found(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checks.tempfile, "TemporaryDirectory", full)
    ran = run("doctor", "--json")
    assert ran.status == 1
    assert ran.json["checks"][-1]["said"] == "OSError: [Errno 28] No space left on device"
