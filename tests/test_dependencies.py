"""The extras install what is used, and nothing else.

Every import of the source (in functions, for types, by name: import_module, importorskip, needs) is
held against pyproject.toml: what the core imports is a dependency and the other way round, what an
extra brings is imported somewhere, and the core imports it inside a function alone, so that fmdp
works without it.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fmdp.diagnosis.installed import FOR_DEVELOPERS, MEANINGS, read_requirements

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "fmdp"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

MODULE_OF = {
    "markovianbandit-pkg": "markovianbandit",
    "pytest-xdist": "xdist",
    "myst-parser": "myst_parser",
    "stable-baselines3": "stable_baselines3",
}
"""Where the module is not called what the distribution is."""
TOOLS = {
    "build": "make release-check: makes the wheel and the sdist",
    "comrak": "Markdown for readme-renderer",
    "ipykernel": "runs the notebooks of the gallery",
    "furo": "html_theme in docs/conf.py",
    "mpich": "mpiexec in tests/planning/test_distributed.py",
    "mypy": "make lint",
    "myst-parser": "an extension in docs/conf.py",
    "pytest-xdist": "pytest -n in the Makefile",
    "readme-renderer": "make release-check: the README as an index would show it",
    "ruff": "make lint",
    "scipy-stubs": "types of SciPy for mypy",
    "setuptools": "the build backend, pinned",
    "sp-repo-review": "make release-check: the layout of the repository",
}
"""What is run or named in a setting instead of imported."""
IMPORTERS = ("import_module", "importorskip", "needs", "_needed", "__import__")
"""Functions whose first argument is the name of a module."""
OPTIONAL_MODULES = {"fmdp.testing.strategies": "testing"}
"""Modules that are all about one extra, and may import it at their top; so may those of
`fmdp.interop`, which nobody imports before they are asked for (test_layering.py)."""
UNDECLARED = {
    "mushroom_rl": "a peer that benchmarks/first_try.py leaves out where it is not installed",
    "torch": "comes with stable-baselines3",
}
"""What is imported, never by the package, and is in no extra."""


def core() -> set[str]:
    return {name for _, name, _ in read_requirements(PROJECT["dependencies"])}


def extras() -> dict[str, set[str]]:
    return {
        extra: {name for _, name, _ in read_requirements(lines)}
        for extra, lines in PROJECT["optional-dependencies"].items()
    }


def module_of(distribution: str) -> str:
    return MODULE_OF.get(distribution, distribution)


def imports(source: str) -> Iterator[tuple[str, bool]]:
    """(top-level module, whether it is imported when the file is) of every import."""

    def visit(node: ast.AST, at_once: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            now = at_once and not isinstance(
                child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
            )
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                now = False
            if isinstance(child, ast.Import):
                yield from ((alias.name.partition(".")[0], at_once) for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and not child.level:
                yield (child.module or "").partition(".")[0], at_once
            elif isinstance(child, ast.Call) and child.args:
                called = child.func
                name = (
                    called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                )
                given = child.args[0]
                if (
                    name in IMPORTERS
                    and isinstance(given, ast.Constant)
                    and isinstance(given.value, str)
                ):
                    yield given.value.partition(".")[0], at_once
            yield from visit(child, now)

    yield from visit(ast.parse(source), True)


def used_by(*folders: str) -> set[str]:
    """Modules of others that the Python of these folders imports, anywhere."""
    return {
        module
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        for module, _ in imports(path.read_text(encoding="utf-8"))
        if module not in sys.stdlib_module_names
    }


def own(folder: str) -> set[str]:
    """What the Python of a folder calls its own modules: files and folders, and "fmdp"."""
    paths = list((ROOT / folder).rglob("*.py"))
    return {"fmdp", folder, *(path.stem for path in paths), *(path.parent.name for path in paths)}


def test_the_core_imports_its_dependencies_and_nothing_else() -> None:
    optional = {module_of(name) for names in extras().values() for name in names}
    assert used_by("src") - {"fmdp"} - optional == {module_of(name) for name in core()}


def test_what_is_optional_is_imported_when_it_is_asked_for() -> None:
    optional = {module_of(name) for names in extras().values() for name in names}
    eager = {
        (".".join(path.relative_to(SOURCE.parent).with_suffix("").parts), module)
        for path in SOURCE.rglob("*.py")
        for module, at_once in imports(path.read_text(encoding="utf-8"))
        if at_once and module in optional and not path.is_relative_to(SOURCE / "interop")
    }
    allowed = {
        (module, module_of(name))
        for module, extra in OPTIONAL_MODULES.items()
        for name in extras()[extra]
    }
    assert eager <= allowed


def test_every_extra_brings_what_is_used_and_nothing_else() -> None:
    anywhere = used_by("src", "tests", "benchmarks", "examples", "docs")
    unused = {
        name
        for names in extras().values()
        for name in names
        if module_of(name) not in anywhere and name not in TOOLS
    }
    assert not unused


def test_what_is_run_is_declared() -> None:
    assert set(TOOLS) <= set().union(
        *(extras()[name] for name in ("dev", "docs", "release", "mpich"))
    )


def test_tests_benchmarks_and_docs_import_what_some_extra_brings() -> None:
    declared = {module_of(name) for names in (core(), *extras().values()) for name in names}
    made_by_a_test = {"own_module", "own_rule", "rules_of_a_user", "kernel"}
    for folder in ("tests", "benchmarks", "examples", "docs"):
        known = own(folder) | own("tests") | declared | made_by_a_test | set(UNDECLARED)
        assert used_by(folder) - known == set(), folder


def test_every_requirement_is_a_name_with_a_lower_bound() -> None:
    """What `fmdp doctor` can read; an upper bound would keep others from what is newer."""
    lines = [*PROJECT["dependencies"]]
    lines += [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9-]+>=[0-9.]+", line), line


def test_every_extra_says_what_it_is_for() -> None:
    assert set(MEANINGS) == set(PROJECT["optional-dependencies"])
    assert set(FOR_DEVELOPERS) < set(MEANINGS)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import dask.array", [("dask", True)]),
        ("def f():\n    from pandas import DataFrame", [("pandas", False)]),
        ("needs('distributed', 'dask')", [("distributed", True)]),
        ("if TYPE_CHECKING:\n    import pandas", [("pandas", False)]),
        ("class A:\n    import dask", [("dask", True)]),
        ("from . import here", []),
    ],
)
def test_the_reader_sees_every_kind_of_import(source: str, found: list[tuple[str, bool]]) -> None:
    assert list(imports(source)) == found
