"""Groups, axes and branches of an elimination, with what they will cost.

The state tensor h is held in elimination order (first eliminated slowest).  Neighbouring variables
of the order are fused into groups of a few joint values, so that a step is a small matrix product
on long contiguous runs instead of many thin passes.  What a step knows of the *current* state is
either an axis of the tensor or fixed from outside:

* **growing**: a parent that is needed before its turn becomes an axis of the tensor at its first
  use and stays until the end; time and memory times its size while its next value is there too;
* **conditioning**: a variable is fixed and the program is run once for each of its values
  (`branch`).  Variables fixed at the first group cost no extra time, shrink every tensor, keep them
  in cache and hand out independent pieces of work to threads; later ones repeat the groups before.

Both are only a choice of which variables are branches; `choose_layout` prices the candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import inf
from typing import NamedTuple

from fmdp.elimination import kernels as k
from fmdp.elimination.classes import ActionClasses, Look, Step, action_classes, nothing
from fmdp.elimination.forbidden import charging
from fmdp.elimination.order import elimination_order
from fmdp.elimination.places import LINE, ROOM_BETWEEN
from fmdp.model import Structure

# Seconds, measured on one core of an ordinary server; only their ratios matter, for the choices.
_NODE_SECONDS = 1.5e-7  # setting up one step
_RUN_SECONDS = 3e-9  # one inner loop
_LANES_MADD_SECONDS = 4.5e-11  # one multiply-add in cache, where it is one of eight (steps.py)
_MADD_SECONDS = 1.2e-10  # where the kernels are unrolled
_PLAIN_MADD_SECONDS = 2.5e-10  # and where they are not
_MISS_SECONDS = 5e-10  # one tensor element read and written beyond the second-level cache
_READ_SECONDS = 1.2e-10  # one element of h read from there
_CACHE_BYTES = 1 << 20
_SHORT = 1 << 13
_GATHER_SECONDS = 2e-9  # one table entry brought into place, once a solve
_SWEEPS_A_SOLVE = 20
_GROUP_LIMITS = ((1, 1), (4, 8), (8, 8))  # joint values of a group, and of the last group
_UNROLLED = (2, 4, 8)
_MOST_BRANCHES = 1 << 16
_REMEMBERED = 1 << 16  # joint actions times factors of a search that is kept
VECTORS = 6  # over all states at once: h, L h, scratch, actions, bias, and one in passing
PARALLEL_STATES = 1 << 13  # below this threads cost more than they bring


class Group(NamedTuple):
    """One step: which variables go, which come, and the shape of the step."""

    members: tuple[int, ...]  # eliminated here, in order
    opened: tuple[int, ...]  # parents that become axes here, before their own turn
    own: tuple[int, ...]  # members that become axes here
    context: tuple[int, ...]  # known variables on which the rows depend (own excluded)
    rewards: tuple[int, ...]  # reward factors whose scope is known from here on
    reward_context: tuple[int, ...]
    outer: int
    rep: int
    n_v: int
    n_u: int
    inner: int

    @property
    def out_size(self) -> int:
        return self.outer * self.rep * self.n_u * self.inner

    @property
    def seconds(self) -> float:
        # What is small is measured by its overheads, which stay what they are.
        in_lanes = self.n_u > 1 and self.inner >= LINE and self.out_size >= _SHORT
        runs = self.outer * self.rep * (1 if self.inner == 1 or in_lanes else self.n_u)
        rate = _PLAIN_MADD_SECONDS
        if self.n_v in _UNROLLED:
            rate = _LANES_MADD_SECONDS if in_lanes else _MADD_SECONDS
        work = self.out_size * self.n_v * rate + runs * _RUN_SECONDS
        if 8 * self.out_size > _CACHE_BYTES:
            work += self.out_size * _MISS_SECONDS
        return work + _NODE_SECONDS


@dataclass(frozen=True)
class Layout:
    """Order, groups and branches, with what they will cost; nothing of size S is made yet."""

    structure: Structure
    classes: ActionClasses
    order: tuple[int, ...]
    nested: bool
    branch: tuple[int, ...]
    pieces: tuple[tuple[int, ...], ...]
    """The order, cut into what each group eliminates."""

    @cached_property
    def _laid_out(self) -> tuple[tuple[Group, ...], tuple[int, ...]]:
        return _lay_out(self.structure, self.pieces, self.branch)

    @property
    def groups(self) -> tuple[Group, ...]:
        return self._laid_out[0]

    @property
    def axes(self) -> tuple[int, ...]:
        """Of the final tensor, slowest first."""
        return self._laid_out[1]

    @cached_property
    def n_branches(self) -> int:
        return volume(self.branch, self.structure.state_sizes)

    @cached_property
    def leaf_size(self) -> int:
        return volume(self.axes, self.structure.state_sizes)

    @cached_property
    def buffer_sizes(self) -> tuple[int, ...]:
        return tuple(group.out_size for group in self.groups)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return tuple((group.members, group.rewards) for group in self.groups)

    @cached_property
    def class_counts(self) -> tuple[int, ...]:
        """Tables of each group."""
        return tuple(len(self.classes.of_group(step)[1]) for step in self.steps)

    @cached_property
    def node_counts(self) -> tuple[int, ...]:
        """Steps of each group for one branch: the distinct beginnings of the actions' classes."""
        return self.classes.of_beginnings(self.steps)

    @cached_property
    def multiply_adds(self) -> int:
        """Multiply-adds of one sweep."""
        return self.n_branches * sum(
            nodes * group.out_size * group.n_v
            for nodes, group in zip(self.node_counts, self.groups, strict=True)
        )

    @cached_property
    def table_entries(self) -> int:
        sizes = self.structure.state_sizes
        total = 0
        for group, classes in zip(self.groups, self.class_counts, strict=True):
            rows = classes * volume(group.context, sizes)
            total += rows * group.n_v * group.n_u * len(group.members)
            if group.rewards:
                total += classes * volume(group.reward_context, sizes) * group.n_u
        return total

    def seconds(self, threads: int) -> float:
        """Predicted time of a sweep, table building spread over the sweeps of a short solve."""
        sweep = self.n_branches * sum(
            nodes * group.seconds
            for nodes, group in zip(self.node_counts, self.groups, strict=True)
        )
        states = self.structure.n_states
        sweep += self._reading(self.node_counts[0])
        if threads > 1 and states >= PARALLEL_STATES:
            sweep /= min(threads, self.n_branches)
        return sweep + self.table_entries * _GATHER_SECONDS / _SWEEPS_A_SOLVE

    def _reading(self, first_steps: int) -> float:
        """Time to read h from afar, where it does not stay in the cache."""
        states = self.structure.n_states
        far = 8 * states > _CACHE_BYTES
        return self.n_branches * first_steps * states * _READ_SECONDS if far else 0.0

    def least_seconds(self, whole: Layout, threads: int) -> float:
        """Never more than `seconds`, and told without laying anything out; `whole` is the same
        without branches: with them there are no fewer steps in a branch, and no less to do."""
        least = self._reading(whole.node_counts[0])
        for nodes, group in zip(whole.node_counts, whole.groups, strict=True):
            # Of the current variables those are known that have come into play or are fixed.
            known = max(group.out_size // group.inner, self.n_branches)
            rate = _LANES_MADD_SECONDS if group.n_v in _UNROLLED else _PLAIN_MADD_SECONDS
            work = group.n_v * group.inner * known * rate
            least += nodes * (work + self.n_branches * _NODE_SECONDS)
        return least / min(threads, self.n_branches)

    def memory(self, threads: int) -> int:
        """Bytes needed to plan: vectors over all states, buffers, tables with their indices."""
        vectors = VECTORS * 8 * self.structure.n_states
        between = ROOM_BETWEEN * len(self.groups)
        buffers = 8 * threads * (sum(self.buffer_sizes) + between + self.leaf_size)
        contexts = 16 * sum(group.outer * group.rep for group in self.groups)
        leaves = 16 * self.leaf_size
        nodes = 8 * k.N_NODE_FIELDS * sum(self.node_counts)
        return vectors + buffers + contexts + leaves + nodes + 24 * self.table_entries


def volume(variables: Iterable[int], sizes: Sequence[int]) -> int:
    """The number of joint values of these variables."""
    result = 1
    for variable in variables:
        result *= sizes[variable]
    return result


def make_layout(
    structure: Structure,
    order: tuple[int, ...],
    classes: ActionClasses,
    *,
    nested: bool,
    limit: int,
    last_limit: int,
    branch: tuple[int, ...],
    first_full: bool = False,
) -> Layout:
    """Groups of at most `limit` (the last of `last_limit`) joint values, with these branches; the
    odd piece comes first, or second with `first_full`."""
    # Nested targets are chosen variable by variable: nothing is fused, not even single values.
    limits = (0, 0) if nested else (limit, last_limit)
    pieces = _cut(order, structure.state_sizes, *limits, first_full)
    return Layout(structure, classes, order, nested, branch, pieces)


def _lay_out(
    structure: Structure, pieces: Sequence[tuple[int, ...]], branch: tuple[int, ...]
) -> tuple[tuple[Group, ...], tuple[int, ...]]:
    """The groups of a layout, and the axes of its final tensor."""
    sizes = structure.state_sizes
    scopes, reward_scopes = _state_scopes(structure)
    waiting = list(range(structure.l))
    known = set(branch)  # and what is eliminated
    axes: list[int] = []
    groups: list[Group] = []
    outer, inner = 1, structure.n_states
    for members in pieces:
        joint = volume(members, sizes)
        inner //= joint
        parents: set[int] = set().union(*(scopes[i] for i in members))
        opened = tuple(sorted(parents.difference(members, known)))
        own = tuple(i for i in members if i not in known)
        context = tuple(sorted(parents.union(members).difference(own)))
        known.update(opened, members)
        rewards = tuple(f for f in waiting if known >= reward_scopes[f])
        waiting = [f for f in waiting if f not in rewards]
        reward_parents: set[int] = set().union(*(reward_scopes[f] for f in rewards))
        group = Group(
            members=members,
            opened=opened,
            own=own,
            context=context,
            rewards=rewards,
            reward_context=tuple(sorted(reward_parents.difference(own))),
            outer=outer,
            rep=volume(opened, sizes),
            n_v=joint,
            n_u=volume(own, sizes),
            inner=inner,
        )
        groups.append(group)
        outer *= group.rep * group.n_u
        axes += [*opened, *own]
    return tuple(groups), tuple(axes)


@lru_cache(maxsize=16)  # a search makes some forty layouts of one structure
def _state_scopes(structure: Structure) -> tuple[list[frozenset[int]], list[frozenset[int]]]:
    """The state variables that each transition and each reward factor looks at."""
    return (
        [frozenset(structure.state_scope(i)) for i in range(structure.m)],
        [frozenset(structure.reward_state_scope(f)) for f in range(structure.l)],
    )


def _cut(
    order: tuple[int, ...], sizes: Sequence[int], limit: int, last_limit: int, first_full: bool
) -> tuple[tuple[int, ...], ...]:
    """The order cut into groups from its end, so that odd pieces come where runs are longest."""
    first = 0
    if first_full:
        first, joint = 1, sizes[order[0]]
        while first < len(order) and joint * sizes[order[first]] <= limit:
            joint *= sizes[order[first]]
            first += 1
    pieces: list[tuple[int, ...]] = []
    end = len(order)
    while end > first:
        start, joint = end - 1, sizes[order[end - 1]]
        most = limit if pieces else last_limit
        while start > first and joint * sizes[order[start - 1]] <= most:
            start -= 1
            joint *= sizes[order[start]]
        pieces.append(order[start:end])
        end = start
    return tuple(([order[:first]] if first else []) + pieces[::-1])


@lru_cache(maxsize=16)
def _candidates(
    structure: Structure, nested: bool, classes: ActionClasses, order: tuple[int, ...] | None
) -> tuple[tuple[Layout, ...], ...]:
    """The layouts to choose from: for every size of groups one without branches, and those with
    more and more.  Choosing a planner, planning and evaluating ask for the same."""
    order = elimination_order(structure) if order is None else order
    found: list[tuple[Layout, ...]] = []
    cuts = [(*limits, False) for limits in (((1, 1),) if nested else _GROUP_LIMITS)]
    # Where h is read from afar, the more of it goes in the first step the better.
    if not nested and 8 * structure.n_states > _CACHE_BYTES:
        cuts += [(*limits, True) for limits in _GROUP_LIMITS[1:]]
    for limit, last_limit, first_full in cuts:
        without = make_layout(
            structure,
            order,
            classes,
            nested=nested,
            limit=limit,
            last_limit=last_limit,
            branch=(),
            first_full=first_full,
        )
        branches = [without.axes[:length] for length in range(1, len(without.axes) + 1)]
        few = [own for own in branches if volume(own, structure.state_sizes) <= _MOST_BRANCHES]
        found.append((without, *(replace(without, branch=own) for own in few)))
    return tuple(found)


def choose_layout(
    structure: Structure,
    *,
    nested: bool = False,
    threads: int = 1,
    memory_limit: int | None = None,
    classes: ActionClasses | None = None,
    order: tuple[int, ...] | None = None,
    look: Look = nothing,
) -> Layout:
    """The leanest of the fastest layouts that fit; the leanest of all if none does.

    Candidates: sizes of groups, and as branches every beginning of the sequence in which current
    variables come into play (the first ones cost nothing extra; each later one trades time for
    memory), as far as conditioning pays at all.  `order`: another one than the cheapest.
    """
    structure = charging(structure)
    if classes is None:
        classes = action_classes(structure, look=look)
    few = classes.transitions.size + classes.rewards.size <= _REMEMBERED
    search = _candidates if few else _candidates.__wrapped__
    found = search(structure, nested, classes, order)
    candidates = [layout for own in found for layout in own]
    least: list[float] = []
    for own in found:
        look()
        least += [layout.least_seconds(own[0], threads) for layout in own]
    fitting: dict[int, float] = {}
    good_enough = inf
    for at in sorted(range(len(candidates)), key=least.__getitem__):
        look()
        if least[at] > good_enough:
            break
        if memory_limit is None or candidates[at].memory(threads) <= memory_limit:
            fitting[at] = candidates[at].seconds(threads)
            # The prediction is not good to a few percent: among equals the leanest.
            good_enough = min(good_enough, 1.05 * fitting[at])
    fast = [candidates[at] for at in sorted(fitting) if fitting[at] <= good_enough]
    return min(fast or candidates, key=lambda layout: layout.memory(threads))
