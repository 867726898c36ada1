"""Problems of one's own: as objects, as module:Class in an id, under a name, and what is wrong."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp._base.registries import register
from fmdp.cli import main
from fmdp.errors import FmdpError, InvalidModel, InvalidParameter, TooLarge, UnknownName
from fmdp.experiments.spec import read_spec
from fmdp.problems import PROBLEMS, Circle, Network, RandomModel, SysAdmin, parse_id

OWN = '''
"""Coins: each is thrown anew where the action says so."""

import numpy as np

import fmdp
from fmdp._base.parameters import REQUIRED
from fmdp.problems import Problem, refuse_if_too_large
from fmdp._base.settings import setting


class Coins(Problem):
    """Coins, of which one is thrown in every step."""

    size: int = setting(REQUIRED, "number of coins", low=2, high=50)
    heads: float = setting(0.5, "chance of heads", low=0.0, high=1.0)
    file: str | None = setting(None, "a file")

    def build(self):
        n = self.size
        stay = np.broadcast_to(np.eye(2)[:, None, :], (2, n, 2)).copy()
        tables = [stay.copy() for _ in range(n)]
        for i in range(n):
            tables[i][:, i] = (1 - self.heads, self.heads)
        pairs = [([i, n], table) for i, table in enumerate(tables)]
        return fmdp.FactoredMDP.from_factors([2] * n, [n], pairs, [([0], [0, 1])])


class Coin(Problem):
    """No size, and a name that build gives."""

    size: int = setting(1, "number of coins", low=1)

    def build(self):
        return fmdp.FactoredMDP.from_factors((2,), (1,), [((), [0.5, 0.5])], name="heads or tails")


class Raises(Problem):
    """Wrong."""

    def build(self):
        return 1 / 0  # line 42


class Crooked(Problem):
    """Wrong."""

    def build(self):
        return fmdp.FactoredMDP.from_factors((2,), (1,), [((), [0.5, 0.6])])  # line 49


class Nothing(Problem):
    """Wrong."""

    def build(self):
        return {"a": "model"}


class Choosy(Problem):
    """Wrong."""

    def check(self):
        assert False, "never"

    def build(self):
        return None


class Strict(Problem):
    """Refuses."""

    low: int = setting(0, "the least")
    high: int = setting(1, "the most")

    def check(self):
        if self.low > self.high:
            raise ValueError("low must be at most high")

    def build(self):
        return Coin().build()


class Huge(Problem):
    """Too large."""

    def build(self):
        refuse_if_too_large(str(self), 10**12, 1)


class Plain:
    pass


class Abstract(Problem):
    """No build."""
'''


@pytest.fixture
def module(folder: Path) -> Path:
    (folder / "coins.py").write_text(OWN)
    return folder


def test_a_problem_is_an_object() -> None:
    seven = Circle(size=7, dynamics="guestrin")
    assert str(seven) == "circle:7,dynamics=guestrin"
    assert repr(seven) == "Circle(size=7, dynamics='guestrin')"
    assert seven.build() == fmdp.problem(seven) == fmdp.problem("circle:7,dynamics=guestrin")
    assert parse_id(str(seven)) == seven
    assert copy.deepcopy(seven) == pickle.loads(pickle.dumps(seven)) == seven
    assert hash(seven) == hash(Circle(size=7, dynamics="guestrin"))
    assert seven != Circle(size=7)
    with pytest.raises(AttributeError):
        seven.size = 8  # type: ignore[misc]
    assert str(RandomModel(size=3, values=4)) == "random:3,values=4"
    assert "number of machines" in (Circle.__doc__ or "").lower()


def test_python_refuses_what_an_id_refuses_in_the_same_words() -> None:
    for made, text in (
        (lambda: Circle(size=0), "circle:0"),
        (lambda: Circle(size=3, reward="avg"), "circle:3,reward=avg"),
        (lambda: Network(size=3, edges=((0, 3),)), "network:3,edges=0>3"),
    ):
        with pytest.raises(InvalidParameter) as in_python:
            made()
        with pytest.raises(InvalidParameter) as in_an_id:
            parse_id(text)
        assert str(in_python.value).split("; got")[0] == str(in_an_id.value).split("; got")[0]
    with pytest.raises(InvalidParameter, match="an id, the path of a model file, or an object"):
        fmdp.problem(Circle)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("coins:Coins:3", "coins:Coins:3"),
        (" coins:Coins : 03 , heads = .50 ", "coins:Coins:3"),
        ("coins:Coins:3,heads=.25", "coins:Coins:3,heads=0.25"),
        ("coins:Coins:2,file=a/b.csv", "coins:Coins:2,file=a/b.csv"),
        ("coins:Coins:2,file=b.json", "coins:Coins:2,file=b.json"),
        ("coins:Coin", "coins:Coin"),
        ("coins:Coin:1", "coins:Coin"),
        ("coins:Coin:2", "coins:Coin:2"),
    ],
)
def test_an_id_names_a_class(module: Path, text: str, name: str) -> None:
    model = fmdp.problem(text)
    assert model.name == name
    assert fmdp.problem(name) == model


def test_a_registered_name_is_an_id(module: Path) -> None:
    """The canonical one stays what other processes can find: registering moves no key of a run."""
    assert fmdp.problem("coins:Coins:3").name == "coins:Coins:3"
    kind = register(PROBLEMS.find("coins:Coins"))
    assert "coins" in PROBLEMS.names()
    assert fmdp.problem("coins:3,heads=.1").name == "coins:Coins:3,heads=0.1"
    assert fmdp.problem("coins:3") == fmdp.problem("coins:Coins:3")
    assert str(kind.make({"size": 3, "file": "x.json"})) == "coins:Coins:3,file=x.json"
    assert fmdp.problem("coins:3,file=x.json").name == "coins:Coins:3,file=x.json"
    with pytest.raises(InvalidParameter, match="'size' parameter of coins must be"):
        fmdp.problem("coins:1")


def test_a_topology_of_ones_own() -> None:
    @register
    class Chain(SysAdmin):
        """SysAdmin, one after the other."""

        def parents(self) -> Any:
            return ((), *((i - 1,) for i in range(1, self.size)))

    try:
        chain, same = fmdp.problem("chain:3,seed=2"), fmdp.problem("network:3,edges=0>1+1>2,seed=2")
    finally:
        PROBLEMS.forget("chain")
    assert chain.structure == same.structure
    assert all((a == b).all() for a, b in zip(chain.transitions, same.transitions, strict=True))


def test_a_path_is_a_path(module: Path) -> None:
    model = fmdp.problem("circle:2,seed=5")
    for name in ("coins:Coins", "coins:Coins:3,heads=1", "coins:Coins.json", "a:b,c=d.json"):
        fmdp.save(model, Path(name))
        assert fmdp.problem(name) == model
    Path("coins:Coins").unlink()
    register(PROBLEMS.find("coins:Coins"))
    Path("coins:3").write_text("not a model")
    assert fmdp.problem("coins:3").name == "coins:Coins:3"
    with pytest.raises(FmdpError, match="missing"):
        fmdp.problem("coins:missing.json")


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        (
            "no_such_module:Queues:3",
            UnknownName,
            (
                "problem 'no_such_module:Queues': there is no module 'no_such_module' here or "
                "among the installed ones"
            ),
        ),
        (
            "coins:Nothin",
            UnknownName,
            "problem 'coins:Nothin': module coins has no 'Nothin'; did you mean \"Nothing\"?",
        ),
        (
            "coins:Plain",
            InvalidParameter,
            (
                "problem 'coins:Plain' is <class 'coins.Plain'>; must be a subclass of "
                "fmdp.problems.family.Problem"
            ),
        ),
        (
            "coins:Abstract",
            InvalidParameter,
            ("problem 'coins:Abstract' must say what it does in build, which it has not"),
        ),
        (
            "coins:Raises",
            InvalidModel,
            (
                "problem 'coins:Raises': build(): ZeroDivisionError: division by zero "
                "(coins.py, line 42)"
            ),
        ),
        (
            "coins:Crooked",
            InvalidModel,
            (
                "problem 'coins:Crooked': build(): transition factor 0 (\"s0\"), row 0 (empty "
                "scope): sums to 1.1; must sum to 1 within 1e-09 (coins.py, line 49)"
            ),
        ),
        (
            "coins:Nothing",
            InvalidModel,
            (
                "problem 'coins:Nothing': build() must return a FactoredMDP; got {'a': 'model'} "
                "(coins.py, line 55)"
            ),
        ),
        (
            "coins:Choosy",
            InvalidModel,
            "problem 'coins:Choosy': AssertionError: never (coins.py, line 63)",
        ),
        (
            "coins:Strict,low=2",
            InvalidParameter,
            "problem 'coins:Strict,low=2': low must be at most high",
        ),
        (
            "coins:Huge",
            TooLarge,
            "problem 'coins:Huge' needs about 7.45e+03 GiB of tables; at most 1 GiB are built",
        ),
        (
            "coins:Coins",
            InvalidParameter,
            (
                "coins:Coins needs a size, the number of coins, an integer in [2, 50]; got "
                "'coins:Coins', must be like 'coins:Coins:3'"
            ),
        ),
        (
            "coins:Coins:x",
            InvalidParameter,
            "the 'size' parameter of coins must be an integer in [2, 50]; got 'x'",
        ),
        (
            "coins:Raises:3",
            InvalidParameter,
            "coins:Raises takes no size, must be 'coins:Raises'; got 'coins:Raises:3'",
        ),
        (
            "coins:Coins:3,head=.1",
            UnknownName,
            "coins has no parameter 'head' (it takes heads, file); did you mean \"heads\"?",
        ),
        (
            "wrong:Thing",
            InvalidParameter,
            (
                "problem 'wrong:Thing': its module cannot be imported: SyntaxError: '(' was never "
                "closed (wrong.py, line 1)"
            ),
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    module: Path,
    text: str,
    kind: type[FmdpError],
    line: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (module / "wrong.py").write_text("Thing = (1,\n")
    with pytest.raises(kind) as refused:
        fmdp.problem(text)
    assert str(refused.value) == line
    assert main(["show", text]) == 2
    assert capsys.readouterr().err == f"fmdp: {line}\n"


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (
            "arrival: float = 0.5",
            "the field 'arrival' of problem Own must be declared as a setting",
        ),
        ("size: int", "the field 'size' of problem Own must be declared as a setting"),
        ("options: int = setting(1, 'x')", "the setting 'options' of problem Own has a name that"),
        ("name: str = setting('a', 'x')", "the setting 'name' of problem Own has a name that"),
        ("as_dict: int = setting(1, 'x')", "the setting 'as_dict' of problem Own has a name"),
    ],
)
def test_a_field_that_no_id_could_have_is_refused(folder: Path, field: str, words: str) -> None:
    (folder / "own.py").write_text(
        "from fmdp import REQUIRED, Problem, setting\n"
        f"class Own(Problem):\n    {field}\n    def build(self): pass\n"
    )
    with pytest.raises(InvalidParameter, match=f"cannot be imported: TypeError: {words}"):
        fmdp.problem("own:Own")


def test_a_module_beside_the_spec(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = module / "spec.toml"
    spec.write_text(
        'steps = 10\nseeds = 1\nlearners = ["random"]\n'
        'problems = ["coins:Coins:2,heads=0.50", "coins:Coins:3"]\n'
    )
    elsewhere = module / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert [one.id for one in read_spec(spec).problems] == ["coins:Coins:2", "coins:Coins:3"]


@pytest.mark.parametrize("text", ["coins:Coins:3", "coins:3"])
def test_in_another_process(module: Path, text: str) -> None:
    """module:Class from the current folder, and the entry point of an installed package."""
    information = module / "coins-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: coins\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[fmdp.problems]\ncoins = coins:Coins\n")
    source = str(Path(fmdp.__file__).parents[1])
    path = source if ":C" in text else os.pathsep.join([source, str(module)])
    where = module if ":C" in text else module.parent
    ran = subprocess.run(
        [sys.executable, "-m", "fmdp", "show", text],
        env=os.environ | {"PYTHONPATH": path},
        cwd=where,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert "8" in ran.stdout.splitlines()[1]


def test_the_id_as_its_name_changes_nothing_else_in_a_model() -> None:
    rows = np.full((2, 2), 0.5)
    ends = fmdp.Intervals((rows - 0.1,), (rows + 0.1,), (), ())
    built = fmdp.FactoredMDP.from_factors([2], [1], [([0], rows)], name="coin", intervals=ends)

    class Vague(fmdp.Problem):
        """A coin whose chance is known roughly."""

        def build(self) -> fmdp.FactoredMDP:
            return built

    model = fmdp.problem(Vague())
    assert model.name != "coin"
    assert model.intervals == built.intervals
    assert model.transition_row(0, (0,), (0,)).tolist() == [0.5, 0.5]
