"""Small files that ask for too much are refused in one line, without the work; see torture/hostile.

The torture gives the same files to every command, in processes with limits on time and memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import fmdp
from fmdp.errors import FmdpError, TooLarge
from fmdp.experiments.spec import read_spec
from fmdp.logs.tables import table_of
from fmdp.model import FactoredMDP

sys.path.insert(0, str(Path(__file__).parent))

from torture.hostile import LARGE, LEARNERS, Hostile, files


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(file, id=file.name, marks=pytest.mark.slow if file.name in LARGE else ())
        for file in files()
    ],
)
def test_a_file_is_refused_in_one_line_or_read(
    hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hostile.needs:
        pytest.importorskip(hostile.needs)
    monkeypatch.chdir(tmp_path)
    hostile.write(tmp_path)
    name = hostile.commands[0][1]
    read = {"sweep": read_spec, "fit": table_of}.get(hostile.commands[0][0], fmdp.problem)
    if hostile.accepted:
        read(name)
        return
    with pytest.raises(FmdpError) as refused:
        read(name)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_file_that_lies_about_a_size_is_refused(name: str, tmp_path: Path) -> None:
    LEARNERS[name](tmp_path)
    with pytest.raises(FmdpError, match=r"rows|size of action variable"):
        fmdp.load_agent(tmp_path / "l.npz")


@pytest.mark.parametrize("n_actions", [62, 63, 70])
def test_plans_with_more_joint_actions_than_an_integer_counts(n_actions: int) -> None:
    """The reward is that of a fair coin, whatever is done: the gain of every policy is 1/2."""
    model = FactoredMDP.from_factors(
        [2, 2],
        [2] * n_actions,
        [((), [0.5, 0.5]), ((), [0.5, 0.5])],
        [((0,), [0.0, 1.0])],
        initial_state=[0, 0],
    )
    plan = fmdp.plan(model)
    assert plan.policy is not None
    assert len(plan.policy((0, 1))) == n_actions
    assert plan.gain_upper == pytest.approx(0.5)


def test_a_table_numbers_fewer_than_two_to_the_63_actions() -> None:
    idle = np.zeros(4, dtype=np.int64)
    assert fmdp.TablePolicy([2, 2], [2] * 62, idle)((0, 1)) == (0,) * 62
    with pytest.raises(TooLarge, match="joint actions"):
        fmdp.TablePolicy([2, 2], [2] * 63, idle)
