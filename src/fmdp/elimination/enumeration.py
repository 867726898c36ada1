"""The Bellman backup of a factored MDP by elimination, over enumerated joint actions.

    (L h)(s) = max_a  sum_k R_k(s, a) + sum_{s'} prod_i P_i(s'_i | s[Z_i], a) h(s')

over the actions that the constraints allow in s (forbidden.py), without forming an S x S matrix.
The next-state variables are eliminated one group at a time (program.py, kernels.py). A backup is
prepared once per structure and run with many tables.

With optimistic tables the same sweep gives the nested backup: the free mass of factor i goes to the
best value of s'_i given the variables that are not yet eliminated (for boxes to the best values,
each up to its upper end; for balls it is taken from the worst values; steps.py has balls of the
divergence). `worst` chooses the worst
row instead:

    max_a  R + min over p of the set, chosen while s'_i is eliminated

is never above the backup of any model of the set, and the nested maximum is never below it.

Guarantee: equal to the dense backup up to rounding. Cost: see `Layout.multiply_adds`; memory is a
few vectors over the states. Vectors of public methods are in C order of the states unless the
docstring says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp._base.memory import available_memory, describe_bytes, describe_count
from fmdp.elimination import kernels, ties, tuning
from fmdp.elimination.action_classes import ActionClasses, FlatTables, action_classes
from fmdp.elimination.alignment import aligned
from fmdp.elimination.forbidden import charges, charging
from fmdp.elimination.layout import Layout, choose_layout
from fmdp.elimination.program import Program, build_program
from fmdp.elimination.rounding import tie_slack
from fmdp.elimination.split import Rotated, bytes_of, split_layout, take_larger, tiles, transpose
from fmdp.elimination.threads import Share, run_in_pool, usable_cores
from fmdp.elimination.truncation import Truncation, make_truncation, truncate
from fmdp.errors import TooLarge
from fmdp.model import FactoredMDP, OptimisticTables, Structure

Vector = NDArray[np.float64]

_EMPTY = np.zeros(0)
_ONE_SWEEP = tuple(kernels.Pace())
_NO_CHOICE = tuple(kernels.Chosen(np.zeros(0, dtype=np.int64), 0.0, 0, 0))


class _Part(NamedTuple):
    """A program for all joint actions or for some, with one workspace per thread."""

    program: Program
    steps: tuple[Any, ...]
    workspaces: list[tuple[NDArray[Any], ...]]


class Backup:
    """The backup operators of one structure; `load` sets the tables of a model.

    With `share_for`, joint actions with equal tables in that model share their steps, and the
    backup serves that model alone. Otherwise it serves every model of the structure, as learners
    need, and joint actions share steps where the structure declares rows to be alike.
    """

    rotations: tuple[Rotated, ...] = ()
    """Parts into which joint actions are divided where that is faster (split.py)."""
    where: str = ""
    """Words on where the predicted bytes are needed, for messages."""
    compiled: ClassVar[bool] = True
    """Whether sweeps are compiled code; Anderson acceleration then is, too."""

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
        state_bytes: int = tuning.STATE_BYTES,
        preferred_bytes: tuple[int, ...] = (),
        layout: Layout | None = None,
        deadline: Deadline = NEVER,
    ) -> None:
        """Prepare the programs; raise TooLarge above the memory limit, TimeUp past the deadline.
        `shape` is the shape of the sets of nested tables (see `shape_of`); `worst` chooses the rows
        of least value. `state_bytes` are the bytes per state that the caller needs at least for its
        vectors; of `preferred_bytes` the first that fits is left to it, if sweeps are not much
        slower then. `deadline` limits the preparation only."""
        self._configure(structure, nested, shape, worst, threads, memory_limit, state_bytes)
        # Before any array is allocated: the vectors alone may exceed the limit.
        self.require(self.vector_bytes + 16 * structure.n_actions)
        nested, shape, limit = self.nested, self.shape, self.memory_limit
        classes = self._make_tables(share_for, deadline)
        vectors = self.vector_bytes
        if layout is None:
            layout, vectors = self._choose_layout(structure, preferred_bytes, 0, classes, deadline)
        self.layout = layout
        self.roundings = self._count_roundings(self.layout)
        """Largest number of roundings of a number on its way through a backup."""
        caps = 8 * self.layout.table_entries if self.has_caps else 0
        self.predicted_bytes = self.vector_bytes + self.layout.memory(self.threads) + caps
        self.predicted_seconds = self.layout.seconds(self.threads)
        self.require(self.predicted_bytes)

        rotated: tuple[Rotated, ...] = ()
        if share_for is not None and not nested:
            memory = limit - vectors - self.program_bytes
            rotated = split_layout(self.layout, self.threads, memory, deadline)
        self.program: Program = build_program(self.layout, deadline, shape=shape, worst=worst)
        programs = [self.program, *(build_program(part.layout, deadline) for part in rotated)]
        self._whole, *self._parts = self._new_parts(programs)
        self.rotations = rotated
        if rotated:
            self._turned = aligned(structure.n_states), aligned(structure.n_states)
            # Policies are found and certified by the whole program.
            layouts = [self.layout, *(turned.layout for turned in rotated)]
            self.roundings = max(map(self._count_roundings, layouts))
            self.predicted_bytes += bytes_of(rotated, self.layout, self.threads)
            self.predicted_seconds = sum(turned.layout.seconds(self.threads) for turned in rotated)

        sizes = structure.state_sizes
        self._in_order = self.layout.order == tuple(range(structure.m))
        self._internal_shape = tuple(sizes[j] for j in self.layout.order)
        self._inverse = tuple(int(j) for j in np.argsort(self.layout.order))
        deadline.check()
        if share_for is not None:
            self._arrange()

    def _configure(
        self,
        structure: Structure,
        nested: bool,
        shape: int,
        worst: bool,
        threads: int | None,
        memory_limit: int | None,
        state_bytes: int = tuning.STATE_BYTES,
    ) -> None:
        """Set the attributes that do not depend on a layout."""
        self.structure = structure
        # Lower ends and free mass are a box whose upper ends are 1.
        self.shape = kernels.BOX if worst and shape == kernels.FREE else shape
        self.nested = nested or self.shape != kernels.FREE
        cores = threads if threads is not None else usable_cores()
        self.threads = cores if structure.n_states >= tuning.PARALLEL_STATES else 1
        self.memory_limit = available_memory() // 2 if memory_limit is None else memory_limit
        """Bytes for this object and everything that the planner keeps beside it."""
        self.vector_bytes = state_bytes * structure.n_states
        """Bytes for the vectors of the caller, the chosen actions among them."""
        self.decision_bytes = 0
        """Bytes of this object that only the choice of actions needs."""
        self.predicted_bytes = 0
        """Bytes of this object and of the vectors of the caller while actions are chosen."""
        self.deadline: Deadline = NEVER
        """When a sweep raises TimeUp."""
        self._stop = np.zeros(1, dtype=np.int64)
        self.extremes = np.zeros(3)
        """Smallest and largest residual of the last iteration, and the largest |h|."""

    def _make_tables(
        self, share_for: FactoredMDP | OptimisticTables | None, deadline: Deadline
    ) -> ActionClasses | None:
        """Allocate the flat tables; if there is a model to share steps for, fill them and return
        the classes of its joint actions."""
        structure, nested = self.structure, self.nested
        # Constraints that look at the state become reward factors (forbidden.py).
        charged = charging(structure)
        self._tables = FlatTables(
            transitions=np.empty(structure.transition_starts[-1]),
            free=np.empty(structure.row_starts[-1] if nested else 0),
            rewards=np.empty(charged.reward_starts[-1]),
            upper=np.empty(structure.transition_starts[-1] if self.has_caps else 0),
        )
        self._rewards = self._tables.rewards[: structure.reward_starts[-1]]
        self._tables.rewards[len(self._rewards) :] = charges(structure)
        self._bound_to = share_for
        if share_for is None:
            return None
        self._fill(share_for)
        return action_classes(charged, self._tables, deadline)

    def _choose_layout(
        self,
        structure: Structure,
        preferred_bytes: tuple[int, ...],
        others: int,
        classes: ActionClasses | None,
        deadline: Deadline,
    ) -> tuple[Layout, int]:
        """Return the layout, and the bytes that are left to the vectors of the caller: those that
        it prefers if they fit beside `others`, else those that it needs."""
        threads, memory = self.threads, self.memory_limit - others

        def within(limit: int) -> Layout:
            return choose_layout(
                structure,
                nested=self.nested,
                threads=threads,
                memory_limit=limit,
                classes=classes,
                deadline=deadline,
            )

        fastest = within(memory - self.vector_bytes)
        for count in preferred_bytes:
            vectors = count * structure.n_states
            fits = fastest.memory(threads) <= memory - vectors
            layout = fastest if fits else within(memory - vectors)
            fits = layout.memory(threads) <= memory - vectors
            if fits and layout.seconds(threads) <= tuning.SLOWER * fastest.seconds(threads):
                return layout, vectors
        return fastest, self.vector_bytes

    def _new_parts(self, programs: Sequence[Program]) -> list[_Part]:
        """Return the programs with workspaces. All of them share the buffers of a thread, since one
        program runs at a time."""
        arena_size = max(program.arena_size for program in programs)
        leaf_size = max(program.layout.leaf_size for program in programs)
        buffers = [(aligned(arena_size), aligned(leaf_size)) for _ in range(self.threads)]
        order = np.zeros(self.structure.max_state_size + 1, dtype=np.int64)
        parts = []
        for program in programs:
            # The kernel takes the size of a leaf from the length of `best`.
            cells = program.layout.leaf_size
            rooms = [
                kernels.Room(arena, best[:cells], self.extremes, self._stop, order.copy())
                for arena, best in buffers
            ]
            parts.append(_Part(program, tuple(program.steps), [tuple(room) for room in rooms]))
        return parts

    def _count_roundings(self, layout: Layout) -> int:
        """Return an upper bound on the roundings of a number on its way through a backup. A step
        sums the values of its group one after the other, each times a product of the group's rows.
        Rows sum to 1 up to one rounding per value. Rewards are sums of their factors."""
        sizes = self.structure.state_sizes
        total = 2 * self.structure.l + 2
        for group in layout.groups:
            values = [sizes[i] for i in group.members]
            total += math.prod(values) + sum(values) + 2 * len(values) + 4
            # A cap is a difference, and so is the mass left after each value that takes some.
            total += 0 if self.shape == kernels.FREE else 3 * sum(values) + 2
            # Logarithms and their sum, in units of the largest difference of the values.
            total += 8 * sum(values) + 32 if self.shape == kernels.DIVERGENCE else 0
        return total

    def require(self, needed: int) -> None:
        """Raise TooLarge if more bytes are needed than the memory limit allows."""
        limit = self.memory_limit
        if needed > limit:
            raise TooLarge(
                f"exact planning over {describe_count(self.structure.n_states)} states and "
                f"{describe_count(self.structure.n_actions)} joint actions needs "
                f"{describe_bytes(needed)}{self.where}; the memory limit is "
                f"{describe_bytes(limit)}",
                needed_bytes=needed,
                limit_bytes=limit,
            )

    @property
    def program_bytes(self) -> int:
        """Bytes of this object while it sweeps."""
        return self.predicted_bytes - self.decision_bytes - self.vector_bytes

    @property
    def n_states(self) -> int:
        return self.structure.n_states

    @property
    def has_caps(self) -> bool:
        """Whether the upper ends of rows are needed."""
        return self.shape in (kernels.BOX, kernels.DIVERGENCE)

    # ---- tables ---------------------------------------------------------------------------------

    def load(self, tables: FactoredMDP | OptimisticTables) -> None:
        """Set the tables of a model of this structure."""
        if self._bound_to is not None:
            raise RuntimeError("this backup shares steps by the tables of one model")
        self._fill(tables)
        self._arrange()

    def _fill(self, tables: FactoredMDP | OptimisticTables) -> None:
        if isinstance(tables, OptimisticTables):
            if not self.nested:
                raise RuntimeError("optimistic tables need a backup prepared with nested=True")
            # Lower ends with free mass are a box with upper ends 1.
            boxes = (kernels.FREE, kernels.BOX)
            if shape_of(tables) not in (boxes if self.shape == kernels.BOX else (self.shape,)):
                raise RuntimeError("a backup takes sets of the shape that it was prepared for")
            if tables.centre is not None and tables.radius is not None:
                _copy_flat(tables.centre, self._tables.transitions)
                _copy_flat(tables.radius, self._tables.free)
                self._tables.free[:] *= 1.0 if self.shape == kernels.DIVERGENCE else 0.5
            else:
                _copy_flat(tables.lower, self._tables.transitions)
                _copy_flat(tables.free, self._tables.free)
            self._tables.upper[:] = 1.0
            if tables.upper is not None and self.has_caps:
                _copy_flat(tables.upper, self._tables.upper)
        else:
            _copy_flat(tables.transitions, self._tables.transitions)
            self._tables.free[:] = 0.0
            self._tables.upper[:] = 1.0
        _copy_flat(tables.rewards, self._rewards)

    def _arrange(self) -> None:
        """Copy the flat tables into the order in which the steps read them."""
        program, tables, steps = self.program, self._tables, self.program.steps
        for part in (self._whole, *self._parts):
            target = part.program
            kernels.gather_products(tables.transitions, target.row_sources, target.steps.rows)
            kernels.gather_sums(tables.rewards, target.reward_sources, target.steps.rewards)
        if self.nested:
            kernels.gather_sums(tables.free, program.free_sources, steps.free)
        if self.has_caps:
            # Nested layouts fuse no variables: a row of a step is a row of the table.
            caps = tables.upper
            if self.shape == kernels.BOX:
                caps = np.maximum(tables.upper - tables.transitions, 0.0)
            kernels.gather_products(caps, program.row_sources, steps.caps)

    # ---- vectors in elimination order -----------------------------------------------------------

    def to_internal(self, h: Vector) -> Vector:
        """Return a new vector in elimination order."""
        if self._in_order:
            return np.array(h, dtype=np.float64)
        cube = np.asarray(h, dtype=np.float64).reshape(self.structure.state_sizes)
        # ascontiguousarray could return a view of the caller's h if variables have one value.
        return np.array(cube.transpose(self.layout.order), order="C").reshape(-1)

    def to_canonical(self, h: Vector) -> Vector:
        """Return a new vector in C order of the states."""
        if self._in_order:
            return h.copy()
        cube = h.reshape(self._internal_shape).transpose(self._inverse)
        return np.array(cube, order="C").reshape(-1)

    # ---- operators in elimination order ---------------------------------------------------------

    def _over_branches(self, work: Callable[[Share], object]) -> None:
        self.over(self.layout.n_branches, work)

    def over(self, pieces: int, work: Callable[[Share], object]) -> None:
        """Run `work` on all of a number of independent pieces, divided among the threads."""
        self._stop[0] = 0  # an earlier call may have been cut off
        if min(self.threads, pieces) == 1 and self._is_short:
            work((0, 0, pieces))
        else:
            run_in_pool(work, pieces, self.threads, self._stop, self.deadline)

    @property
    def _is_short(self) -> bool:
        """True if a sweep is so short that signals and deadlines can wait for its end."""
        return self.predicted_seconds < tuning.SHORT_SECONDS

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
        source = self._whole if part is None else part
        workspace = source.workspaces[thread]
        kinds = (
            True if self.nested else None,
            True if self.shape in (kernels.BOX, kernels.BALL) else None,
            True if self.shape == kernels.DIVERGENCE else None,
            True if len(pace[-1]) else None,
        )
        arrays = (h, new, scratch, first, end, source.steps, workspace, pace, choice)
        return int(kernels.run(mode, *arrays, *kinds))

    def sweep(self, h: Vector, out: Vector) -> None:
        """Compute out <- L h without discount, both in elimination order."""
        if not self.rotations:
            self._sweep_part(self._whole, h, out)
            return
        turned, values = self._turned
        for rotated, part in zip(self.rotations, self._parts, strict=True):
            if rotated.rows == 1:
                self._sweep_part(part, h, out)
                continue
            self._by_tiles(transpose, rotated, h, turned)
            self._sweep_part(part, turned, values)
            self._by_tiles(take_larger, rotated, values, out)

    def _sweep_part(self, part: _Part, h: Vector, out: Vector) -> None:
        """Compute out <- the maximum over the part's joint actions, both in the part's order."""
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
        """Run mode ITERATE of the kernel: in one compiled call if short, else sweep by sweep."""
        if self.threads == 1 and self._is_short and not self.rotations:
            everything = (0, 0, self.layout.n_branches)
            return self._run(kernels.ITERATE, h, new, everything, scratch=scratch, pace=tuple(pace))
        return iterate_by_sweeps(self.sweep, h, new, scratch, self.extremes, pace)

    def largest(self, value: float) -> float:
        """Return the largest value over all processes that plan together: here there is one."""
        return value

    def mean(self, vector: Vector) -> float:
        """Return the mean of a vector over all states."""
        return float(vector.mean())

    def digest_of_all(self, digest: bytes) -> bytes:
        """Return a digest of what all processes that plan together hold: here there is one."""
        return digest

    def residual(self, h: Vector, new: Vector) -> None:
        """Set `extremes` to the min and max of new - h, and the largest |h|."""
        kernels.residual(h, new, self.extremes)

    def advance(self, h: Vector, new: Vector, pace: kernels.Pace) -> None:
        """Move h to the next iterate, which `iterate` does not do after its last sweep."""
        advance(h, new, self.extremes, pace)

    def truncation(self, budgets: Sequence[float]) -> Truncation:
        """Return the factored-span truncation in elimination order; budgets are by variable."""
        order = self.layout.order
        return make_truncation(self._internal_shape, tuple(budgets[j] for j in order))

    def lowest(self, h: Vector, out: Vector) -> None:
        """Compute out <- min over joint actions (and targets) of R + P h, in elimination order."""
        # min_a (R + P h) = -max_a (-R + P (-h)), and a nested maximum of -h is a minimum of h.
        self._negate_rewards()
        try:
            self._sweep_part(self._whole, -h, out)
        finally:
            self._negate_rewards()
        np.negative(out, out=out)

    def _negate_rewards(self) -> None:
        """Change the sign of the rewards, but not of the charges for forbidden actions."""
        rewards = self.program.steps.rewards
        if len(self._rewards) == len(self._tables.rewards):
            np.negative(rewards, out=rewards)
            return
        np.negative(self._rewards, out=self._rewards)
        kernels.gather_sums(self._tables.rewards, self.program.reward_sources, rewards)

    def greedy_actions(
        self, h: Vector, value: Vector, ties_rule: str, tie_seed: int, slack: float
    ) -> NDArray[np.int64]:
        """Return action indices in C order; h and value = L h are in elimination order. Actions
        within `slack` of the best are tied. `value` is overwritten by the values of the chosen
        actions."""
        actions = np.empty(self.n_states, dtype=np.int64)
        choice = (actions, slack, ties.rule_code(ties_rule), tie_seed)
        self._over_branches(lambda part: self._run(kernels.GREEDY, h, value, part, choice=choice))
        return actions

    def policy_sweep(self, h: Vector, out: Vector, actions: NDArray[np.integer[Any]]) -> None:
        """Compute out <- R_pi + P_pi h; vectors in elimination order, actions in C order."""
        # The kernel would be compiled again for another integer type.
        choice = (np.asarray(actions, dtype=np.int64), *_NO_CHOICE[1:])
        self._over_branches(lambda part: self._run(kernels.POLICY, h, out, part, choice=choice))

    # ---- operators in C order -------------------------------------------------------------------

    def apply(self, h: Vector, discount: float = 1.0) -> Vector:
        """Return max_a (R + discount * P h)."""
        source = self.to_internal(h)
        source *= discount
        out = np.empty_like(source)
        self.sweep(source, out)
        return self.to_canonical(out)

    def greedy(
        self, h: Vector, discount: float = 1.0, ties: str = "first", tie_seed: int = 0
    ) -> tuple[Vector, NDArray[np.int64]]:
        """Return the backup of h and an action per state that attains it."""
        source = self.to_internal(h)
        source *= discount
        out = np.empty_like(source)
        self.sweep(source, out)
        value = self.to_canonical(out)
        slack = self.tie_slack(float(np.abs(source).max()))
        return value, self.greedy_actions(source, out, ties, tie_seed, slack)

    def tie_slack(self, size: float, tolerance: float = np.inf) -> float:
        """Return how far below the best a tied action may be if |h| is at most `size`."""
        structure = self.structure
        return tie_slack(
            structure.reward_unit, size + structure.reward_size, self.roundings, tolerance
        )

    def action_values(self, h: Vector, discount: float = 1.0) -> Vector:
        """Return R + discount * P h, [S, A], with -inf for actions that are not allowed."""
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
        """Return R_pi + discount * P_pi h for one action index per state."""
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
    residual: Callable[[Vector, Vector, Vector], None] = kernels.residual,
) -> int:
    """Run mode ITERATE of the kernel with any sweep(source, out); return the sweeps done.
    `residual` sets the extremes, given h and new."""
    for number in range(1, pace.sweeps + 1):
        source = h
        if pace.discount != 1.0:
            np.multiply(h, pace.discount, out=scratch)
            source = scratch
        sweep(source, new)
        truncate(new, pace.axes, pace.budgets)
        residual(h, new, extremes)
        if extremes[1] - extremes[0] <= pace.tolerance or number == pace.sweeps:
            return number
        advance(h, new, extremes, pace)
    return 0


def advance(h: Vector, new: Vector, extremes: Vector, pace: kernels.Pace) -> None:
    """Compute h <- (1 - tau) h + tau new, less a constant that keeps it bounded."""
    shift = kernels.relative_shift(extremes, pace.tau, pace.discount)
    kernels.advance(h, new, pace.tau, shift)


def shape_of(tables: FactoredMDP | OptimisticTables) -> int:
    """Return the shape of the sets that rows of the tables are chosen from."""
    if not isinstance(tables, OptimisticTables):
        return kernels.FREE
    if tables.radius is not None:
        return kernels.BALL if tables.distance == "l1" else kernels.DIVERGENCE
    return kernels.FREE if tables.upper is None else kernels.BOX


def _copy_flat(parts: tuple[Vector, ...], out: Vector) -> None:
    start = 0
    for part in parts:
        out[start : start + part.size] = part.reshape(-1)
        start += part.size
