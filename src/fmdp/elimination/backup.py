"""The Bellman backup of a factored MDP by elimination, prepared once and run with many tables.

    (L h)(s) = max_a  sum_k R_k(s, a) + sum_{s'} prod_i P_i(s'_i | s[Z_i], a) h(s')

without ever forming an S x S matrix: the next-state variables are eliminated one group at a time
(program.py says how, kernels.py does it).  With optimistic tables the same sweep gives the nested
backup: the free mass of factor i goes to the best value of s'_i given what is not yet eliminated.

Guarantee: equal to the dense backup up to rounding.  Cost: see `Layout.multiply_adds`; memory is a
few vectors over the states.  All vectors that cross this interface are in C order of the states.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination import kernels, ties
from fmdp.elimination.program import (
    _PARALLEL_STATES,
    Layout,
    Program,
    build_program,
    choose_layout,
    flat_offsets,
)
from fmdp.errors import TooLarge
from fmdp.memory import available_memory, describe_bytes
from fmdp.model import FactoredMDP, OptimisticTables, Structure

Vector = NDArray[np.float64]

_EMPTY = np.zeros(0)


class Backup:
    """The backup operators of one structure; `load` puts in the tables of a model."""

    def __init__(
        self,
        structure: Structure,
        *,
        nested: bool = False,
        threads: int | None = None,
        memory_limit: int | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.structure = structure
        self.nested = nested
        cores = threads if threads is not None else usable_cores()
        self.threads = cores if structure.n_states >= _PARALLEL_STATES else 1
        limit = memory_limit if memory_limit is not None else available_memory() // 2
        if layout is None:
            layout = choose_layout(
                structure, nested=nested, threads=self.threads, memory_limit=limit
            )
        self.layout = layout
        self.predicted_bytes = self.layout.memory(self.threads)
        if self.predicted_bytes > limit:
            raise TooLarge(
                f"exact backups over {structure.n_states} states and {structure.n_actions} joint "
                f"actions need {describe_bytes(self.predicted_bytes)}; the memory limit is "
                f"{describe_bytes(limit)}",
                needed_bytes=self.predicted_bytes,
                limit_bytes=limit,
            )
        self._program: Program | None = None
        self._shared_program = False
        self._arenas: list[Vector] = []
        self._best: list[Vector] = []
        self._m = self._f = self._r = _EMPTY
        p_offset, f_offset, r_offset = flat_offsets(structure)
        self._flat_p = np.empty(p_offset[-1])
        self._flat_f = np.empty(f_offset[-1] if nested else 0)
        self._flat_r = np.empty(r_offset[-1])
        sizes = structure.state_sizes
        self._in_order = self.layout.order == tuple(range(structure.m))
        self._internal_shape = tuple(sizes[j] for j in self.layout.order)
        self._inverse = tuple(int(j) for j in np.argsort(self.layout.order))
        self.extremes = np.zeros(3)

    @property
    def program(self) -> Program:
        if self._program is None:
            raise RuntimeError("load the tables of a model first")
        return self._program

    @property
    def n_states(self) -> int:
        return self.structure.n_states

    # ---- tables ---------------------------------------------------------------------------------

    def load(self, tables: FactoredMDP | OptimisticTables, *, share: bool = False) -> None:
        """Put in new tables.  `share` merges actions with equal numbers: worth it for a model that
        is solved once, wasted on tables that change at every call."""
        if isinstance(tables, OptimisticTables):
            if not self.nested:
                raise RuntimeError("optimistic tables need a backup prepared with nested=True")
            _copy_flat(tables.lower, self._flat_p)
            _copy_flat(tables.free, self._flat_f)
        else:
            _copy_flat(tables.transitions, self._flat_p)
            self._flat_f[:] = 0.0
        _copy_flat(tables.rewards, self._flat_r)
        self.reload(share=share)

    def reload(self, *, share: bool = False) -> None:
        """Bring the flat tables, which a caller may have filled in place, to their steps."""
        if self._program is None or share or self._shared_program:
            flat = (self._flat_p, self._flat_f, self._flat_r)
            self._program = build_program(self.layout, flat if share else None)
            self._shared_program = share
            program = self._program
            self._m = np.empty(sum(index.shape[1] for index in program.m_index))
            self._f = np.empty(sum(index.shape[1] for index in program.f_index))
            self._r = np.empty(sum(index.shape[1] for index in program.r_index))
            if len(self._arenas) == 0:
                self._arenas = [np.empty(program.arena_size) for _ in range(self.threads)]
                self._best = [np.empty(self.layout.leaf_size) for _ in range(self.threads)]
        program = self.program
        for index, where in zip(program.m_index, program.m_slices, strict=True):
            kernels.gather_products(self._flat_p, index, index.shape[0], self._m[where])
        for index, where in zip(program.f_index, program.f_slices, strict=True):
            kernels.gather_sums(self._flat_f, index, 1, self._f[where])
        for index, where in zip(program.r_index, program.r_slices, strict=True):
            if index.shape[1]:
                kernels.gather_sums(self._flat_r, index, index.shape[0], self._r[where])

    # ---- vectors in elimination order -----------------------------------------------------------

    def to_internal(self, h: Vector) -> Vector:
        """A fresh vector in elimination order."""
        if self._in_order:
            return np.array(h, dtype=np.float64)
        cube = np.asarray(h, dtype=np.float64).reshape(self.structure.state_sizes)
        return np.ascontiguousarray(cube.transpose(self.layout.order)).reshape(-1)

    def to_canonical(self, h: Vector) -> Vector:
        """A fresh vector in C order of the states."""
        if self._in_order:
            return h.copy()
        cube = h.reshape(self._internal_shape).transpose(self._inverse)
        return np.ascontiguousarray(cube).reshape(-1)

    # ---- operators in elimination order ---------------------------------------------------------

    def _over_branches(self, work: Callable[[int, int, int], None]) -> None:
        """Run work(thread, first branch, last branch) on all threads."""
        branches = self.layout.n_branches
        threads = min(self.threads, branches)
        if threads == 1:
            work(0, 0, branches)
            return
        # Small pieces, taken as threads come free: the pieces cost the same, the cores may not.
        pieces = min(branches, 8 * threads)
        bounds = [branches * piece // pieces for piece in range(pieces + 1)]
        queue = iter(range(pieces))
        lock = threading.Lock()

        def worker(thread: int) -> None:
            while True:
                with lock:
                    piece = next(queue, None)
                if piece is None:
                    return
                work(thread, bounds[piece], bounds[piece + 1])

        for done in [_pool(self.threads).submit(worker, t) for t in range(threads)]:
            done.result()

    def sweep(self, h: Vector, out: Vector) -> None:
        """out <- L h (no discount), both in elimination order."""
        p = self.program

        def work(thread: int, lo: int, hi: int) -> None:
            kernels.sweep(
                h, out, lo, hi, self._arenas[thread], self._best[thread], p.levels, p.nodes,
                p.ctx, p.rctx, p.branch_m, p.branch_r, p.branch_base, p.leaf_offset,
                self._m, self._f, self._r, self.nested,
            )  # fmt: skip

        self._over_branches(work)

    def iterate(
        self, h: Vector, new: Vector, scratch: Vector, *, discount: float, tau: float,
        tolerance: float, sweeps: int,
    ) -> int:  # fmt: skip
        """kernels.iterate: on one thread in one compiled call, else sweep by sweep."""
        p = self.program
        if self.threads == 1:
            return int(
                kernels.iterate(
                    h, new, scratch, discount, tau, tolerance, sweeps, self._arenas[0],
                    self._best[0], p.levels, p.nodes, p.ctx, p.rctx, p.branch_m, p.branch_r,
                    p.branch_base, p.leaf_offset, self._m, self._f, self._r, self.nested,
                    self.extremes,
                )
            )  # fmt: skip
        for number in range(1, sweeps + 1):
            source = h
            if discount != 1.0:
                np.multiply(h, discount, out=scratch)
                source = scratch
            self.sweep(source, new)
            kernels.residual(h, new, self.extremes)
            if self.extremes[1] - self.extremes[0] <= tolerance or number == sweeps:
                return number
            self.advance(h, new, tau=tau, discount=discount)
        return 0

    def advance(self, h: Vector, new: Vector, *, tau: float, discount: float) -> None:
        """Move h to the next iterate, after `iterate` has left it where it was certified."""
        shift = kernels.relative_shift(self.extremes, tau, discount)
        kernels.advance(h, new, tau, shift)

    def greedy_actions(
        self, h: Vector, value: Vector, ties_rule: str, tie_seed: int
    ) -> NDArray[np.int64]:
        """Action indices in C order; h and value = L h in elimination order."""
        p = self.program
        actions = np.empty(self.n_states, dtype=np.int64)
        rule = ties.rule_code(ties_rule)

        def work(thread: int, lo: int, hi: int) -> None:
            chosen = np.empty(self.layout.leaf_size, dtype=np.int64)
            kernels.greedy(
                h, value, actions, lo, hi, self._arenas[thread], chosen, p.levels, p.nodes,
                p.ctx, p.rctx, p.branch_m, p.branch_r, p.branch_base, p.leaf_offset,
                p.canonical_base, p.canonical_offset, p.leaf_start, p.leaf_actions,
                self._m, self._f, self._r, self.nested, rule, tie_seed,
            )  # fmt: skip

        self._over_branches(work)
        return actions

    def policy_sweep(self, h: Vector, out: Vector, actions: NDArray[np.integer[Any]]) -> None:
        """out <- R_pi + P_pi h, vectors in elimination order, actions in C order."""
        p = self.program

        def work(thread: int, lo: int, hi: int) -> None:
            kernels.policy_sweep(
                h, out, actions, lo, hi, self._arenas[thread], p.levels, p.nodes, p.ctx, p.rctx,
                p.branch_m, p.branch_r, p.branch_base, p.leaf_offset, p.canonical_base,
                p.canonical_offset, p.action_leaf, self._m, self._f, self._r, self.nested,
            )  # fmt: skip

        self._over_branches(work)

    # ---- operators in C order -------------------------------------------------------------------

    def apply(self, h: Vector, discount: float = 1.0) -> Vector:
        """max_a (R + discount * P h)."""
        source = self.to_internal(h)
        source *= discount
        out = np.empty_like(source)
        self.sweep(source, out)
        return self.to_canonical(out)

    def greedy(
        self, h: Vector, discount: float = 1.0, ties: str = "first", tie_seed: int = 0
    ) -> tuple[Vector, NDArray[np.int64]]:
        """The backup and an action that attains it in every state."""
        source = self.to_internal(h)
        source *= discount
        out = np.empty_like(source)
        self.sweep(source, out)
        return self.to_canonical(out), self.greedy_actions(source, out, ties, tie_seed)

    def for_policy(
        self, h: Vector, actions: NDArray[np.integer[Any]], discount: float = 1.0
    ) -> Vector:
        """R_pi + discount * P_pi h for one action index a state."""
        source = self.to_internal(h)
        source *= discount
        out = np.empty_like(source)
        self.policy_sweep(source, out, np.asarray(actions))
        return self.to_canonical(out)


def backup_for(
    model: FactoredMDP | OptimisticTables,
    *,
    memory_limit: int | None = None,
    threads: int | None = None,
) -> Backup:
    """The backup of one model, with steps shared between actions that have equal tables."""
    nested = isinstance(model, OptimisticTables)
    backup = Backup(model.structure, nested=nested, memory_limit=memory_limit, threads=threads)
    backup.load(model, share=True)
    return backup


def usable_cores() -> int:
    """Cores this process may use; FMDP_THREADS overrides (worker processes set it to 1)."""
    setting = os.environ.get("FMDP_THREADS", "")
    if setting.isdigit() and int(setting) > 0:
        return int(setting)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


_POOLS: dict[tuple[int, int], ThreadPoolExecutor] = {}


def _pool(threads: int) -> ThreadPoolExecutor:
    """One pool a process and size: threads are cheap to keep and dear to start in every sweep."""
    key = (os.getpid(), threads)
    if key not in _POOLS:
        _POOLS[key] = ThreadPoolExecutor(threads, thread_name_prefix="fmdp-sweep")
    return _POOLS[key]


def _copy_flat(parts: tuple[Vector, ...], out: Vector) -> None:
    start = 0
    for part in parts:
        out[start : start + part.size] = part.reshape(-1)
        start += part.size
