"""Symmetries of a model: renumberings of its variables that leave every table unchanged.

A renumbering sends state variable i to pi(i), action variable v to sigma(v), and each value of v to
a value of sigma(v). It is a symmetry if

    P_pi(i)(. | renumbered x) = P_i(. | x)  and  sum_k R_k(renumbered x) = sum_k R_k(x)

exactly, the rewards factor by factor. Then an optimal bias can be chosen that is equal at a state
and its image (the mean of any optimal bias over the group), and so can the weights of an
approximate value: a circle of equal machines has one weight instead of n.

Candidates are found by following the graph of parents from one variable to its image, among
variables that look alike; each is accepted only after an exact comparison of all tables. Not every
symmetry is searched for: values of state variables are never renumbered, models with constraints,
effects or intervals have none here, and long searches are abandoned. Missing a symmetry costs time
but no correctness. Noise, initial state and names are not compared: no bound on a gain and no
greedy policy depends on them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.errors import TooLarge
from fmdp.model.factored import FactoredMDP
from fmdp.model.groups import Groups
from fmdp.model.scopes import Scope
from fmdp.model.spaces import FloatArray
from fmdp.model.structure import Structure

Marks = NDArray[np.uint64]

_MOST_COMPARED = 1 << 26
"""Most numbers that one search compares, a fraction of a second."""
_MOST_IMAGES = 1 << 14
"""Most images of scopes under the symmetries."""
_OVERHEAD = 1 << 8
"""Numbers that can be compared in the time that a candidate takes for one variable or factor."""
_ONE_BY_ONE = 32
"""Images of one variable that are tried one by one; then all variables of its kind are moved at
once. A symmetry takes memory for every variable, so there must not be one for each of them."""
_STEPS_A_VARIABLE = 16
"""Assignments per state variable that are tried before a candidate is abandoned."""
_REFUSED = 16
"""Failed candidates after which the search among variables of one kind ends."""


@dataclass(frozen=True)
class Renumbering:
    """The image of every variable, and of every value of the action variables."""

    states: tuple[int, ...]
    """pi: the image of state variable i is states[i]."""
    actions: tuple[int, ...]
    """sigma: the image of action variable v, counted from 0, is actions[v]."""
    action_values: tuple[tuple[int, ...], ...]
    """The image of value a of action variable v is value action_values[v][a]."""

    def scope(self, scope: Iterable[int]) -> Scope:
        """Return the image of a scope."""
        m = len(self.states)
        return tuple(sorted(self.states[v] if v < m else m + self.actions[v - m] for v in scope))

    def pulled_back(self, table: FloatArray, scope: Scope, sizes: Sequence[int]) -> FloatArray:
        """Return a table over the image of a scope as one over the scope.

        Entry x is the entry of the image of x. The shape is [size, ..., size, rest].
        """
        m = len(self.states)
        image = self.scope(scope)
        shaped = table.reshape([*(sizes[v] for v in image), -1])
        places = [image.index(self.scope((v,))[0]) for v in scope]
        moved = shaped.transpose([*places, len(scope)])
        for axis, v in enumerate(scope):
            if v >= m:
                values = self.action_values[v - m]
                if values != tuple(range(len(values))):
                    moved = moved.take(values, axis=axis)
        return moved


def is_symmetry(model: FactoredMDP, renumbering: Renumbering) -> bool:
    """Return whether the renumbering leaves every table unchanged, exactly."""
    s = model.structure
    for i, scope in enumerate(s.transition_scopes):
        j = renumbering.states[i]
        if s.transition_scopes[j] != renumbering.scope(scope):
            return False
        image = renumbering.pulled_back(model.transitions[j], scope, s.sizes)
        if not np.array_equal(image, model.transitions[i].reshape(image.shape)):
            return False
    # Reward factors of one scope may change places: each takes a partner that no other has.
    partners: dict[Scope, list[int]] = {}
    for k, scope in enumerate(s.reward_scopes):
        partners.setdefault(scope, []).append(k)
    for k, scope in enumerate(s.reward_scopes):
        among = partners.get(renumbering.scope(scope), [])
        for partner in among:
            image = renumbering.pulled_back(model.rewards[partner], scope, s.sizes)
            same_range = s.reward_ranges[partner] == s.reward_ranges[k]
            if same_range and np.array_equal(image, model.rewards[k].reshape(image.shape)):
                among.remove(partner)
                break
        else:
            return False
    return True


@dataclass(frozen=True, eq=False)
class Symmetry:
    """A model and one or more of its symmetries."""

    model: FactoredMDP
    renumberings: tuple[Renumbering, ...]

    @cached_property
    def leaders(self) -> tuple[int, ...]:
        """For each state variable the first of those that symmetries exchange with it."""
        groups = Groups(self.model.structure.m)
        for renumbering in self.renumberings:
            groups.join_all(enumerate(renumbering.states))
        return tuple(groups.leaders())

    def closed(self, scopes: Iterable[Scope]) -> tuple[Scope, ...]:
        """Return scopes of state variables with all their images, sorted, or raise TooLarge."""
        known = set(scopes)
        waiting = list(known)
        while waiting:
            scope = waiting.pop()
            for renumbering in self.renumberings:
                image = renumbering.scope(scope)
                if image not in known:
                    known.add(image)
                    waiting.append(image)
            if len(known) > _MOST_IMAGES:
                raise TooLarge(
                    f"a scope has more than {_MOST_IMAGES} images under the symmetries",
                    8 * len(known),
                    8 * _MOST_IMAGES,
                )
        return tuple(sorted(known))

    def keeps(self, scopes: Iterable[Scope]) -> bool:
        """Return whether these scopes of state variables contain all their images."""
        known = set(scopes)
        return all(
            renumbering.scope(scope) in known
            for renumbering in self.renumberings
            for scope in known
        )

    @cached_property
    def reduced(self) -> FactoredMDP:
        """The model with one value for all values of an action variable that symmetries exchange.

        A function of (state, action) that is equal at x and its image has the same maximum. If
        several variables move together, all values are kept: no single one of them decides which
        joint actions are images of each other.
        """
        s = self.model.structure
        moving = {
            v
            for renumbering in self.renumberings
            for v, values in enumerate(renumbering.action_values)
            if renumbering.actions[v] != v or values != tuple(range(len(values)))
        }
        if len(moving) != 1:
            return self.model
        (v,) = moving
        groups = Groups(s.action_sizes[v])
        for renumbering in self.renumberings:
            groups.join_all(enumerate(renumbering.action_values[v]))
        # Any member is correct. Variables are mostly eliminated in order, and a value that acts on
        # late variables, but not on the last, costs least.
        kept = sorted(values[3 * len(values) // 4] for values in groups.members())
        variable = s.m + v

        def cut(table: FloatArray, scope: Scope) -> FloatArray:
            if variable not in scope:
                return table
            rest = table.shape[1:]
            shaped = table.reshape([*(s.sizes[u] for u in scope), *rest])
            taken = shaped.take(kept, axis=scope.index(variable))
            return np.ascontiguousarray(taken.reshape(-1, *rest))

        structure = Structure(
            state_sizes=s.state_sizes,
            action_sizes=tuple(
                len(kept) if u == v else size for u, size in enumerate(s.action_sizes)
            ),
            transition_scopes=s.transition_scopes,
            reward_scopes=s.reward_scopes,
            reward_ranges=s.reward_ranges,
            groups=s.groups,
        )
        return FactoredMDP.trusted(
            structure,
            [cut(t, z) for t, z in zip(self.model.transitions, s.transition_scopes, strict=True)],
            [cut(t, z) for t, z in zip(self.model.rewards, s.reward_scopes, strict=True)],
        )


def symmetry_of(model: FactoredMDP, deadline: Deadline = NEVER) -> Symmetry | None:
    """Return symmetries that exchange as many variables as the search finds, or None.

    Raises TimeUp after the deadline.
    """
    s = model.structure
    if s.constraints or s.derived or s.effects is not None or model.intervals is not None:
        return None
    search = _Search(model, deadline)
    entries = sum(t.size for t in (*model.transitions, *model.rewards))
    left = max(_MOST_COMPARED // (entries + _OVERHEAD * len(search.parents)), 1)
    kinds: dict[int, list[int]] = {}
    for i, colour in enumerate(search.colours[: s.m]):
        kinds.setdefault(colour, []).append(i)
    moved = Groups(s.m)
    symmetries: list[Renumbering] = []
    for members in kinds.values():
        refused = accepted = 0
        for j in members[1:]:
            if moved.leader(j) == moved.leader(members[0]):
                continue
            if left == 0 or refused == _REFUSED or accepted > _ONE_BY_ONE:
                break
            all_at_once = accepted == _ONE_BY_ONE or left == 1
            candidate = search.sending(members[0], members[1] if all_at_once else j, all_at_once)
            left -= 1
            if candidate is None or not _is_sound(model, candidate):
                refused += 1
                continue
            accepted += 1
            symmetries.append(candidate)
            moved.join_all(enumerate(candidate.states))
    return Symmetry(model, tuple(symmetries)) if symmetries else None


def _is_sound(model: FactoredMDP, candidate: Renumbering) -> bool:
    """Return whether it is a symmetry that preserves the declared groups of variables."""
    groups = set(model.structure.groups)
    return {candidate.scope(group) for group in groups} == groups and is_symmetry(model, candidate)


class _Search:
    """Search for candidates by the graph of parents and by digests of the tables.

    A digest of a table does not depend on the order of its numbers. Nodes of the graph are state
    variables, action variables (without parents), reward factors and groups.
    """

    def __init__(self, model: FactoredMDP, deadline: Deadline) -> None:
        s = self.structure = model.structure
        self.model = model
        self.deadline = deadline
        n = s.m + len(s.action_sizes) + s.l + len(s.groups)
        self.parents = [frozenset(scope) - {i} for i, scope in enumerate(s.transition_scopes)]
        self.parents += [frozenset()] * len(s.action_sizes)
        self.parents += [frozenset(scope) for scope in (*s.reward_scopes, *s.groups)]
        children: list[set[int]] = [set() for _ in range(n)]
        for i, parents in enumerate(self.parents):
            for j in parents:
                children[j].add(i)
        self.children = [frozenset(nodes) for nodes in children]
        self.colours = self._refined(self._looks())
        # The next node of the same colour, in a circle.
        self.following = list(range(n))
        latest: dict[int, int] = {}
        for i in range(n):
            before = latest.get(self.colours[i], i)
            self.following[i], self.following[before] = self.following[before], i
            latest[self.colours[i]] = i

    @cached_property
    def _marks(self) -> list[dict[int, Marks]]:
        """For each action variable and factor of its scope, digests of the rows of each value."""
        s = self.structure
        marks: list[dict[int, Marks]] = [{} for _ in s.action_sizes]
        for i, scope in enumerate(s.transition_scopes):
            shaped = self.model.transitions[i].reshape([*(s.sizes[u] for u in scope), -1])
            for axis, v in enumerate(scope):
                if v >= s.m:
                    rows = np.moveaxis(shaped, axis, 0).reshape(s.sizes[v], -1)
                    marks[v - s.m][i] = _mixed(rows)
        return marks

    def _looks(self) -> list[object]:
        s, model = self.structure, self.model
        looks: list[object] = [
            ("state", s.state_sizes[i], i in s.transition_scopes[i], _look(model.transitions[i]))
            for i in range(s.m)
        ]
        looks += [("action", size) for size in s.action_sizes]
        looks += [("reward", s.reward_ranges[k], _look(model.rewards[k])) for k in range(s.l)]
        looks += ["group" for _ in s.groups]
        return looks

    def _refined(self, looks: Sequence[object]) -> list[int]:
        """Return colours that two nodes share only if their parents and children look alike at any
        distance (colour refinement)."""
        colours = _numbered(looks)
        sizes = Counter(colours)
        dirty: Iterable[int] = range(len(colours))
        while dirty:
            self.deadline.check()
            # The nodes of one colour had alike neighbours before; now those differ that are dirty.
            parts: dict[int, dict[object, list[int]]] = {}
            for i in dirty:
                parents = tuple(sorted(colours[j] for j in self.parents[i]))
                children = tuple(sorted(colours[j] for j in self.children[i]))
                parts.setdefault(colours[i], {}).setdefault((parents, children), []).append(i)
            changed: list[int] = []
            for colour, alike in parts.items():
                groups = sorted(alike.values(), key=len)
                if sum(map(len, groups)) == sizes[colour]:
                    groups.pop()  # the largest keeps the colour
                for group in groups:
                    new = len(sizes)
                    sizes[new] = len(group)
                    sizes[colour] -= len(group)
                    for i in group:
                        colours[i] = new
                    changed += group
            dirty = {j for i in changed for j in self.parents[i] | self.children[i]}
        return colours

    def sending(self, i: int, j: int, all_at_once: bool = False) -> Renumbering | None:
        """Return a candidate that sends state variable i to j, or None.

        It moves as few others as it can, or with `all_at_once` each to the next of its kind.
        """
        images = self._images_sending(i, j, all_at_once)
        if images is None:
            return None
        m = self.structure.m
        states = images[:m]
        actions = [image - m for image in images[m : m + len(self.structure.action_sizes)]]
        values = [self._values_sent(v, u, states) for v, u in enumerate(actions)]
        known = tuple(images for images in values if images is not None)
        if len(known) < len(values):
            return None
        return Renumbering(tuple(states), tuple(actions), known)

    def _values_sent(self, v: int, u: int, states: Sequence[int]) -> tuple[int, ...] | None:
        """Return an image among the values of action variable u for each value of v, or None.

        The digests must agree, factor by image of the factor. A value is its own image if it can.
        """
        of_v, of_u = self._marks[v], self._marks[u]
        if {states[i] for i in of_v} != of_u.keys():
            return None
        if not of_v:
            return tuple(range(self.structure.action_sizes[v]))
        waiting: dict[bytes, list[int]] = {}
        for b, column in enumerate(np.column_stack([of_u[states[i]] for i in of_v])):
            waiting.setdefault(column.tobytes(), []).append(b)
        taken: list[int] = []
        for a, column in enumerate(np.column_stack(list(of_v.values()))):
            among = waiting.get(column.tobytes())
            if not among:
                return None
            b = a if a in among else among[0]
            among.remove(b)
            taken.append(b)
        return tuple(taken)

    def _images_sending(self, first: int, image: int, all_at_once: bool) -> list[int] | None:
        """Return images of all nodes that preserve parents, children and colours, or None.

        Backtracking, outwards from the first node.
        """
        n = len(self.parents)
        order = self._outwards(first)
        images = [-1] * n
        taken = [False] * n
        wanted = self.following if all_at_once else range(n)
        choices: list[Iterator[int]] = [iter([image])]
        for _ in range(_STEPS_A_VARIABLE * n + 64):
            self.deadline.check()
            depth = len(choices) - 1
            v = order[depth]
            if images[v] >= 0:
                taken[images[v]] = False
                images[v] = -1
            chosen = next(choices[-1], None)
            if chosen is None:
                choices.pop()
                if not choices:
                    break
            elif not taken[chosen] and self._fits(v, chosen, images):
                images[v], taken[chosen] = chosen, True
                if depth + 1 == n:
                    return images
                following = order[depth + 1]
                choices.append(self._options(following, wanted[following], images))
        return None

    def _outwards(self, first: int) -> list[int]:
        """Return all nodes, breadth first, without passing through parents of every variable."""
        order: list[int] = []
        seen: set[int] = set()
        for start in (first, *range(len(self.parents))):
            if start in seen:
                continue
            seen.add(start)
            queue = deque([start])
            while queue:
                v = queue.popleft()
                order.append(v)
                if len(self.children[v]) == self.structure.m:
                    continue
                for u in sorted((self.parents[v] | self.children[v]) - seen):
                    seen.add(u)
                    queue.append(u)
        return order

    def _options(self, v: int, wanted: int, images: Sequence[int]) -> Iterator[int]:
        """Yield possible images of v, the wanted one first and then from the last on."""
        near = [
            neighbours[images[u]]
            for neighbours, others in ((self.children, self.parents), (self.parents, self.children))
            for u in others[v]
            if images[u] >= 0
        ]
        among = min(near, key=len) if near else range(len(self.parents))
        if wanted in among:
            yield wanted
        for u in sorted(among, reverse=True):
            if u != wanted and self.colours[u] == self.colours[v]:
                yield u

    def _fits(self, v: int, image: int, images: Sequence[int]) -> bool:
        if self.colours[v] != self.colours[image]:
            return False
        pairs = (self.parents, self.children)
        return all(
            images[u] < 0 or images[u] in neighbours[image]
            for neighbours in pairs
            for u in neighbours[v]
        )


def _look(table: FloatArray) -> int:
    return int(_mixed(table.reshape(1, -1))[0])


def _mixed(rows: FloatArray) -> Marks:
    """Return a digest of each row that does not depend on the order of its numbers.

    Different rows may collide; the comparison of tables then refuses the candidate.
    """
    bits = np.ascontiguousarray(rows).view(np.uint64)
    marks: Marks = (bits * (bits >> np.uint64(20) | np.uint64(1))).sum(axis=1, dtype=np.uint64)
    return marks


def _numbered(looks: Sequence[object]) -> list[int]:
    numbers: dict[object, int] = {}
    return [numbers.setdefault(look, len(numbers)) for look in looks]
