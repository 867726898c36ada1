"""Imports go one way: model -> {problems, elimination} -> planning -> {measures, learning}
-> simulation -> {service, logs} -> experiments -> {reports, diagnosis} -> cli.

`errors` and `_base` lie below all. `interop` and `testing` may use everything up to simulation,
`interop` also `logs`; only `cli` imports them, inside a function. `problems.foreign` names modules
of `interop` as text and imports them when a problem in their format is asked for. Only `cli`
imports Typer and Rich, except `_base.progress`, which imports Rich inside a function. Every import
statement counts, wherever it stands: in a function, relative, or for types only.

Below the level of packages, no modules import each other in a circle. Imports inside functions
count here too, those for types only do not.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import fmdp

SOURCE = Path(fmdp.__file__).parent

# Rooms of one storey do not know each other.
STOREYS = (
    ("errors",),
    ("_base",),
    ("model",),
    ("problems", "elimination"),
    ("planning",),
    ("measures", "learning"),
    ("simulation",),
    ("service", "logs"),
    ("interop", "testing"),
    ("experiments",),
    ("reports", "diagnosis"),
    ("cli",),
    ("__main__",),
)
HEIGHT = {room: height for height, rooms in enumerate(STOREYS) for room in rooms}
ONLY_FROM_CLI = {"interop", "testing"}
ONLY_IN_CLI = {"typer", "rich", "click"}
NAMES_INTEROP = "fmdp.problems.foreign"


def imported(module: str, tree: ast.Module, is_package: bool) -> Iterator[tuple[str, int, bool]]:
    """(dotted name, line, whether it stands inside a function) of every import in a module."""
    package = module if is_package else module.rpartition(".")[0]

    def visit(node: ast.AST, lazy: bool) -> Iterator[tuple[str, int, bool]]:
        for child in ast.iter_child_nodes(node):
            inside = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield alias.name, child.lineno, lazy
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    parents = package.split(".")
                    parents = parents[: len(parents) - (child.level - 1)]
                    base = ".".join([*parents, *([base] if base else [])])
                for alias in child.names:
                    yield f"{base}.{alias.name}", child.lineno, lazy
            elif isinstance(child, ast.Call) and _is_import_call(child):
                name = child.args[0]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield name.value, child.lineno, lazy
            yield from visit(child, inside)

    yield from visit(tree, False)


def _is_import_call(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in ("import_module", "__import__") and bool(call.args)


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """What a module of fmdp imports and must not."""
    parts = module.split(".")
    room = parts[1] if len(parts) > 1 else ""
    if room == "":
        return []  # fmdp/__init__.py is the list of public names, loaded lazily from everywhere
    if room not in HEIGHT:
        return [f"{module}: the room {room!r} has no storey in tests/test_layering.py"]
    tree = ast.parse(source)
    found = [
        f"{module}, line {node.lineno}: names {node.value}, which only {NAMES_INTEROP} may"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"fmdp\.interop(\.\w+)*(:\w+)?", node.value)
        if room != "interop" and module != NAMES_INTEROP
    ]
    for name, line, lazy in imported(module, tree, is_package):
        target = name.split(".")
        where = f"{module}, line {line}: imports {name}"
        shown_when_asked = module == "fmdp._base.progress" and target[0] == "rich" and lazy
        if target[0] in ONLY_IN_CLI and room != "cli" and not shown_when_asked:
            found.append(f"{where}, which only cli may know")
        if target[0] != "fmdp" or target[1:] == ["__version__"]:
            continue
        if len(target) == 1 or target[1] not in HEIGHT:
            home = fmdp._HOME.get(target[1] if len(target) > 1 else "")
            if home is None:
                found.append(f"{where}, the whole of fmdp: name the room")
                continue
            target = home.split(".")
        other = target[1]
        if other == room:
            continue
        if other in ONLY_FROM_CLI and (room != "cli" or not lazy):
            found.append(f"{where}, which only cli may import, inside a function")
        elif HEIGHT[other] >= HEIGHT[room]:
            found.append(f"{where}, which is not below {room}")
        elif (
            room in ONLY_FROM_CLI
            and HEIGHT[other] > HEIGHT["simulation"]
            and ((room, other) != ("interop", "logs"))
        ):
            found.append(f"{where}, which is above simulation")
    return found


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_module_imports_upwards() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert files
    found = [
        line
        for path in files
        for line in violations(module_name(path), path.read_text(), path.name == "__init__.py")
    ]
    assert found == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fmdp.model.io.files", "import fmdp.planning"),
        ("fmdp.model.io.files", "from fmdp.planning.exact.planner import Exact"),
        ("fmdp.model.io.files", "from fmdp import planning"),
        ("fmdp.model.io.files", "from fmdp import problem"),
        ("fmdp.model.io.files", "import fmdp"),
        ("fmdp.model.tables", "from ..planning import exact"),
        ("fmdp.model.io.files", "def load():\n    from fmdp.problems import problem"),
        ("fmdp.model.io.files", "from importlib import import_module\nimport_module('fmdp.cli')"),
        ("fmdp.problems.jao", "from fmdp.elimination.backup import Backup"),
        ("fmdp.learning.dorl", "from fmdp.measures import diameter"),
        (
            "fmdp.planning.exact.planner",
            "if TYPE_CHECKING:\n    from fmdp.learning.dorl import DORL",
        ),
        ("fmdp.planning.exact.planner", "from rich.progress import Progress"),
        ("fmdp.planning.exact.planner", "def show():\n    from rich.progress import Progress"),
        ("fmdp._base.progress", "from rich.progress import Progress"),
        ("fmdp._base.progress", "def show():\n    from typer import echo"),
        ("fmdp.simulation.loop", "def check():\n    from fmdp.testing import check_planner"),
        ("fmdp.cli.convert", "from fmdp.interop.rddl import read"),
        ("fmdp.problems.ids", "READERS = {'.prism': 'fmdp.interop.prism:read'}"),
        ("fmdp.testing.oracles", "from fmdp.experiments.spec import Spec"),
        ("fmdp.testing.oracles", "from fmdp.logs.scopes import best_scopes"),
        ("fmdp.interop.gymnasium", "from fmdp.service import Service"),
        ("fmdp.attic.old", "import math"),
        ("fmdp._base.registries", "from fmdp.learning.registry import LEARNERS"),
        ("fmdp._base.generators", "from fmdp.model import Structure"),
        ("fmdp.planning.policies.playing", "from fmdp.learning.agent import Agent"),
        ("fmdp.learning.agent", "from fmdp.simulation.environment import Environment"),
    ],
)
def test_the_reader_sees_a_backward_import(module: str, source: str) -> None:
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fmdp.planning.exact.planner", "from fmdp.elimination.backup import Backup"),
        ("fmdp.planning.exact.planner", "from .policy import TablePolicy"),
        ("fmdp.model.io.files", "from fmdp import __version__"),
        ("fmdp.cli.convert", "def convert():\n    from fmdp.interop.rddl import read"),
        ("fmdp.testing.oracles", "from fmdp.simulation.loop import simulate"),
        ("fmdp.interop.gymnasium", "from fmdp.logs.scopes import best_scopes"),
        ("fmdp._base.progress", "def show():\n    from rich.progress import Progress"),
        ("fmdp.problems.foreign", "READERS = {'.prism': 'fmdp.interop.prism:read'}"),
    ],
)
def test_the_reader_allows_a_forward_import(module: str, source: str) -> None:
    assert violations(module, source) == []


# ---- cycles between modules, and imports inside functions ---------------------------------------

REMAINING_CYCLES: set[frozenset[str]] = set()
"""Cycles that are still to be removed. A new one is an error; remove those that are gone."""
MOST_LAZY_IMPORTS = 131
"""Number of import statements of fmdp modules inside functions. It may only fall."""


@functools.cache
def sources() -> dict[str, tuple[ast.Module, bool]]:
    """Return the syntax tree of every module, and whether it is a package."""
    return {
        module_name(path): (ast.parse(path.read_text()), path.name == "__init__.py")
        for path in sorted(SOURCE.rglob("*.py"))
    }


def typing_lines(tree: ast.Module) -> set[int]:
    """Return the lines of the blocks `if TYPE_CHECKING`."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def graph(modules: Mapping[str, tuple[ast.Module, bool]]) -> dict[str, set[str]]:
    """Return the modules that each module imports, inside functions or not.

    Imports for types only do not count. `from package import name` is an import of the module
    `package.name` if there is one. A package's __init__ may import its own modules.
    """
    edges: dict[str, set[str]] = {}
    for module, (tree, is_package) in modules.items():
        edges[module], for_types = set(), typing_lines(tree)
        for name, line, _ in imported(module, tree, is_package):
            target = name if name in modules else name.rpartition(".")[0]
            itself = f"{module}.".startswith(f"{target}.")
            if target in modules and line not in for_types and not itself:
                edges[module].add(target)
    return edges


def cycles(edges: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Return the sets of modules that import each other, directly or indirectly."""
    reached = {module: set(targets) for module, targets in edges.items()}
    for through in reached:
        for module in reached:
            if through in reached[module]:
                reached[module] |= reached[through]
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in reached
        if module in reached[module]
    }


def lazy_imports(modules: Mapping[str, tuple[ast.Module, bool]]) -> list[str]:
    """Return the places where a module of fmdp is imported inside a function."""
    return sorted(
        {
            f"{module}, line {line}"
            for module, (tree, is_package) in modules.items()
            for name, line, lazy in imported(module, tree, is_package)
            if lazy and name.split(".")[0] == "fmdp"
        }
    )


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    assert cycles(graph(sources())) == REMAINING_CYCLES


def test_imports_inside_functions_do_not_increase() -> None:
    places = lazy_imports(sources())
    assert len(places) <= MOST_LAZY_IMPORTS, "\n".join(places)


@pytest.mark.parametrize(
    ("sources_by_name", "found"),
    [
        ({"a": "from fmdp.b import f", "b": "from fmdp.c import g", "c": ""}, set()),
        ({"a": "import fmdp.b", "b": "def f():\n    from fmdp.a import g"}, {"ab"}),
        ({"a": "import fmdp.b", "b": "if TYPE_CHECKING:\n    import fmdp.a"}, set()),
        ({"a": "from fmdp import b", "b": "from fmdp.c import x", "c": "import fmdp.a"}, {"abc"}),
        (
            {"a": "import fmdp.b", "b": "import fmdp.a", "c": "import fmdp.a, fmdp.d", "d": ""},
            {"ab"},
        ),
    ],
)
def test_the_reader_sees_a_cycle(sources_by_name: dict[str, str], found: set[str]) -> None:
    modules = {f"fmdp.{name}": (ast.parse(text), False) for name, text in sources_by_name.items()}
    assert cycles(graph(modules)) == {frozenset(f"fmdp.{name}" for name in one) for one in found}
