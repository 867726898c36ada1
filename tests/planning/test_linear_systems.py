"""Dense systems: SciPy's own LAPACK, bit for bit, without the package around it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy.linalg import lu_factor, lu_solve

from fmdp.planning.tabular import linear_systems

ALONE = """
import sys
import numpy as np
from fmdp.planning.tabular import linear_systems

rng = np.random.default_rng(3)
matrix, right = rng.random((40, 40)), rng.random(40)
solve = linear_systems.factored(matrix)
found = solve(right)
print("scipy.linalg" in sys.modules)
from scipy.linalg import lu_factor, lu_solve

again = lu_solve(lu_factor(matrix), right), solve(right), linear_systems.factored(matrix)(right)
print(*(np.array_equal(found, other) for other in again))
"""


@pytest.mark.parametrize("n", [1, 2, 8, 33, 100, 257])
def test_the_bits_are_those_of_scipy(n: int) -> None:
    rng = np.random.default_rng(n)
    matrix, right = rng.random((n, n)) + np.eye(n), rng.random(n)
    before = matrix.copy()
    solve = linear_systems.factored(matrix)
    assert solve is not None
    with linear_systems.one_thread():
        wanted = lu_solve(lu_factor(matrix), right)
    assert np.array_equal(solve(right), wanted)
    assert np.array_equal(matrix, before)
    assert np.abs(matrix @ wanted - right).max() < 1e-9


def test_the_routines_are_loaded_alone_and_live_beside_the_package() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=True, timeout=300
    )
    assert ran.stdout.split() == ["False", "True", "True", "True"]


def test_where_the_module_is_elsewhere_the_package_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in (lambda: None, lambda: (_ for _ in ()).throw(ImportError("moved"))):
        linear_systems._lapack.cache_clear()
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "scipy.linalg")
            patch.setattr(linear_systems, "_alone", answer)
            assert hasattr(linear_systems._lapack(), "dgetrf")
        linear_systems._lapack.cache_clear()


def test_singular_systems_and_entries_that_are_no_numbers_have_no_factors() -> None:
    assert linear_systems.factored(np.ones((3, 3))) is None
    assert linear_systems.factored(np.array([[1.0, np.nan], [0.0, 1.0]])) is None
    assert linear_systems.factored(np.array([[1.0, np.inf], [0.0, 1.0]])) is None
