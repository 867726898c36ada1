"""Every problem that has a name keeps its contract, and one that does not is found out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fmdp
from fmdp._base.parameters import REQUIRED
from fmdp._base.settings import setting
from fmdp.model import FactoredMDP
from fmdp.problems import PROBLEMS, Circle, Problem
from fmdp.testing import ContractBroken, check_problem


@pytest.mark.parametrize("name", [kind.name for kind in PROBLEMS.kinds()])
def test_every_problem_keeps_its_contract(name: str) -> None:
    check_problem(PROBLEMS.find(name))


BROKEN = '''
import itertools

import fmdp
from fmdp.problems import Problem
from fmdp._base.registries import register

times = itertools.count()


@register
class Broken(Problem):
    """Another model every time."""

    def build(self):
        p = 1 / (2 + next(times))
        return fmdp.FactoredMDP.from_factors((2,), (1,), [((0,), [[p, 1 - p], [1, 0]])])
'''


@pytest.mark.slow
def test_the_test_above_takes_its_list_from_the_registry(tmp_path: Path) -> None:
    """A broken problem that somebody registers fails it, without a word in this file."""
    (tmp_path / "broken_problem.py").write_text(BROKEN)
    command = [sys.executable, "-m", "pytest", "-p", "broken_problem", "-p", "no:cacheprovider"]
    paths = [str(tmp_path), str(Path(fmdp.__file__).parents[1])]
    ran = subprocess.run(
        [*command, "-n", "0", "-q", "-k", "keeps_its_contract and (broken or jao)", __file__],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed, 1 passed" in ran.stdout
    assert "test_every_problem_keeps_its_contract[broken]" in ran.stdout
    assert "does not keep this promise: is the same model every time" in ran.stdout


@pytest.mark.parametrize(
    "problem",
    [
        "circle:3,dynamics=guestrin",
        "star:3,dynamics=talebi",
        "tree:3,dynamics=ippc",
        "machines:2,topology=star",
        "jao:2,actions=3",
        "random:3,values=3,seed=5",
        "riverswim:2,reward=mean",
        Circle(size=2, server=2.0),
    ],
    ids=str,
)
def test_problems_with_other_parameters(problem: str | Problem) -> None:
    check_problem(problem)


def swap() -> FactoredMDP:
    return FactoredMDP.from_factors((2,), (1,), [((0,), [[0, 1], [1, 0]])], name="swap")


def test_a_model_of_ones_own(tmp_path: Path) -> None:
    check_problem(swap())
    fmdp.save(swap(), tmp_path / "other-name.json")
    check_problem(str(tmp_path / "other-name.json"))


def test_a_broken_model_is_caught() -> None:
    model = swap()
    spoilt = np.array([[0.5, 0.4], [1, 0]])
    object.__setattr__(model, "transitions", (spoilt,))
    with pytest.raises(ContractBroken, match="distributions"):
        check_problem(model)


class Undocumented(Problem):
    def build(self) -> FactoredMDP:
        return swap()


class WrongExample(Problem):
    """Swap."""

    example = "wrong-example:3"

    def build(self) -> FactoredMDP:
        return swap()


class OthersExample(WrongExample):
    """Swap."""

    name = "circle"
    example = "circle:3"


class Unready(Problem):
    """Swap."""

    start: int = setting(REQUIRED, "where it starts", low=0)

    def build(self) -> FactoredMDP:
        return swap()


class Raises(Problem):
    """Swap."""

    def build(self) -> FactoredMDP:
        raise KeyError("nothing")


class Fuzzy(Problem):
    """Swap."""

    word: str = setting("a", "a word")

    def build(self) -> FactoredMDP:
        return swap()


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (Undocumented, "a line about itself"),
        (WrongExample, "takes no size"),
        (OthersExample, "takes no size"),
        (Unready, "'start' parameter of unready"),
        (Raises, r"builds its model: .*KeyError: 'nothing' \(test_contract.py, line \d+\)"),
        (Raises(), "builds its model"),
        (Fuzzy(word="a,b"), "an id that reads back"),
        (Fuzzy(word=" a"), "an id that reads back, not as Fuzzy"),
        (Problem, "subclass of fmdp.Problem with a build"),
        (int, "subclass of fmdp.Problem with a build"),
    ],
    ids=str,
)
def test_a_broken_problem_is_caught(broken: type[Problem] | Problem, promise: str) -> None:
    with pytest.raises(ContractBroken, match=promise) as caught:
        check_problem(broken)
    assert "\n" not in str(caught.value)


def test_a_class_in_a_function_needs_a_name() -> None:
    class Local(Problem):
        """Swap."""

        def build(self) -> FactoredMDP:
            return swap()

    with pytest.raises(ContractBroken, match="an example that is an id of it"):
        check_problem(Local)
    PROBLEMS.register(Local)
    try:
        check_problem(Local)
    finally:
        PROBLEMS.forget("local")
