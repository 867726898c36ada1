"""How near a sweep comes to what one core can do.

The limits are measured in the same run: multiply-adds per second in registers, and bytes per second
of reading a vector that fits into no cache but the last, and one that fits into none. Then follow
the steps of a model's sweep: a step is bound by whichever takes longer, its multiply-adds at the
first rate, or what it reads and writes beyond the second cache at the second.

    python -m benchmarks.roofline [PROBLEM ...] [--beside PYTHON]

With --beside the sweep of another build of fmdp, by that build's Python, follows: processor time of
one thread each, by turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

PROBLEMS = ("circle:20,dynamics=guestrin", "circle:20", "bi-ring:16,dynamics=guestrin")
SECOND_CACHE = 1 << 20
TURNS = 3
ONE_SWEEP = """
import json, sys, time
import numpy as np
import fmdp
from fmdp.elimination.backup import backup_for
backup = backup_for(fmdp.problem(sys.argv[1]), threads=1)
h, out = np.random.default_rng(0).random(backup.n_states), np.empty(backup.n_states)
backup.sweep(h, out)
seconds = []
for _ in range(3):
    started = time.process_time()
    backup.sweep(h, out)
    seconds.append(time.process_time() - started)
print(json.dumps(min(seconds)))
"""


def least(work: Callable[[], object], repeats: int = 7) -> float:
    """Processor seconds."""
    found = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


def limits() -> dict[str, float]:
    """Return multiply-adds per second in registers, and bytes per second read from the last cache
    and from memory, of one thread."""
    from numba import njit

    from fmdp._base.compiled import load_numba
    from fmdp.elimination import steps
    from fmdp.elimination.alignment import aligned

    load_numba()
    load, store, plus, times = steps._load, steps._store, steps._plus, steps._times
    chains = tuple(np.uint64(8 * k) for k in range(8))

    @njit(fastmath={"contract"})
    def in_registers(numbers, factor, repeats):  # type: ignore[no-untyped-def]
        y = load(numbers, chains[0])
        a, b, c, d = y, y, y, y
        e, f, g, h = y, y, y, y
        for _ in range(repeats):
            a, b = plus(times(factor, a), y), plus(times(factor, b), y)
            c, d = plus(times(factor, c), y), plus(times(factor, d), y)
            e, f = plus(times(factor, e), y), plus(times(factor, f), y)
            g, h = plus(times(factor, g), y), plus(times(factor, h), y)
        store(numbers, chains[0], plus(plus(plus(a, b), plus(c, d)), plus(plus(e, f), plus(g, h))))

    @njit(fastmath={"contract"})
    def reading(numbers, result):  # type: ignore[no-untyped-def]
        a = b = c = d = load(result, chains[0])
        for k in range(np.uint64(0), np.uint64(numbers.shape[0]), np.uint64(32)):
            a, b = plus(a, load(numbers, k)), plus(b, load(numbers, k + chains[1]))
            c, d = plus(c, load(numbers, k + chains[2])), plus(d, load(numbers, k + chains[3]))
        store(result, chains[0], plus(plus(a, b), plus(c, d)))

    few, repeats = aligned(8), 5_000_000
    few[:] = 1e-3
    in_registers(few, 0.5, 1)
    measured = {"multiply-adds": 64 * repeats / least(lambda: in_registers(few, 0.5, repeats))}
    for name, size in (("last cache", 1 << 20), ("memory", 1 << 25)):
        vector = aligned(size)
        vector[:] = 1.0
        reading(vector, few)
        measured[name] = 8 * size / least(lambda v=vector: reading(v, few))
    return measured


def by_steps(name: str, bounds: dict[str, float]) -> list[dict[str, Any]]:
    """Every group of a model's program: its multiply-adds, seconds and bound."""
    from numba import njit

    import fmdp
    from fmdp.elimination import kernels as k
    from fmdp.elimination import steps
    from fmdp.elimination.alignment import aligned
    from fmdp.elimination.backup import backup_for

    backup = backup_for(fmdp.problem(name), threads=1)
    h = aligned(backup.n_states)
    h[:] = np.random.default_rng(0).random(backup.n_states)
    backup.sweep(h, np.empty_like(h))
    as_steps, step_last, step_vector = k.Steps, steps.step_last, steps.step_vector
    one, zero = np.uint64(1), np.uint64(0)
    level_, row_, r_row_ = k.LEVEL, k.M_ROW, k.R_ROW
    outer_, rep_, v_, u_, inner_, buffer_ = k.OUTER, k.REP, k.V, k.U, k.INNER, k.BUFFER
    apart_ = k.APART
    m_, f_, r_, ctx_, has_ = k.M_BASE, k.F_BASE, k.R_BASE, k.CTX_BASE, k.HAS_R
    tables_, place_, shape_ = steps.Tables, steps.Place, steps.Shape

    @njit
    def group(wanted, branch, h, given, arena):  # type: ignore[no-untyped-def]
        own = as_steps(*given)
        levels, nodes = own.levels, own.nodes
        tables = tables_(own.rows, own.free, own.rewards, own.contexts, own.caps)
        for n in range(nodes.shape[0]):
            g = nodes[n, level_]
            if g != wanted:
                continue
            n_v, n_u = np.uint64(levels[g, v_]), np.uint64(levels[g, u_])
            shape = shape_(
                np.uint64(levels[g, outer_]),
                np.uint64(levels[g, rep_]),
                n_v,
                n_u,
                np.uint64(levels[g, inner_]),
                np.uint64(levels[g, apart_]),
            )
            row = np.uint64(nodes[n, row_] + own.branch_rows[0, branch, g])
            r_row = np.uint64(nodes[n, r_row_] + own.branch_rows[1, branch, g])
            source, s0 = h, zero
            if g > 0:
                source, s0 = arena, np.uint64(levels[g - 1, buffer_])
            place = place_(
                s0,
                np.uint64(levels[g, buffer_]),
                np.uint64(levels[g, m_]) + row * n_v * n_u,
                np.uint64(levels[g, f_]) + row * n_u,
                np.uint64(levels[g, r_]) + r_row * n_u,
                np.uint64(levels[g, ctx_]),
            )
            has_r = levels[g, has_] != 0
            if shape.inner == one:
                step_last(source, arena, tables, place, shape, has_r)
            else:
                step_vector(source, arena, tables, place, shape, has_r)

    found = []
    for part in backup._parts or [backup._whole]:
        layout = part.program.layout
        tried = min(4, layout.n_branches)
        for g, (own, nodes) in enumerate(zip(layout.groups, layout.node_counts, strict=True)):

            def work(g: int = g, part: Any = part, tried: int = tried) -> None:
                for branch in range(tried):
                    group(g, branch, h, part.steps, part.workspaces[0][0])

            work()
            all_nodes = layout.n_branches * nodes
            adds = all_nodes * own.out_size * own.n_v
            read = own.outer * own.n_v * own.inner
            # What a step reads is what the last one wrote; both stay in the second cache or not.
            far = 8 * (read + own.out_size) if 8 * max(read, own.out_size) > SECOND_CACHE else 0
            rate = bounds["memory" if 8 * backup.n_states > 1 << 25 else "last cache"]
            found.append(
                {
                    "shape": f"{own.n_v} x {own.n_u} on {own.inner:,}",
                    "multiply-adds": adds,
                    "seconds": least(work, TURNS) * layout.n_branches / tried,
                    "bound": max(adds / bounds["multiply-adds"], all_nodes * far / rate),
                }
            )
    return found


def one_sweep(python: str, name: str) -> float:
    command = [python, "-c", ONE_SWEEP, name]
    return float(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--beside", metavar="PYTHON", help="of another build of fmdp")
    given = parser.parse_args()
    bounds = limits()
    print("one core, measured:")
    print(f"  {bounds['multiply-adds'] / 1e9:.0f} billion multiply-adds per second")
    for name in ("last cache", "memory"):
        print(f"  {bounds[name] / 1e9:.0f} GB per second from the {name}")
    for name in given.problems:
        steps = by_steps(name, bounds)
        print(f"\n{name}\n")
        print("| step | million multiply-adds | ms | billion per second | limit, ms | share |")
        print("|---|---|---|---|---|---|")
        for own in steps:
            share = own["bound"] / own["seconds"]
            adds = own["multiply-adds"] / 1e6
            print(
                f"| {own['shape']} | {adds:.1f} | {1e3 * own['seconds']:.2f} | "
                f"{adds / own['seconds'] / 1e3:.1f} | {1e3 * own['bound']:.2f} | {share:.0%} |"
            )
        adds = sum(own["multiply-adds"] for own in steps)
        bound = sum(own["bound"] for own in steps)
        sweeps = [(one_sweep(sys.executable, name), None) for _ in range(1)]
        if given.beside:
            sweeps = [
                (one_sweep(sys.executable, name), one_sweep(given.beside, name))
                for _ in range(TURNS)
            ]
        now = min(own for own, _ in sweeps)
        print(
            f"\na sweep: {1e3 * now:.3g} ms for {adds / 1e6:,.0f} million multiply-adds, "
            f"{adds / now / 1e9:.1f} billion per second; the limit of its steps is "
            f"{1e3 * bound:.3g} ms, of which that is {bound / now:.0%}"
        )
        if given.beside:
            other = min(other for _, other in sweeps if other is not None)
            print(f"the other build: {1e3 * other:.3g} ms, {other / now:.1f} times as long")


if __name__ == "__main__":
    main()
