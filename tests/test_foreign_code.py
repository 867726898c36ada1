"""Identity of code that is not part of fmdp: what it does counts, how it is written does not."""

from __future__ import annotations

import linecache
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import fmdp
from fmdp._base.foreign_code import code_digest, content_digest, source_texts

MODULE = '''
import functools

import fmdp

LEVEL = 3
WORDS = {"a", "b", "c", "d"}


def logged(function):
    @functools.wraps(function)
    def inner(*arguments):
        return function(*arguments)
    return inner


class Helper:
    level: int = 1

    def twice(self, x):
        return 2 * x

    def rule(self, state):
        return self.twice(1)


class Mine(fmdp.PlanningLearner):
    """Plans."""

    epsilon: float = fmdp.setting(0.1, "how often", low=0.0, high=1.0)

    def tables(self, agent):
        """The tables."""
        return fmdp.estimated_model(agent.statistics)

    @logged
    def helped(self, x):
        return helper(x) + LEVEL + len(WORDS)


def helper(x):
    if x in {"left", "right", "up", "down"}:
        return 1
    return 'text' + f"{x!r}"


rules = {"one": lambda state: (0), "words": lambda state: state in {"u", "v", "w"}}
bound = Helper().rule
'''

WRITTEN_DIFFERENTLY = {
    "a comment": ("    def tables", "    # A comment.\n    def tables"),
    "a comment behind": ("LEVEL = 3", "LEVEL = 3  # a comment"),
    "a docstring": ('"""Plans."""', '"""Plans, and how."""'),
    "a docstring of a method": ('"""The tables."""', '"""Tables."""'),
    "no docstring": ('        """The tables."""\n', ""),
    "quotes": ("'text'", '"text"'),
    "parentheses": ("return 2 * x", "return (2 * x)"),
    "layout": (
        "fmdp.estimated_model(agent.statistics)",
        "fmdp.estimated_model(\n            agent.statistics,\n        )",
    ),
    "empty lines": ("\n\nclass Mine", "\n\n\n\n\nclass Mine"),
    "another function above": ("LEVEL = 3", "def unrelated():\n    pass\n\n\nLEVEL = 3"),
}
DOES_ANOTHER_THING = {
    "the class": ("agent.statistics", "agent.counts"),
    "a setting": ("setting(0.1", "setting(0.2"),
    "a function of the module": ("return 1", "return 2"),
    "a variable of the module": ("LEVEL = 3", "LEVEL = 4"),
    "a set": ('"d"}', '"e"}'),
    "the decorator of a method": (
        "return function(*arguments)",
        "return function(*arguments) or None",
    ),
}

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import a text as the module `foreign_module`, anew at every call."""
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "foreign_module.py"

    def loaded(text: str) -> ModuleType:
        path.write_text(text)
        linecache.clearcache()
        module = ModuleType("foreign_module")
        module.__file__ = str(path)
        sys.modules["foreign_module"] = module
        exec(compile(text, str(path), "exec"), vars(module))
        return module

    yield loaded
    sys.modules.pop("foreign_module", None)


def changed(change: tuple[str, str]) -> str:
    assert MODULE.count(change[0]) >= 1
    return MODULE.replace(*change)


@pytest.mark.parametrize("what", WRITTEN_DIFFERENTLY)
def test_code_that_is_written_differently_is_the_same_code(load: Load, what: str) -> None:
    def digests(module: ModuleType) -> list[str]:
        things = (module.Mine, module.helper, module.rules["one"], module.bound)
        return [code_digest(thing) for thing in things]

    before = digests(load(MODULE))
    assert digests(load(changed(WRITTEN_DIFFERENTLY[what]))) == before


@pytest.mark.parametrize("what", DOES_ANOTHER_THING)
def test_code_that_does_another_thing_is_other_code(load: Load, what: str) -> None:
    before = code_digest(load(MODULE).Mine)
    assert code_digest(load(changed(DOES_ANOTHER_THING[what])).Mine) != before


def test_a_bound_method_is_known_by_the_methods_that_it_may_call(load: Load) -> None:
    before = code_digest(load(MODULE).bound)
    assert code_digest(load(MODULE.replace("2 * x", "3 * x")).bound) != before


def test_two_lambdas_on_one_line_are_told_apart(load: Load) -> None:
    rules = load(MODULE).rules
    assert code_digest(rules["one"]) != code_digest(rules["words"])
    alone = load("\nrule = lambda state: 0  # a comment\n").rule
    digest = code_digest(alone)
    assert code_digest(load("rule = lambda state: (0)\n").rule) == digest
    assert code_digest(load("rule = lambda state: 1\n").rule) != digest


def test_a_file_that_has_changed_since_it_was_imported_is_not_taken_for_what_runs(
    load: Load, tmp_path: Path
) -> None:
    """The lines of another function stand where the function was."""
    rule = load("def rule(state):\n    return 0\n").rule
    before = code_digest(rule)
    assert set(source_texts(rule)) == {"foreign_module"}
    (tmp_path / "foreign_module.py").write_text("def other(state):\n    return 1\n")
    linecache.clearcache()
    assert source_texts(rule) == {}  # compiled code is all that is known of it now
    assert code_digest(rule) != before


def test_the_texts_are_those_of_the_files(load: Load) -> None:
    module = load(MODULE)
    assert source_texts(module.Mine) == {"foreign_module": MODULE}
    assert source_texts(module.bound) == {"foreign_module": MODULE}


def test_digests_do_not_depend_on_the_hash_seed_of_the_process(tmp_path: Path) -> None:
    """The order of a set of texts, as pickle and repr have it, does."""
    (tmp_path / "foreign_module.py").write_text(MODULE)
    script = (
        "import foreign_module as f\n"
        "from fmdp._base.foreign_code import code_digest, content_digest\n"
        "print([code_digest(x) for x in (f.Mine, f.helper, f.rules['words'], f.bound)])\n"
        "print(content_digest({'key': frozenset('abcdefg')}))\n"
        "from types import SimpleNamespace\n"
        "print(content_digest(SimpleNamespace(names={'a', 'b', 'c', 'd', 'e'})))\n"
    )
    found = set()
    for seed in ("1", "2", "3"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join([str(Path(fmdp.__file__).parents[1]), str(tmp_path)]),
        }
        ended = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(ended.stdout)
    assert len(found) == 1


def test_sets_and_what_they_are_inside_of_are_told_apart() -> None:
    values = [{"a", "b"}, {"a", "c"}, frozenset("ab"), ["a", "b"], {"a"}, [{"a"}]]
    assert len({content_digest(value) for value in values}) == len(values)


def test_the_digest_is_that_of_the_syntax_tree_as_it_is_documented(load: Load) -> None:
    """The digest of a simple function, written by hand: it must not change from one version of
    Python to the next, or runs that are done would be made again."""
    from hashlib import sha256

    rule = load("def rule(state):\n    'A rule.'\n    return -1.5\n").rule
    tree = (
        b"FunctionDef(name='rule',args=arguments(args=[arg(arg='state')]),"
        b"body=[Return(value=UnaryOp(op=USub(),operand=Constant(value=1.5)))])"
    )
    assert code_digest(rule) == sha256(b"%d:" % len(tree) + tree).hexdigest()


def test_code_without_source_is_known_by_what_was_compiled() -> None:
    """As classes and functions that were typed into a prompt."""

    def typed(text: str) -> dict[str, type]:
        names: dict[str, type] = {"__name__": "foreign_prompt"}  # type: ignore[dict-item]
        exec(compile(text, "<stdin>", "exec"), names)
        return names

    text = "class Typed:\n    level = 1\n    def rule(self, state):\n        return {'a', 'b'}\n"
    typed_class = typed(text)["Typed"]
    digest = code_digest(typed_class)
    assert source_texts(typed_class) == {}
    assert code_digest(typed("\n\n" + text)["Typed"]) == digest
    assert code_digest(typed(text.replace("'b'", "'c'"))["Typed"]) != digest
    assert code_digest(typed(text.replace("level = 1", "level = 2"))["Typed"]) != digest


def test_compiled_functions_of_numba_are_known_by_their_source(load: Load) -> None:
    numba = pytest.importorskip("numba")
    assert numba is not None
    text = (
        "import numba\n\n\n@numba.njit\ndef fast(x):\n    return x + 1\n\n\n"
        "def rule(state):\n    return fast(state[0])\n"
    )
    digest = code_digest(load(text).rule)
    assert code_digest(load(text.replace("x + 1", "(x + 1)  # a comment")).rule) == digest
    assert code_digest(load(text.replace("x + 1", "x + 2")).rule) != digest
