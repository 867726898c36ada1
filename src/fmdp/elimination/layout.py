"""Groups, axes and branches of an elimination, with their predicted cost.

The state tensor h is held in elimination order (first eliminated slowest). Neighbouring variables
of the order are fused into groups of a few joint values, so that a step is a small matrix product
on long contiguous runs instead of many thin passes. The variables of the *current* state that a
step depends on are either axes of the tensor or fixed from outside:

* **growing**: a parent that is needed before its turn becomes an axis of the tensor at its first
  use and stays until the end. Time and memory are multiplied by its size while its next value is
  present too;
* **conditioning**: a variable is fixed and the program is run once for each of its values
  (`branch`). Variables fixed at the first group cost no extra time, shrink every tensor, keep them
  in cache and give independent pieces of work to threads; later ones repeat the earlier groups.

A layout chooses which variables are branches; `choose_layout` prices the candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import inf, prod
from typing import NamedTuple

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.elimination import kernels as k
from fmdp.elimination import tuning
from fmdp.elimination.action_classes import ActionClasses, Step, action_classes
from fmdp.elimination.alignment import LARGEST_GAP, LINE
from fmdp.elimination.forbidden import charging
from fmdp.elimination.order import elimination_order
from fmdp.model import Structure

_ROUNDED_DOWN = 1.0 - 1e-9
"""Factor that keeps a lower bound on a predicted time below it in spite of rounding."""


class Group(NamedTuple):
    """One step: the variables that are eliminated and that become axes, and the tensor's shape."""

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
        return self.seconds_of(self.out_size, self.outer * self.rep)

    def seconds_of(self, size: int, cells: int) -> float:
        """Return the predicted time of a step with an output of this size and so many cells
        (o, r)."""
        in_lanes = self.n_u > 1 and self.inner >= LINE and size >= tuning.SHORT_TENSOR
        runs = cells * (1 if self.inner == 1 or in_lanes else self.n_u)
        rate = tuning.PLAIN_MADD_SECONDS
        if self.n_v in tuning.UNROLLED:
            rate = tuning.LANES_MADD_SECONDS if in_lanes else tuning.MADD_SECONDS
        work = size * self.n_v * rate + runs * tuning.RUN_SECONDS
        if 8 * size > tuning.CACHE_BYTES:
            work += size * tuning.MISS_SECONDS
        return work + tuning.NODE_SECONDS


@dataclass(frozen=True)
class Layout:
    """Order, groups and branches with their predicted cost; no array of size S is allocated."""

    structure: Structure
    classes: ActionClasses
    order: tuple[int, ...]
    nested: bool
    branch: tuple[int, ...]
    pieces: tuple[tuple[int, ...], ...]
    """The order, cut into the members of each group."""
    first_with_rewards: int = 0
    """The first group that adds rewards."""

    @cached_property
    def _laid_out(self) -> tuple[tuple[Group, ...], tuple[int, ...]]:
        return _lay_out(self.structure, self.pieces, self.branch, self.first_with_rewards)

    @property
    def groups(self) -> tuple[Group, ...]:
        return self._laid_out[0]

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes of the final tensor, slowest first."""
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
        """Number of tables of each group."""
        return tuple(len(self.classes.of_group(step)[1]) for step in self.steps)

    @cached_property
    def node_counts(self) -> tuple[int, ...]:
        """Steps of each group for one branch: the distinct prefixes of the actions' classes."""
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
        """Return the predicted time of a sweep, with the table building spread over a short
        solve."""
        sweep = self.n_branches * sum(
            nodes * group.seconds
            for nodes, group in zip(self.node_counts, self.groups, strict=True)
        )
        states = self.structure.n_states
        sweep += self._reading(self.node_counts[0])
        if threads > 1 and states >= tuning.PARALLEL_STATES:
            sweep /= min(threads, self.n_branches)
        return sweep + self.table_entries * tuning.GATHER_SECONDS / tuning.SWEEPS_PER_SOLVE

    def _reading(self, first_steps: int) -> float:
        """Return the time to read h from beyond the cache, 0 if it stays there."""
        states = self.structure.n_states
        far = 8 * states > tuning.CACHE_BYTES
        return self.n_branches * first_steps * states * tuning.READ_SECONDS if far else 0.0

    def least_seconds(self, whole: Layout, threads: int) -> float:
        """Return a lower bound on `seconds` that needs no groups of this layout. `whole` is the
        same layout without branches: with branches there are no fewer steps in a branch, and no
        less work. The bound is near: only the tables are left out, and a step is priced as if the
        branches took none of its own variables."""
        branches = self.n_branches
        sweep = 0.0
        for nodes, group in zip(whole.node_counts, whole.groups, strict=True):
            # The known current variables are the axes so far and the branches; both are beginnings
            # of the same sequence.
            known = max(group.out_size // group.inner, branches)
            size = known * group.inner // branches
            sweep += nodes * group.seconds_of(size, size // (group.inner * group.n_u))
        least = branches * sweep + self._reading(whole.node_counts[0])
        return least / min(threads, branches) * _ROUNDED_DOWN

    def memory(self, threads: int) -> int:
        """Return the bytes of the program of a sweep: buffers, tables with indices."""
        return self.buffer_bytes(threads) + self.table_bytes

    def buffer_bytes(self, threads: int) -> int:
        """Return the bytes of the tensors between the steps, and of the values of a leaf."""
        gaps = LARGEST_GAP * len(self.groups)
        return 8 * threads * (sum(self.buffer_sizes) + gaps + self.leaf_size)

    @property
    def table_bytes(self) -> int:
        """Bytes of the tables in the order of the steps, and of their indices."""
        contexts = 16 * sum(group.outer * group.rep for group in self.groups)
        leaves = 16 * self.leaf_size
        nodes = 8 * k.N_NODE_FIELDS * sum(self.node_counts)
        return contexts + leaves + nodes + 24 * self.table_entries


def volume(variables: Iterable[int], sizes: Sequence[int]) -> int:
    """Return the number of joint values of these variables."""
    return prod(map(sizes.__getitem__, variables))


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
    """Return the layout with groups of at most `limit` joint values, and with these branches. The
    last group may have `last_limit` joint values. The remainder is the first group, or the second
    with `first_full`."""
    # Nested targets are chosen variable by variable: no variables are fused, whatever their size.
    limits = (0, 0) if nested else (limit, last_limit)
    pieces = _cut(order, structure.state_sizes, *limits, first_full)
    return Layout(structure, classes, order, nested, branch, pieces)


def _lay_out(
    structure: Structure,
    pieces: Sequence[tuple[int, ...]],
    branch: tuple[int, ...],
    first_with_rewards: int,
) -> tuple[tuple[Group, ...], tuple[int, ...]]:
    """Return the groups of a layout, and the axes of its final tensor."""
    sizes = structure.state_sizes
    scopes, reward_scopes = _state_scopes(structure)
    waiting = list(range(structure.l))
    known = set(branch)  # and what is eliminated
    axes: list[int] = []
    groups: list[Group] = []
    outer, inner = 1, structure.n_states
    for number, members in enumerate(pieces):
        joint = volume(members, sizes)
        inner //= joint
        parents: set[int] = set().union(*(scopes[i] for i in members))
        opened = tuple(sorted(parents.difference(members, known)))
        own = tuple(i for i in members if i not in known)
        context = tuple(sorted(parents.union(members).difference(own)))
        known.update(opened, members)
        adds = number >= first_with_rewards
        rewards = tuple(f for f in waiting if adds and known >= reward_scopes[f])
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


@lru_cache(maxsize=16)  # a search makes about forty layouts of one structure
def _state_scopes(structure: Structure) -> tuple[list[frozenset[int]], list[frozenset[int]]]:
    """Return the state variables of each transition factor and of each reward factor."""
    return (
        [frozenset(structure.state_scope(i)) for i in range(structure.m)],
        [frozenset(structure.reward_state_scope(f)) for f in range(structure.l)],
    )


def _cut(
    order: tuple[int, ...], sizes: Sequence[int], limit: int, last_limit: int, first_full: bool
) -> tuple[tuple[int, ...], ...]:
    """Cut the order into groups from its end, so that the remainder has the longest runs."""
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
    """Return the candidate layouts: per group size one without branches, then with more and more.
    Cached because choosing a planner, planning and evaluating need the same candidates."""
    order = elimination_order(structure) if order is None else order
    families: list[tuple[Layout, ...]] = []
    cuts = [(*limits, False) for limits in (((1, 1),) if nested else tuning.GROUP_LIMITS)]
    # If h does not fit into the cache, a large first step reads it fewer times.
    if not nested and 8 * structure.n_states > tuning.CACHE_BYTES:
        cuts += [(*limits, True) for limits in tuning.GROUP_LIMITS[1:]]
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
        branches = [b for b in branches if volume(b, structure.state_sizes) <= tuning.MOST_BRANCHES]
        families.append((without, *(replace(without, branch=branch) for branch in branches)))
    return tuple(families)


def choose_layout(
    structure: Structure,
    *,
    nested: bool = False,
    threads: int = 1,
    memory_limit: int | None = None,
    classes: ActionClasses | None = None,
    order: tuple[int, ...] | None = None,
    deadline: Deadline = NEVER,
) -> Layout:
    """Return the leanest of the fastest layouts that fit; the leanest of all if none fits.

    Candidates combine group sizes with branches, where the branches are a prefix of the sequence in
    which current variables are needed (the first ones cost nothing extra; each later one trades
    time for memory). `memory_limit` is for the program alone. `order` replaces the cheapest
    elimination order.
    """
    structure = charging(structure)
    if classes is None:
        classes = action_classes(structure, deadline=deadline)
    few = classes.transitions.size + classes.rewards.size <= tuning.REMEMBERED_CLASSES
    search = _candidates if few else _candidates.__wrapped__
    families = search(structure, nested, classes, order)
    candidates = [layout for family in families for layout in family]
    least: list[float] = []
    for family in families:
        deadline.check()
        least += [layout.least_seconds(family[0], threads) for layout in family]
    fitting: dict[int, float] = {}
    good_enough = inf
    for number in sorted(range(len(candidates)), key=least.__getitem__):
        deadline.check()
        if least[number] > good_enough:
            break
        if memory_limit is None or candidates[number].memory(threads) <= memory_limit:
            fitting[number] = candidates[number].seconds(threads)
            good_enough = min(good_enough, tuning.EQUAL_SECONDS * fitting[number])
    fast = [candidates[number] for number in sorted(fitting) if fitting[number] <= good_enough]
    return min(fast or candidates, key=lambda layout: layout.memory(threads))
