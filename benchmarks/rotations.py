"""Rotations of homogeneous rings: would one elimination and n gathers per sweep be faster?

    python -m benchmarks.rotations

On a ring of equal machines, restarting machine i is restarting machine 0 of the rotated state. So
one elimination, for "restart machine 0" and "restart none", and a maximum over its n rotations make
a sweep. The elimination is timed as a sweep of the model in which only these two actions are
allowed, the maxima as blocked transpositions. Processor time on one thread, fastest of several
turns. The last column is the whole plan if its sweeps were that much faster and nothing else
changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("FMDP_THREADS", "1")

import numba
import numpy as np

PROBLEMS = [f"circle:{n},dynamics={d}" for d in ("guestrin", "ippc") for n in (12, 16, 20)]
TURNS = 7


@numba.njit
def rotate(q: Any, best: Any, n: int) -> None:
    """best[s] <- the maximum over all rotations of the bits of s of q."""
    tile = 32
    for k in range(1, n):
        high, low = 1 << k, q.shape[0] >> k
        for x0 in range(0, high, tile):
            for y0 in range(0, low, tile):
                for x in range(x0, min(x0 + tile, high)):
                    for y in range(y0, min(y0 + tile, low)):
                        best[x * low + y] = max(best[x * low + y], q[y * high + x])


def fastest(work: Callable[[], object]) -> float:
    work()
    seconds = []
    for _ in range(TURNS):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds)


def sweep_of(model: Any) -> float:
    from fmdp.elimination.backup import backup_for

    backup = backup_for(model)
    h = backup.to_internal(np.random.default_rng(0).random(model.structure.n_states))
    out = np.empty_like(h)
    return fastest(lambda: backup.sweep(h, out))


def main() -> None:
    import fmdp

    print("| problem | sweep, ms | one elimination | gathers | sweeps faster | plan faster |")
    print("|---|---|---|---|---|---|")
    for name in PROBLEMS:
        model = fmdp.problem(name)
        s = model.structure
        others = [s.values[s.m][i] for i in range(1, s.m)]
        two = model.with_constraints(fmdp.forbid(model, {s.names[s.m]: others}))
        now, elimination = sweep_of(model), sweep_of(two)
        q = np.random.default_rng(1).random(s.n_states)
        gathers = fastest(lambda q=q, n=s.m: rotate(q, q.copy(), n))  # type: ignore[misc]
        plan = fmdp.plan(model, "exact")
        whole = fastest(lambda model=model: fmdp.plan(model, "exact"))  # type: ignore[misc]
        saved = (plan.iterations or 0) * (now - elimination - gathers)
        cells = [f"{1e3 * seconds:.3g}" for seconds in (now, elimination, gathers)]
        cells += [f"{now / (elimination + gathers):.2f}", f"{whole / (whole - saved):.2f}"]
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
