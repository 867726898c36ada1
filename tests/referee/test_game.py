"""fmdp against the referee: a few models of each family here, all of them in `make referee`."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from referee.apart import APART
from referee.game import ROUNDS, kinds, play


def _nothing_disagrees(short: bool, name: str) -> None:
    ledger = play(short, {name})
    assert ledger.compared > 0
    shown = [str(item) for claim in sorted(ledger.claims_broken) for item in ledger.smallest(claim)]
    assert not shown, "\n".join(["", ledger.table(), *shown])


@pytest.mark.referee
@pytest.mark.parametrize("name", ROUNDS)
def test_a_few_models_of_each_family(name: str) -> None:
    _nothing_disagrees(True, name)


@pytest.mark.slow
@pytest.mark.referee
@pytest.mark.parametrize("name", ROUNDS)
def test_all_models(name: str) -> None:
    _nothing_disagrees(False, name)


def test_both_forms_have_every_family() -> None:
    assert set(kinds(True)) == set(kinds(False))
    assert sum(kinds(False).values()) > 150


@pytest.mark.referee
def test_rounds_with_models_of_their_own_can_be_dealt_out() -> None:
    """Spawned processes import what they are sent: nothing of it may come from `__main__`."""
    for name, apart in APART.items():
        play = pickle.loads(pickle.dumps(apart.play))
        assert "__main__" not in pickle.dumps(apart.play).decode("latin-1"), name
        assert callable(play)


@pytest.mark.slow
@pytest.mark.referee
def test_the_command_plays_a_round_in_spawned_processes() -> None:
    tests = Path(__file__).parents[1]
    ran = subprocess.run(
        [sys.executable, "-m", "referee", "--short", "--only", "rddl_caps", "--workers", "1"],
        env={**os.environ, "PYTHONPATH": f"{tests}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "seconds of each round" in ran.stdout
