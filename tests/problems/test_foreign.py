"""Problems in other programs' formats, wherever a problem is asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fmdp
from fmdp.errors import FmdpError, InvalidParameter, UnknownName
from fmdp.experiments.spec import problem_of
from fmdp.interop.rddl import write
from fmdp.problems.foreign import format_of
from fmdp.problems.ids import is_path


@pytest.mark.parametrize(
    ("text", "name", "path"),
    [
        ("rddl:SysAdmin:1", "RDDL", False),
        ("a/domain.rddl+b/instance.rddl", "RDDL", True),
        ("model.prism", "PRISM", True),
        ("circle:3", None, False),
        ("model.json", None, True),
    ],
)
def test_a_format_is_told_by_how_a_text_begins_or_ends(
    text: str, name: str | None, path: bool
) -> None:
    found = format_of(text)
    assert (None if found is None else found.name) == name
    assert is_path(text) == path


def test_two_files_are_two_paths() -> None:
    found = format_of("a+b/d.rddl+c.rddl")
    assert found is not None
    assert found.paths("a+b/d.rddl+c.rddl") == (Path("a+b/d.rddl"), Path("c.rddl"))


pytest.importorskip("pyRDDLGym")
pytest.importorskip("rddlrepository")

SYSADMIN = "rddl:SysAdmin_MDP_ippc2011:1"


@pytest.mark.parametrize(
    "text", [SYSADMIN, "rddl:sysadmin:1", "rddl:SysAdmin_MDP:1", "rddl:sysadmin-ippc2011:1"]
)
def test_a_problem_of_the_repository_has_its_canonical_id_as_its_name(text: str) -> None:
    model = fmdp.problem(text)
    assert model.name == SYSADMIN
    assert model.structure.n_states == 1024
    assert model.structure.n_actions == 11


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rddl:SysAdmn:1", 'did you mean "SysAdmin"'),
        ("rddl:SysAdmin:11", "has no instance '11'; it has 1, 2, 3"),
        ("rddl:SysAdmin", "must be like rddl:SysAdmin_MDP_ippc2011:1"),
        ("domain.rddl", "must be like DOMAIN.rddl+INSTANCE.rddl"),
        ("no.rddl+none.rddl", "no.rddl"),
    ],
)
def test_a_problem_that_is_not_there_is_refused(text: str, told: str) -> None:
    with pytest.raises(FmdpError, match=re.escape(told)):
        fmdp.problem(text)


def test_an_unknown_name_is_an_unknown_name() -> None:
    with pytest.raises(UnknownName):
        fmdp.problem("rddl:nothing-like-it:1")
    with pytest.raises(InvalidParameter):
        fmdp.problem("rddl::")


def test_files_of_a_spec_are_looked_for_beside_it(tmp_path: Path) -> None:
    write(fmdp.problem("circle:3"), [tmp_path / "d.rddl", tmp_path / "i.rddl"])
    found = problem_of("d.rddl+i.rddl", tmp_path)
    assert found.id == "d.rddl+i.rddl"
    assert found.model.structure.n_states == 8
    assert problem_of(SYSADMIN, tmp_path).id == SYSADMIN
