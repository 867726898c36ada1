"""The Bellman backup of a factored MDP by elimination, prepared once and run with many tables.

    (L h)(s) = max_a  sum_k R_k(s, a) + sum_{s'} prod_i P_i(s'_i | s[Z_i], a) h(s')

over the actions that the structure's constraints allow in s (forbidden.py says how),
without ever forming an S x S matrix: the next-state variables are eliminated one group at a time
(program.py says how, kernels.py does it).  With optimistic tables the same sweep gives the nested
backup: the free mass of factor i goes to the best value of s'_i given what is not yet eliminated
(boxes: to the best ones, each up to its upper end; balls: from the worst ones, as much as they
have).  `worst` takes the worst row instead:

    max_a  R + min over p of the set, chosen while s'_i is eliminated

is never above the backup of any model of the set, as the nested maximum is never below it.

Guarantee: equal to the dense backup up to rounding.  Cost: see `Layout.multiply_adds`; memory is a
few vectors over the states.  All vectors that cross this interface are in C order of the states.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.interrupts import held
from fmdp._base.memory import available_memory, describe_bytes, describe_count
from fmdp.elimination import kernels, ties
from fmdp.elimination.classes import FlatTables, action_classes
from fmdp.elimination.decomposition import decompose
from fmdp.elimination.forbidden import charges, charging
from fmdp.elimination.layout import PARALLEL_STATES, VECTORS, Layout, choose_layout
from fmdp.elimination.places import aligned
from fmdp.elimination.program import Program, build_program
from fmdp.elimination.rounding import tie_slack
from fmdp.elimination.split import Rotated, bytes_of, split_layout, take_larger, tiles, transpose
from fmdp.elimination.truncation import Truncation, make_truncation, truncate
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP, OptimisticTables, Structure

if TYPE_CHECKING:  # threads are for large models
    from concurrent.futures import Future, ThreadPoolExecutor

Vector = NDArray[np.float64]

Share = tuple[int, int, int]
"""A thread, and the branches that it works on: the first, and the end."""

_SHORT_SECONDS = 0.1
"""A call that is predicted to take longer leaves this thread free to hear signals and clocks."""
_SECONDS_BETWEEN_LOOKS = 0.05

_EMPTY = np.zeros(0)
_ONE_SWEEP = tuple(kernels.Pace())
_NO_CHOICE = tuple(kernels.Chosen(np.zeros(0, dtype=np.int64), 0.0, 0, 0))


class TimeUp(Exception):
    """A deadline passed inside a sweep or a preparation, which is left half done."""


class _Part(NamedTuple):
    """A program for all joint actions, or for some, with room for every thread."""

    program: Program
    steps: tuple[Any, ...]
    rooms: list[tuple[NDArray[Any], ...]]


class Backup:
    """The backup operators of one structure; `load` puts in the tables of a model.

    With `share_for`, joint actions to which the tables of that model give the same numbers share
    their steps.  Such a backup serves that model alone; without, it serves every model of the
    structure, as learners need, and joint actions share where the structure knows rows to be alike.
    """

    rotations: tuple[Rotated, ...] = ()
    """How joint actions are swept, where that is faster in parts."""
    compiled: ClassVar[bool] = True
    """Whether sweeps are compiled code; what works on their vectors then is, too."""

    def __init__(
        self,
        structure: Structure,
        *,
        nested: bool = False,
        shape: int = kernels.FREE,
        worst: bool = False,
        share_for: FactoredMDP | OptimisticTables | None = None,
        threads: int | None = None,
        memory_limit: int | None = None,
        layout: Layout | None = None,
        deadline: float | None = None,
    ) -> None:
        """`shape`: of the sets of nested tables, as `shape_of` gives it.  `worst`: rows are chosen
        to be worth least.  `deadline`: when preparing is cut off with TimeUp, on time.monotonic's
        clock."""
        self.structure = structure
        # Lower ends and free mass are a box whose upper ends are 1.
        self.shape = shape = kernels.BOX if worst and shape == kernels.FREE else shape
        self.nested = nested = nested or shape != kernels.FREE
        cores = threads if threads is not None else usable_cores()
        self.threads = cores if structure.n_states >= PARALLEL_STATES else 1
        limit = memory_limit if memory_limit is not None else available_memory() // 2
        self.memory_limit = limit
        """What this and all that is kept beside it have to fit into."""
        self._refuse_if_hopeless(limit)
        look = partial(check_clock, deadline)
        # With constraints that look at the state, more reward factors (forbidden.py).
        charged = charging(structure)
        self._tables = FlatTables(
            transitions=np.empty(structure.transition_starts[-1]),
            free=np.empty(structure.row_starts[-1] if nested else 0),
            rewards=np.empty(charged.reward_starts[-1]),
            upper=np.empty(structure.transition_starts[-1] if shape == kernels.BOX else 0),
        )
        self._rewards = self._tables.rewards[: structure.reward_starts[-1]]
        self._tables.rewards[len(self._rewards) :] = charges(structure)
        self._bound_to = share_for
        classes = None
        if share_for is not None:
            self._fill(share_for)
            classes = action_classes(charged, self._tables, look)
        self.layout = layout or choose_layout(
            structure,
            nested=nested,
            threads=self.threads,
            memory_limit=limit,
            classes=classes,
            look=look,
        )
        self.roundings = self._count_roundings(self.layout)
        """How often a number is rounded, at most, on its way through a backup."""
        caps = 8 * self.layout.table_entries if shape == kernels.BOX else 0
        self.predicted_bytes = self.layout.memory(self.threads) + caps
        self.predicted_seconds = self.layout.seconds(self.threads)
        if self.predicted_bytes > limit:
            self._refuse(self.predicted_bytes, limit)

        rotated: tuple[Rotated, ...] = ()
        if share_for is not None and not nested:
            rotated = split_layout(self.layout, self.threads, limit - self.predicted_bytes, look)
        self.program: Program = build_program(self.layout, look, shape=shape, worst=worst)
        self.deadline: float | None = None
        """When a sweep is cut off with TimeUp, on time.monotonic's clock."""
        self._stop = np.zeros(1, dtype=np.int64)
        self.extremes = np.zeros(3)
        """Smallest and largest residual of the last sweep, and the largest |h|."""
        self._whole = self._part(self.program)
        self.rotations = rotated
        self._parts = [self._part(build_program(own.layout, look)) for own in rotated]
        if rotated:
            self._turned = aligned(structure.n_states), aligned(structure.n_states)
            # Policies are found and certified by the whole program.
            layouts = [self.layout, *(own.layout for own in rotated)]
            self.roundings = max(map(self._count_roundings, layouts))
            self.predicted_bytes += bytes_of(rotated, self.threads)
            self.predicted_seconds = sum(own.layout.seconds(self.threads) for own in rotated)

        sizes = structure.state_sizes
        self._in_order = self.layout.order == tuple(range(structure.m))
        self._internal_shape = tuple(sizes[j] for j in self.layout.order)
        self._inverse = tuple(int(j) for j in np.argsort(self.layout.order))
        look()
        if share_for is not None:
            self._arrange()

    def _part(self, program: Program) -> _Part:
        rooms = [self._new_room(program) for _ in range(self.threads)]
        return _Part(program, tuple(program.steps), rooms)

    def _new_room(self, program: Program) -> tuple[NDArray[Any], ...]:
        arena, best = aligned(program.arena_size), aligned(program.layout.leaf_size)
        order = np.zeros(self.structure.max_state_size + 1, dtype=np.int64)
        return tuple(kernels.Room(arena, best, self.extremes, self._stop, order))

    def _count_roundings(self, layout: Layout) -> int:
        """A step sums the values of its group one after the other, each times a product of the
        group's rows; rows sum to 1 up to a rounding a value; rewards are sums of their factors."""
        sizes = self.structure.state_sizes
        total = 2 * self.structure.l + 2
        for group in layout.groups:
            own = [sizes[i] for i in group.members]
            total += math.prod(own) + sum(own) + 2 * len(own) + 4
            # A cap is a difference, and every value that is poured over leaves another.
            total += 0 if self.shape == kernels.FREE else 3 * sum(own) + 2
        return total

    def _refuse_if_hopeless(self, limit: int) -> None:
        """Before any array is made: the vectors alone may be more than the limit allows."""
        least = VECTORS * 8 * self.structure.n_states + 16 * self.structure.n_actions
        if least > limit:
            self._refuse(least, limit)

    def _refuse(self, needed: int, limit: int) -> None:
        structure = self.structure
        raise TooLarge(
            f"exact planning over {describe_count(structure.n_states)} states and "
            f"{describe_count(structure.n_actions)} joint actions needs "
            f"{describe_bytes(needed)}; the memory limit is {describe_bytes(limit)}",
            needed_bytes=needed,
            limit_bytes=limit,
        )

    @property
    def n_states(self) -> int:
        return self.structure.n_states

    # ---- tables ---------------------------------------------------------------------------------

    def load(self, tables: FactoredMDP | OptimisticTables) -> None:
        """Put in the tables of a model of this structure."""
        if self._bound_to is not None:
            raise RuntimeError("this backup shares steps by the tables of one model")
        self._fill(tables)
        self._arrange()

    def _fill(self, tables: FactoredMDP | OptimisticTables) -> None:
        if isinstance(tables, OptimisticTables):
            if not self.nested:
                raise RuntimeError("optimistic tables need a backup prepared with nested=True")
            # Lower ends and free mass alone are a box too.
            boxes = (kernels.FREE, kernels.BOX)
            if shape_of(tables) not in (boxes if self.shape == kernels.BOX else (self.shape,)):
                raise RuntimeError("a backup takes sets of the shape that it was prepared for")
            if tables.centre is not None and tables.radius is not None:
                _copy_flat(tables.centre, self._tables.transitions)
                _copy_flat(tables.radius, self._tables.free)
                self._tables.free[:] *= 0.5
            else:
                _copy_flat(tables.lower, self._tables.transitions)
                _copy_flat(tables.free, self._tables.free)
            self._tables.upper[:] = 1.0
            if tables.upper is not None and self.shape == kernels.BOX:
                _copy_flat(tables.upper, self._tables.upper)
        else:
            _copy_flat(tables.transitions, self._tables.transitions)
            self._tables.free[:] = 0.0
            self._tables.upper[:] = 1.0
        _copy_flat(tables.rewards, self._rewards)

    def _arrange(self) -> None:
        """Bring the flat tables into the order in which the steps read them."""
        program, tables, steps = self.program, self._tables, self.program.steps
        for part in (self._whole, *self._parts):
            own = part.program
            kernels.gather_products(tables.transitions, own.row_sources, own.steps.rows)
            kernels.gather_sums(tables.rewards, own.reward_sources, own.steps.rewards)
        if self.nested:
            kernels.gather_sums(tables.free, program.free_sources, steps.free)
        if self.shape == kernels.BOX:
            # Nothing is fused in nested layouts: a row of a step is a row of the table.
            room = np.maximum(tables.upper - tables.transitions, 0.0)
            kernels.gather_products(room, program.row_sources, steps.caps)

    # ---- vectors in elimination order -----------------------------------------------------------

    def to_internal(self, h: Vector) -> Vector:
        """A fresh vector in elimination order."""
        if self._in_order:
            return np.array(h, dtype=np.float64)
        cube = np.asarray(h, dtype=np.float64).reshape(self.structure.state_sizes)
        # Not ascontiguousarray: with variables of one value that may be a view of the caller's h.
        return np.array(cube.transpose(self.layout.order), order="C").reshape(-1)

    def to_canonical(self, h: Vector) -> Vector:
        """A fresh vector in C order of the states."""
        if self._in_order:
            return h.copy()
        cube = h.reshape(self._internal_shape).transpose(self._inverse)
        return np.array(cube, order="C").reshape(-1)

    # ---- operators in elimination order ---------------------------------------------------------

    def _over_branches(self, work: Callable[[Share], object]) -> None:
        """Run the work on all threads, each on its parts of the branches."""
        self.over(self.layout.n_branches, work)

    def over(self, branches: int, work: Callable[[Share], object]) -> None:
        """Run the work on all threads, each on its parts of so many independent pieces."""
        threads = min(self.threads, branches)
        self._stop[0] = 0  # nobody is at work now, whatever became of the last call
        if threads == 1 and self.predicted_seconds < _SHORT_SECONDS:
            work((0, 0, branches))
            return
        from concurrent.futures import wait

        # Small pieces, taken as threads come free: the pieces cost the same, the cores may not.
        pieces = min(branches, 8 * threads)
        bounds = [branches * piece // pieces for piece in range(pieces + 1)]
        left = deque(range(pieces))

        def worker(thread: int) -> None:
            while left:
                try:
                    piece = left.popleft()
                except IndexError:  # another thread was faster
                    return
                work((thread, bounds[piece], bounds[piece + 1]))

        started: list[Future[None]] = []
        late = False
        # The buffers are used again: whatever comes, and however often, nobody may still be
        # writing into them when this returns.
        with held() as signals:
            try:
                for thread in range(threads):
                    started.append(_pool(self.threads).submit(worker, thread))
                while wait(started, _SECONDS_BETWEEN_LOOKS).not_done:
                    late = self.deadline is not None and time.monotonic() >= self.deadline
                    if late or signals.came is not None:
                        break
            finally:
                self._stop[0] = 1
                left.clear()
                wait(started)
        if late:
            raise TimeUp
        for done in started:
            done.result()

    def _run(
        self,
        mode: int,
        h: Vector,
        new: Vector,
        share: Share,
        *,
        part: _Part | None = None,
        scratch: Vector = _EMPTY,
        pace: tuple[Any, ...] = _ONE_SWEEP,
        choice: tuple[Any, ...] = _NO_CHOICE,
    ) -> int:
        thread, first, end = share
        own = self._whole if part is None else part
        room = own.rooms[thread]
        kinds = (
            True if self.nested else None,
            None if self.shape == kernels.FREE else True,
            True if len(pace[-1]) else None,
        )
        arguments = (mode, h, new, scratch, first, end, own.steps, room, pace, choice, *kinds)
        return int(kernels.run(*arguments))

    def sweep(self, h: Vector, out: Vector) -> None:
        """out <- L h (no discount), both in elimination order."""
        if not self.rotations:
            self._sweep_part(self._whole, h, out)
            return
        turned, found = self._turned
        for rotated, part in zip(self.rotations, self._parts, strict=True):
            if rotated.rows == 1:
                self._sweep_part(part, h, out)
                continue
            self._by_tiles(transpose, rotated, h, turned)
            self._sweep_part(part, turned, found)
            self._by_tiles(take_larger, rotated, found, out)

    def _sweep_part(self, part: _Part, h: Vector, out: Vector) -> None:
        """out <- the best of the part's joint actions, both in the part's own order."""
        self.over(
            part.program.layout.n_branches,
            lambda share: self._run(kernels.BACKUP, h, out, share, part=part),
        )

    def _by_tiles(
        self, move: Callable[..., None], rotated: Rotated, source: Vector, out: Vector
    ) -> None:
        rows, columns = rotated.rows, rotated.columns
        self.over(tiles(rows), lambda piece: move(source, rows, columns, *piece[1:], out))

    def iterate(self, h: Vector, new: Vector, scratch: Vector, pace: kernels.Pace) -> int:
        """Mode ITERATE of the kernel: on one thread in one compiled call, else sweep by sweep."""
        short = self.threads == 1 and self.predicted_seconds < _SHORT_SECONDS
        if short and not self.rotations:
            everything = (0, 0, self.layout.n_branches)
            return self._run(kernels.ITERATE, h, new, everything, scratch=scratch, pace=tuple(pace))
        return iterate_by_sweeps(self.sweep, h, new, scratch, self.extremes, pace)

    def residual(self, h: Vector, new: Vector) -> None:
        """extremes <- min and max of new - h, and the largest |h|."""
        kernels.residual(h, new, self.extremes)

    def advance(self, h: Vector, new: Vector, pace: kernels.Pace) -> None:
        """Move h to the next iterate, after `iterate` has left it where it was certified."""
        advance(h, new, self.extremes, pace)

    def truncation(self, budgets: Sequence[float]) -> Truncation:
        """The factored-span truncation of vectors in elimination order; budgets by variable."""
        order = self.layout.order
        return make_truncation(self._internal_shape, tuple(budgets[j] for j in order))

    def lowest(self, h: Vector, out: Vector) -> None:
        """out <- min over joint actions (and targets) of R + P h, both in elimination order."""
        # min_a (R + P h) = -max_a (-R + P (-h)), and a nested maximum of -h is a minimum of h.
        self._turn_rewards()
        try:
            self._sweep_part(self._whole, -h, out)
        finally:
            self._turn_rewards()
        np.negative(out, out=out)

    def _turn_rewards(self) -> None:
        """Rewards change their sign; what is charged for forbidden actions does not."""
        rewards = self.program.steps.rewards
        if len(self._rewards) == len(self._tables.rewards):
            np.negative(rewards, out=rewards)
            return
        np.negative(self._rewards, out=self._rewards)
        kernels.gather_sums(self._tables.rewards, self.program.reward_sources, rewards)

    def greedy_actions(
        self, h: Vector, value: Vector, ties_rule: str, tie_seed: int, slack: float
    ) -> NDArray[np.int64]:
        """Action indices in C order; h and value = L h in elimination order.

        Actions within `slack` of the best are tied.  `value` becomes what the chosen are worth.
        """
        actions = np.empty(self.n_states, dtype=np.int64)
        choice = (actions, slack, ties.rule_code(ties_rule), tie_seed)
        self._over_branches(lambda part: self._run(kernels.GREEDY, h, value, part, choice=choice))
        return actions

    def policy_sweep(self, h: Vector, out: Vector, actions: NDArray[np.integer[Any]]) -> None:
        """out <- R_pi + P_pi h, vectors in elimination order, actions in C order."""
        # One integer type only: the kernel would be compiled again for another.
        choice = (np.asarray(actions, dtype=np.int64), *_NO_CHOICE[1:])
        self._over_branches(lambda part: self._run(kernels.POLICY, h, out, part, choice=choice))

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
        value = self.to_canonical(out)
        slack = self.tie_slack(float(np.abs(source).max()))
        return value, self.greedy_actions(source, out, ties, tie_seed, slack)

    def tie_slack(self, size: float, tolerance: float = np.inf) -> float:
        """What counts as a tie where |h| is at most `size`."""
        structure = self.structure
        return tie_slack(
            structure.reward_unit, size + structure.reward_size, self.roundings, tolerance
        )

    def action_values(self, h: Vector, discount: float = 1.0) -> Vector:
        """R + discount * P h for every state and joint action, -inf where it is not allowed:
        [S, A]."""
        source = self.to_internal(h)
        source *= discount
        out = np.empty(self.n_states * self.structure.n_actions)
        self._over_branches(lambda part: self._run(kernels.VALUES, source, out, part))
        values = out.reshape(self.n_states, self.structure.n_actions)
        if self.structure.constraints:
            values[~self.structure.allowed_mask()] = -np.inf
        return values

    def for_policy(
        self, h: Vector, actions: NDArray[np.integer[Any]], discount: float = 1.0
    ) -> Vector:
        """R_pi + discount * P_pi h for one action index a state."""
        source = self.to_internal(h)
        source *= discount
        out = np.empty_like(source)
        self.policy_sweep(source, out, np.asarray(actions))
        return self.to_canonical(out)


def iterate_by_sweeps(
    sweep: Callable[[Vector, Vector], None],
    h: Vector,
    new: Vector,
    scratch: Vector,
    extremes: Vector,
    pace: kernels.Pace,
) -> int:
    """Mode ITERATE of the kernel for any sweep(source, out), one call after the other."""
    for number in range(1, pace.sweeps + 1):
        source = h
        if pace.discount != 1.0:
            np.multiply(h, pace.discount, out=scratch)
            source = scratch
        sweep(source, new)
        truncate(new, pace.axes, pace.budgets)
        kernels.residual(h, new, extremes)
        if extremes[1] - extremes[0] <= pace.tolerance or number == pace.sweeps:
            return number
        advance(h, new, extremes, pace)
    return 0


def advance(h: Vector, new: Vector, extremes: Vector, pace: kernels.Pace) -> None:
    """h <- (1 - tau) h + tau new, less a constant that keeps it bounded."""
    shift = kernels.relative_shift(extremes, pace.tau, pace.discount)
    kernels.advance(h, new, pace.tau, shift)


def backup_for(
    model: FactoredMDP | OptimisticTables,
    *,
    worst: bool = False,
    memory_limit: int | None = None,
    threads: int | None = None,
    deadline: float | None = None,
) -> Backup:
    """The backup of one model, with steps shared between actions that have equal tables."""
    nested = isinstance(model, OptimisticTables)
    shape = shape_of(model)
    parts = decompose(model.structure)
    if parts is not None and parts.describes(model):
        backup = backup_of(
            model.structure,
            nested=nested,
            shape=shape,
            worst=worst,
            memory_limit=memory_limit,
            threads=threads,
            deadline=deadline,
        )
        backup.load(model)
        return backup
    return Backup(
        model.structure,
        nested=nested,
        shape=shape,
        worst=worst,
        share_for=model,
        memory_limit=memory_limit,
        threads=threads,
        deadline=deadline,
    )


def shape_of(tables: FactoredMDP | OptimisticTables) -> int:
    """Of the sets that the rows of tables are chosen from."""
    if not isinstance(tables, OptimisticTables):
        return kernels.FREE
    if tables.radius is not None:
        return kernels.BALL
    return kernels.FREE if tables.upper is None else kernels.BOX


def backup_of(
    structure: Structure,
    *,
    nested: bool = False,
    shape: int = kernels.FREE,
    worst: bool = False,
    memory_limit: int | None = None,
    threads: int | None = None,
    deadline: float | None = None,
) -> Backup:
    """The backup of a structure: by components where its effects allow it, else by enumeration."""
    from fmdp.elimination.effects import EffectsBackup

    parts = decompose(structure)
    if parts is None:
        return Backup(
            structure,
            nested=nested,
            shape=shape,
            worst=worst,
            memory_limit=memory_limit,
            threads=threads,
            deadline=deadline,
        )
    return EffectsBackup(
        parts,
        nested=nested,
        shape=shape,
        worst=worst,
        memory_limit=memory_limit,
        threads=threads,
        deadline=deadline,
    )


def check_clock(deadline: float | None) -> None:
    """TimeUp where a deadline, on time.monotonic's clock, has passed."""
    if deadline is not None and time.monotonic() >= deadline:
        raise TimeUp


def usable_cores() -> int:
    """Cores this process may use; FMDP_THREADS overrides (worker processes set it to 1)."""
    setting = os.environ.get("FMDP_THREADS", "").strip()
    if setting:
        if not setting.isdecimal() or int(setting) < 1:
            raise InvalidParameter(
                f"the environment variable FMDP_THREADS must be an integer >= 1; got {setting!r}"
            )
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
        from concurrent.futures import ThreadPoolExecutor

        _POOLS[key] = ThreadPoolExecutor(threads, thread_name_prefix="fmdp-sweep")
    return _POOLS[key]


def _copy_flat(parts: tuple[Vector, ...], out: Vector) -> None:
    start = 0
    for part in parts:
        out[start : start + part.size] = part.reshape(-1)
        start += part.size
