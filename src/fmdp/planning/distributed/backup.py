"""The Bellman backup over the ranks of an MPI job: the engine's steps on both sides of a cut.

cut.py says how the work is divided.  The steps are those of the elimination engine, run on one cell
or one joint value of the known variables at a time.  For every class of actions that the first
groups distinguish, T is exchanged once; L h, the maximum over all actions, is exchanged once.

Vectors of this class hold one rank's cells, each in the order of `Cut.cell_order`.  Actions are
divided as L h is before the last exchange: by `known`, then in the order of `Cut.others`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp._base.deadlines import NEVER, Deadline
from fmdp._base.memory import available_memory
from fmdp.elimination import kernels as k
from fmdp.elimination import ties
from fmdp.elimination.alignment import aligned, next_start
from fmdp.elimination.backup import Backup, iterate_by_sweeps
from fmdp.elimination.layout import Layout, choose_layout
from fmdp.elimination.program import build_program
from fmdp.elimination.threads import Share
from fmdp.model import FactoredMDP
from fmdp.model.spaces import encode
from fmdp.planning.distributed.cut import choose_cut
from fmdp.planning.distributed.exchange import Redistribution, permute
from fmdp.planning.distributed.ranks import Ranks
from fmdp.planning.distributed.share import RankShare

Vector = NDArray[np.float64]
Index = NDArray[np.int64]

_NONE = np.zeros(0)
_KINDS = (None, None, None, None)
_ONE_SWEEP = tuple(k.Pace())
_NO_CHOICE = tuple(k.Chosen(np.zeros(0, dtype=np.int64), 0.0, 0, 0))


class _Half(NamedTuple):
    """The steps on one side of the cut: one program per class of actions that the cut separates."""

    programs: list[tuple[Any, ...]]
    room: tuple[Any, ...]


class RanksBackup(Backup):
    """The backup of one model, divided among ranks; all ranks call its methods together.

    Raises TooLarge if a rank needs more than its memory limit, InvalidParameter if there are more
    ranks than the model can be divided among, TimeUp past the deadline.
    """

    def __init__(
        self,
        model: FactoredMDP,
        ranks: Ranks,
        *,
        memory_limit: int | None = None,
        deadline: Deadline = NEVER,
    ) -> None:
        if memory_limit is None:
            memory_limit = available_memory() // (2 * ranks.on_this_machine)
        memory_limit = -int(ranks.largest(np.array([-float(memory_limit)]))[0])
        self.ranks = ranks
        self.where = f" on each of {ranks.size} MPI ranks"
        self.share = self._prepare(model, ranks.size, ranks.rank, memory_limit, deadline)
        self.cut, self.layout = self.share.cut, self.share.cut.layout
        self.roundings = self._count_roundings(self.layout)
        # Not divided by the ranks: it decides how many sweeps are made between two tests.
        self.predicted_seconds = self.layout.seconds(1)
        self.predicted_bytes = int(self.largest(float(self.share.bytes_needed)))
        self.require(self.predicted_bytes)
        self._first = self._first_half(self._filled(self.cut.first_layout, deadline))
        self._second = self._second_half(self._filled(self.layout, deadline))
        share = self.share
        self._return = Redistribution(share.known, share.cells, ranks.rank)
        self._by_known, self._piece = aligned(share.n_actions), aligned(share.known.piece_size)
        self._sent, self._received = (aligned(size) for size in share.buffer_sizes)
        self._later = aligned(share.n_later)
        in_order = self.cut.later[: len(self.cut.spread)] == self.cut.spread
        self._by_cell = self._later if in_order else aligned(share.n_later)
        self.predicted_bytes_sent = 0
        """Bytes that this rank should have sent to others so far, from the sizes of the shares."""

    def _prepare(
        self, model: FactoredMDP, size: int, rank: int, memory_limit: int, deadline: Deadline
    ) -> RankShare:
        """Make the tables, and return the share of a rank."""
        structure = model.structure
        self._configure(structure, False, k.FREE, False, 1, memory_limit)
        classes = self._make_tables(model, deadline)
        layout = choose_layout(structure, threads=1, classes=classes, deadline=deadline)
        return RankShare(choose_cut(layout, size), size, rank)

    @classmethod
    def share_of(cls, model: FactoredMDP, size: int, rank: int = 0) -> RankShare:
        """Return the share of a rank among so many, for predictions: no vector is made."""
        return cls.__new__(cls)._prepare(model, size, rank, 0, NEVER)

    def place_of(self, state: tuple[int, ...]) -> int | None:
        """Return where a state is in the vectors of this rank, None if another rank has it."""
        share = self.share
        order = (*share.cells.by, *share.cells.others)
        sizes = tuple(self.structure.state_sizes[j] for j in order)
        place = encode(tuple(state[j] for j in order), sizes) - share.first_state
        return place if 0 <= place < share.n_states else None

    def _filled(self, layout: Layout, deadline: Deadline) -> k.Steps:
        """Return the steps of a layout with the tables of the model."""
        program = build_program(layout, deadline)
        k.gather_products(self._tables.transitions, program.row_sources, program.steps.rows)
        k.gather_sums(self._tables.rewards, program.reward_sources, program.steps.rewards)
        return program.steps

    def _first_half(self, steps: k.Steps) -> _Half:
        """Return the steps before the cut, for one cell: one chain of steps per class."""
        share = self.share
        levels, arena_size = _with_buffers(steps.levels, self.cut.n_cells)
        # T is stored as [known, own cells, run].
        places = np.arange(self.cut.n_known) * ((len(share.cell_starts) - 1) * share.run_size)
        offsets = (places[:, None] + np.arange(share.run_size)[None, :]).reshape(-1)
        steps = steps._replace(levels=levels, offsets=np.stack([offsets, offsets, offsets]))
        chains = [tuple(steps._replace(nodes=nodes)) for nodes in _chains(steps.nodes)]
        return _Half(chains, self._room(arena_size, len(offsets)))

    def _second_half(self, steps: k.Steps) -> _Half:
        """Return the steps after the cut, for one joint value of `known`: one tree per class."""
        cut, leaf_size = self.cut, self.layout.leaf_size
        levels, arena_size = _with_buffers(steps.levels[cut.first :])
        # L h and the actions of one joint value of `known` are stored in the order of computation.
        n_further = self.layout.n_branches // cut.n_known
        bases = np.arange(self.layout.n_branches) % n_further * leaf_size
        piece = np.arange(leaf_size)
        steps = steps._replace(
            levels=levels,
            branch_bases=np.stack([bases, steps.branch_bases[1], bases]),
            branch_rows=np.ascontiguousarray(steps.branch_rows[:, :, cut.first :]),
            offsets=np.stack([piece, steps.offsets[1], piece]),
        )
        trees = [tuple(steps._replace(nodes=nodes)) for nodes in _trees(steps.nodes, cut.first)]
        return _Half(trees, self._room(arena_size, leaf_size))

    def _room(self, arena_size: int, leaf_size: int) -> tuple[Any, ...]:
        order = np.zeros(self.structure.max_state_size + 1, dtype=np.int64)
        arena, best = aligned(arena_size), aligned(leaf_size)
        return tuple(k.Room(arena, best, np.zeros(3), self._stop, order))

    # ---- what the ranks do together -------------------------------------------------------------

    def over(self, pieces: int, work: Callable[[Share], object]) -> None:
        """Run `work` on all pieces: a rank has one thread."""
        work((0, 0, pieces))

    def largest(self, value: float) -> float:
        return float(self.ranks.largest(np.array([value]))[0])

    def digest_of_all(self, digest: bytes) -> bytes:
        return hashlib.sha256(b"".join(self.ranks.all_of(digest))).digest()

    def mean(self, vector: Vector) -> float:
        sums = [float(vector[a:b].sum()) for a, b in pairwise(self.share.cell_starts)]
        counts = [len(self.share.cells.pieces_of(rank)) for rank in range(self.ranks.size)]
        return float(self.ranks.gather(np.array(sums), counts).sum()) / self.n_states

    def by_known(self, vector: Vector) -> Vector:
        """Return a vector that is divided by `known` instead of by cells."""
        share = self.share
        out = aligned(share.n_actions)
        move = Redistribution(share.cells, share.known, share.rank)
        move.move(vector, self._sent, self._received, out, self.ranks)
        self.predicted_bytes_sent += move.bytes_sent
        return out

    def residual(self, h: Vector, new: Vector) -> None:
        self._set_extremes(h, new, self.extremes)

    def _set_extremes(self, h: Vector, new: Vector, extremes: Vector) -> None:
        k.residual(h, new, extremes)
        extremes[0] = -extremes[0]
        extremes[:] = self.ranks.largest(extremes)
        extremes[0] = -extremes[0]

    def iterate(self, h: Vector, new: Vector, scratch: Vector, pace: k.Pace) -> int:
        sweep, residual = self.sweep, self._set_extremes
        return iterate_by_sweeps(sweep, h, new, scratch, self.extremes, pace, residual)

    def sweep(self, h: Vector, out: Vector) -> None:
        self._backup(k.BACKUP, h)
        self._give_back(out)

    def policy_sweep(self, h: Vector, out: Vector, actions: NDArray[np.integer[Any]]) -> None:
        """Compute out <- R_pi + P_pi h; the actions are those of this rank's known values."""
        self._backup(k.POLICY, h, np.asarray(actions, dtype=np.int64))
        self._give_back(out)

    def greedy_actions(
        self, h: Vector, value: Vector, ties_rule: str, tie_seed: int, slack: float
    ) -> Index:
        """Return the actions of this rank's known values; `value` is set to what they are worth."""
        self._backup(k.BACKUP, h)
        actions = np.full(self.share.n_actions, -1, dtype=np.int64)
        worth = np.empty_like(self._by_known)
        choice = (slack, ties.rule_code(ties_rule), tie_seed)
        tried = np.empty(self.share.known.piece_size, dtype=np.int64)

        def choose(node: int, known: int, place: slice) -> None:
            self._piece[:] = self._by_known[place]
            self._run_second(k.GREEDY, node, known, self._piece, (tried, *choice))
            steps = self._second.programs[node]
            first, end = self._branches(known)
            part = (tried, self._piece, actions[place], worth[place])
            _take_preferred(steps, first, end, choice, *part)

        self._walk(h, choose)
        self._by_known[:] = worth
        self._give_back(value)
        return actions

    def _backup(self, mode: int, h: Vector, actions: Index | None = None) -> None:
        """Set L h, divided by `known`: the maximum of what the classes of actions are worth."""

        def take(node: int, known: int, place: slice) -> None:
            out = self._by_known[place] if node == 0 else self._piece
            choice = _NO_CHOICE if actions is None else (actions[place], *_NO_CHOICE[1:])
            self._run_second(mode, node, known, out, choice)
            if node > 0:
                np.maximum(self._by_known[place], out, out=self._by_known[place])

        self._walk(h, take)

    def _walk(self, h: Vector, take: Callable[[int, int, slice], None]) -> None:
        """Compute T for every class of actions, and call take(class, known, place) for each joint
        value of `known` of this rank with T in `_later`; `place` is where its numbers are."""
        ranks, share = self.ranks, self.share
        pieces, size = share.known.pieces_of(share.rank), share.known.piece_size
        self.predicted_bytes_sent += share.bytes_between
        counts, received_counts = share.sent_counts, share.received_counts
        sent, received = self._sent[: sum(counts)], self._received[: sum(received_counts)]
        for node in range(len(self._first.programs)):
            ranks.check(self.deadline)
            self._run_first(node, h)
            ranks.exchange(sent, counts, received, received_counts)
            for number, known in enumerate(pieces):
                self._collect(number, len(pieces))
                take(node, known, slice(number * size, (number + 1) * size))

    def _run_first(self, node: int, h: Vector) -> None:
        """Compute T of the own cells for all joint values of `known`: [known, own cells, run]."""
        steps, room = self._first.programs[node], self._first.room
        for cell, (start, end) in enumerate(pairwise(self.share.cell_starts.tolist())):
            source, out = h[start:end], self._sent[cell * self.share.run_size :]
            k.run(k.BACKUP, source, out, _NONE, 0, 1, steps, room, _ONE_SWEEP, _NO_CHOICE, *_KINDS)

    def _collect(self, number: int, n_pieces: int) -> None:
        """Set `_later` to T of all cells for one of this rank's joint values of `known`."""
        cut, run, start = self.cut, self.share.run_size, 0
        cells = self._by_cell.reshape(cut.n_cells, run)
        for sender in range(self.ranks.size):
            held = self.share.cells.pieces_of(sender)
            size = len(held) * run
            block = self._received[start + number * size : start + (number + 1) * size]
            cells[held.start : held.stop] = block.reshape(len(held), run)
            start += n_pieces * size
        if self._by_cell is not self._later:
            rest = tuple(j for j in cut.later if j not in cut.spread)
            sizes = self.structure.state_sizes
            permute(self._by_cell, (*cut.spread, *rest), cut.later, {}, sizes, self._later)

    def _branches(self, known: int) -> tuple[int, int]:
        """Return the first branch of one joint value of `known`, and the end."""
        further = self.layout.n_branches // self.cut.n_known
        return known * further, (known + 1) * further

    def _run_second(
        self, mode: int, node: int, known: int, out: Vector, choice: tuple[Any, ...]
    ) -> None:
        steps, room = self._second.programs[node], self._second.room
        branches = self._branches(known)
        k.run(mode, self._later, out, _NONE, *branches, steps, room, _ONE_SWEEP, choice, *_KINDS)

    def _give_back(self, out: Vector) -> None:
        """Redistribute L h from the division by `known` to the division by cells."""
        self.predicted_bytes_sent += self._return.bytes_sent
        self._return.move(self._by_known, self._sent, self._received, out, self.ranks)


def _with_buffers(levels: Index, n_cells: int = 1) -> tuple[Index, int]:
    """Return levels whose tensors lie one after the other, and the size of all; `n_cells` divides
    the runs of tensors."""
    levels = levels.copy()
    levels[:, k.INNER] //= n_cells
    buffer = end = 0
    for level in levels:
        level[k.BUFFER] = buffer
        end = buffer + int(level[[k.OUTER, k.REP, k.U, k.INNER]].prod())
        buffer = next_start(buffer, end)
    return levels, end


def _chains(nodes: Index) -> list[Index]:
    """Return for every leaf of a tree of steps the steps that lead to it."""
    depth = int(nodes[:, k.LEVEL].max()) + 1
    path = np.zeros((depth, k.N_NODE_FIELDS), dtype=np.int64)
    chains: list[Index] = []
    for node in nodes:
        path[node[k.LEVEL]] = node
        if node[k.LEAF] >= 0:
            chains.append(path.copy())
    return chains


def _trees(nodes: Index, first: int) -> list[Index]:
    """Return for every step of the last level before the cut the steps that follow it."""
    roots = np.flatnonzero(nodes[:, k.LEVEL] == first - 1)
    trees: list[Index] = []
    for following in np.split(nodes, roots)[1:]:
        tree = following[following[:, k.LEVEL] >= first].copy()
        tree[:, k.LEVEL] -= first
        trees.append(tree)
    return trees


@njit(nogil=True)
def _take_preferred(  # type: ignore[no-untyped-def]
    steps, first, end, choice, tried, worth_tried, actions, worth
):
    """Replace actions by those tried for another class where ties prefer these; -1 is none."""
    steps = k.Steps(*steps)
    slack, rule, seed = choice
    chosen = k.Chosen(actions, slack, rule, seed)
    at = 0
    for b in range(first, end):
        for cell in range(steps.offsets.shape[1]):
            state = steps.branch_bases[1, b] + steps.offsets[1, cell]
            action = tried[at]
            if action >= 0 and k.is_preferred(chosen, state, action, actions[at]):
                actions[at] = action
                worth[at] = worth_tried[at]
            at += 1
