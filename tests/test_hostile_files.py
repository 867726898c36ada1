"""Small files that ask for too much are refused in one line, without the work; see torture/hostile.

The torture gives the same files to every command, in processes with limits on time and memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import fmdp
from fmdp.errors import FmdpError
from fmdp.experiments.spec import read_spec
from fmdp.logs.tables import table_of

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
