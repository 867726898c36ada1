"""Case studies of others, with Storm as referee: files that nobody here wrote.

    FMDP_CASE_STUDIES=FOLDER make peers

FOLDER has checkouts of moves-rwth/storm and ahartmanns/qcomp, as `storm` and `qcomp`. The cases and
their published values are in benchmarks/case_studies.py.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmdp.errors import InvalidModel
from fmdp.interop import storm

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def benchmark() -> Any:
    place = Path(__file__).parents[3] / "benchmarks" / "case_studies.py"
    spec = importlib.util.spec_from_file_location("case_studies", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["case_studies"] = module
    spec.loader.exec_module(module)
    return module


CASE_STUDIES = benchmark()


@pytest.fixture
def checkouts() -> dict[str, Path]:
    given = os.environ.get("FMDP_CASE_STUDIES")
    if not given:
        pytest.skip("FMDP_CASE_STUDIES does not name a folder with case studies")
    return {name: Path(given) / name for name in ("storm", "qcomp")}


@pytest.mark.parametrize("case", CASE_STUDIES.CASES, ids=lambda case: case.name)
def test_a_case_study_has_its_published_average(case: Any, checkouts: dict[str, Path]) -> None:
    if case.published is None:
        with pytest.raises(InvalidModel):
            CASE_STUDIES.bounds(case, checkouts)
        return
    _, (low, high) = CASE_STUDIES.bounds(case, checkouts)
    assert low - case.tolerance <= case.published <= high + case.tolerance
    pytest.importorskip("stormpy", reason="the extra `storm` is not installed: no referee")
    theirs = storm.average(
        case.source(checkouts), case.of, case.constants, minimise=case.minimise, exact=case.exact
    )
    error = 1e-9 if case.exact else 2e-6 * max(1.0, abs(theirs))
    assert low - error <= theirs <= high + error


def test_the_matrices_of_storms_tests(checkouts: dict[str, Path]) -> None:
    cases = list(CASE_STUDIES.matrix_cases(checkouts))
    assert len(cases) == 72
    for case in cases:
        _, (low, high) = CASE_STUDIES.bounds(case, checkouts)
        assert low - 1e-9 <= case.published <= high + 1e-9, case.path


@pytest.mark.parametrize("front", CASE_STUDIES.FRONTS, ids=lambda front: "-".join(front[2:4]))
def test_fronts_have_the_vertices_of_storms_tests(front: Any, checkouts: dict[str, Path]) -> None:
    *where, expected = front
    np.testing.assert_allclose(
        CASE_STUDIES.front_of(*where, checkouts), sorted(expected), atol=1e-9
    )
