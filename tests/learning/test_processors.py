"""A seeded run is the same on processors with and without wide vector instructions."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

RUN = """
import hashlib, fmdp
digest = hashlib.sha256()
for problem in ("random:4,seed=3", "circle:4"):
    model = fmdp.problem(problem)
    for table in model.transitions:
        digest.update(table.tobytes())
    for learner in (fmdp.PSRL(), fmdp.UCRL3(), fmdp.DBNUCRL(), fmdp.OPSRL()):
        run = fmdp.simulate(model, learner, steps=120, seed=0)
        digest.update(repr(run.curve).encode())
print(digest.hexdigest())
"""


def test_runs_do_not_depend_on_vector_instructions() -> None:
    wide = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
    if not any("AVX512" in name or name == "X86_V4" for name in wide):
        pytest.skip("this processor has no AVX-512 instructions to switch off")

    def digest(disabled: str) -> str:
        environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": disabled}
        done = subprocess.run(
            [sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert digest(" ".join(wide)) == digest("")
