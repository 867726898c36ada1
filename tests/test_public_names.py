"""The public names: each loads from where it says, and `import fmdp` loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fmdp


@pytest.mark.parametrize("name", fmdp.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(fmdp, name) is not None
    assert name in dir(fmdp)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = fmdp.nonsense


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(fmdp.__file__).read_text())
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == fmdp._HOME


def test_importing_fmdp_loads_nothing_heavy() -> None:
    script = "import sys, fmdp; print([m for m in ('numpy', 'numba', 'typer') if m in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300
    )
    assert ran.stdout.strip() == "[]"


def test_the_families_of_problems_need_no_import_of_their_own() -> None:
    script = "import fmdp; print(fmdp.problems.Circle(size=7), 'problems' in dir(fmdp))"
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300
    )
    assert ran.stdout == "circle:7 True\n"
