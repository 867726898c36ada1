"""Candidates for groups of exchangeable parts.

Colour refinement: variables whose tables and neighbours look alike, at any distance, have one
colour. A variable that is alone in its colour is common to all, and what factors connect without
the common variables is a part. Parts with the same colours are a candidate. Reading them
(reading.py) proves or refutes it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from fmdp.errors import InvalidParameter, did_you_mean
from fmdp.model.constraints import AtMost, Forbidden
from fmdp.model.exchangeable.parts import (
    Array,
    Group,
)
from fmdp.model.exchangeable.sums import chains_of
from fmdp.model.factored import FactoredMDP
from fmdp.model.groups import Groups
from fmdp.model.naming import quote
from fmdp.model.structure import Scope


class Search:
    """Candidates for groups, from colours of variables and factors."""

    def __init__(self, model: FactoredMDP) -> None:
        self.model = model
        s = self.structure = model.structure
        self.n = len(s.sizes)
        self.chains = chains_of(s)
        self.forbidden = [c for c in s.constraints if isinstance(c, Forbidden)]
        caps = [c for c in s.constraints if isinstance(c, AtMost)]
        # Nodes: variables, then sums, reward factors and constraints.
        looks: list[object] = [
            ("state", s.state_sizes[i], i in scope) for i, scope in enumerate(s.transition_scopes)
        ]
        looks += [("action", size) for size in s.action_sizes]
        self.edges: list[dict[int, object]] = [
            self._edges(scope, table, i)
            for i, (scope, table) in enumerate(
                zip(s.transition_scopes, model.transitions, strict=True)
            )
        ]
        self.edges += [{} for _ in s.action_sizes]
        for chain in self.chains:
            looks.append(("sum", chain.size))
            self.edges.append(dict.fromkeys(chain.members, 0))
        self.first_reward = len(looks)
        for scope, table in zip(s.reward_scopes, model.rewards, strict=True):
            looks.append("reward")
            self.edges.append(self._edges(scope, table))
        self.first_constraint = len(looks)
        for forbidden in self.forbidden:
            looks.append("forbidden")
            self.edges.append(self._edges(forbidden.scope, forbidden.table.astype(np.float64)))
        for cap in caps:
            looks.append(("cap", cap.most))
            self.edges.append(dict(cap.pairs()))
        for node, edges in enumerate(self.edges):
            loop = edges.pop(node, None)
            looks[node] = (looks[node], loop)
        self.colours = _refined(looks, self.edges)

    def _edges(self, scope: Scope, table: Array, output: int = -1) -> dict[int, object]:
        """Return the nodes of a scope, each with what its values mean in the table.

        Values of actions may be renumbered by an exchange, those of states may not. The edge of
        `output`, a state variable, is that of its next values.
        """
        bits = np.ascontiguousarray(table).view(np.uint64)
        # A digest that does not depend on the order of the numbers.
        mixed = bits * (bits >> np.uint64(20) | np.uint64(1))
        cube = mixed.reshape([*self.structure.scope_sizes(scope), -1])
        axes = [*scope, output]
        edges: dict[int, object] = {}
        for axis, v in enumerate(axes):
            others = tuple(a for a in range(cube.ndim) if a != axis)
            marks = cube.sum(axis=others, dtype=np.uint64).tolist()
            if v >= 0:
                node = self._node(v)
                is_action = self.structure.m <= v < self.n
                label = tuple(sorted(marks) if is_action else marks)
                edges[node] = (edges.get(node), label)
        return edges

    def _node(self, v: int) -> int:
        """Return the node of a variable; a partial sum stands for its chain."""
        if v < self.n:
            return v
        return self.n + next(k for k, chain in enumerate(self.chains) if v in chain.numbers)

    def candidates(self) -> list[Group]:
        """Return groups of parts that look alike."""
        s = self.structure
        sizes = Counter(self.colours)
        common = {v for v in range(self.n) if sizes[self.colours[v]] == 1}
        while True:
            parts = self._parts(common)
            kinds: dict[tuple[int, ...], list[list[int]]] = defaultdict(list)
            for part in parts:
                kinds[tuple(sorted(self.colours[v] for v in part))].append(part)
            # A part that is alone, or is only action variables, is no part of a group.
            alone = [
                part
                for kind in kinds.values()
                for part in kind
                if len(kind) == 1 or min(part) >= s.m
            ]
            if not alone:
                break
            rarest = min((sizes[self.colours[v]], self.colours[v]) for p in alone for v in p)[1]
            common |= {v for v in range(self.n) if self.colours[v] == rarest}
        groups = [self._group(kind) for kind in kinds.values()]
        return self._with_selectors(groups)

    def declared(self, names: Sequence[Sequence[str]]) -> list[Group]:
        """Return the declared groups, each with the action variables that only its part uses."""
        s = self.structure
        numbers = {name: v for v, name in enumerate(s.state_names)}
        for name in (name for group in names for name in group):
            if name not in numbers:
                near = did_you_mean(name, s.state_names)
                raise InvalidParameter(f"no state variable is called {quote(name)}{near}")
        listed = [[numbers[name] for name in group] for group in names]
        among = {v for group in listed for v in group}
        others = set(range(s.m)) - among
        # An action variable belongs to a part if it acts on no other one.
        users = Counter(
            v
            for part in self._parts(others | set(range(s.m, self.n)))
            for v in {v for i in part for v in s.transition_scopes[i]}
        )
        parts = self._parts(others | {v for v in range(s.m, self.n) if users[v] != 1})
        groups = []
        for group in listed:
            mine = [part for part in parts if set(part) & set(group)]
            if len(mine) < 2:
                raise InvalidParameter(
                    f"the group {', '.join(s.state_names[v] for v in group)} is one part: its "
                    f"variables depend on each other directly"
                )
            groups.append(self._group(mine))
        return self._with_selectors(groups)

    def _parts(self, common: set[int]) -> list[list[int]]:
        """Return the sets of variables that factors connect without the common ones."""
        s = self.structure
        sizes = Counter(self.colours)
        joined = Groups(self.n)
        for i in range(s.m):
            if i not in common:
                joined.join_all((i, v) for v in self.edges[i] if v < self.n and v not in common)
        for node in range(self.first_reward, len(self.edges)):
            is_cap = node >= self.first_constraint + len(self.forbidden)
            if sizes[self.colours[node]] > 1 and not is_cap:
                inside = [v for v in self.edges[node] if v < self.n and v not in common]
                joined.join_all((inside[0], v) for v in inside[1:])
        members: dict[int, list[int]] = defaultdict(list)
        for v in range(self.n):
            if v not in common:
                members[joined.leader(v)].append(v)
        return sorted(members.values())

    def _group(self, parts: Iterable[list[int]]) -> Group:
        m = self.structure.m
        ordered = [sorted(part, key=lambda v: (self.colours[v], v)) for part in parts]
        return Group(
            tuple(tuple(v for v in part if v < m) for part in ordered),
            tuple(tuple(v for v in part if v >= m) for part in ordered),
        )

    def _with_selectors(self, groups: list[Group]) -> list[Group]:
        """Return the groups with the shared action variables that address their parts."""
        inside = {v for g in groups for p in range(g.n_parts) for v in g.variables(p)}
        shared = [v for v in range(self.structure.m, self.n) if v not in inside]
        return [_addressed(self.model, group, shared) for group in groups]


def _refined(looks: Sequence[object], edges: Sequence[dict[int, object]]) -> list[int]:
    """Return colours: two nodes share one only if what they lead to, at any distance, looks alike.

    Colour refinement, by rounds; neighbours in both directions count, with the labels of edges.
    """
    back: list[dict[int, object]] = [{} for _ in edges]
    labels = iter(_numbered(label for ahead in edges for label in ahead.values()))
    for node, ahead in enumerate(edges):
        for other in ahead:
            back[other][node] = next(labels)
    numbered: list[dict[int, object]] = [{} for _ in edges]
    for other, behind in enumerate(back):
        for node, label in behind.items():
            numbered[node][other] = label
    colours = _numbered(looks)
    while True:
        seen = [
            (colours[node], *(_around(near[node], colours) for near in (numbered, back)))
            for node in range(len(edges))
        ]
        finer = _numbered(seen)
        if len(set(finer)) == len(set(colours)):
            return finer
        colours = finer


def _around(near: dict[int, object], colours: Sequence[int]) -> frozenset[object]:
    """Return how often each pair of label and colour is found around a node."""
    return frozenset(Counter((label, colours[v]) for v, label in near.items()).items())


def _numbered(looks: Iterable[object]) -> list[int]:
    numbers: dict[object, int] = {}
    return [numbers.setdefault(look, len(numbers)) for look in looks]


def _addressed(model: FactoredMDP, group: Group, shared: Sequence[int]) -> Group:
    """Return the group with the shared action that addresses its parts, if there is one.

    A value addresses the part for which it means something else than for all others. What it means
    for that part and for the others is the way in which it addresses it.
    """
    near = {v for scope, _ in _tables_of(model, group, 0) for v in scope}
    for action in sorted(near.intersection(shared)):
        marks = [_slice_marks(model, group, part, action) for part in range(group.n_parts)]
        if not all(marks):
            continue
        ways: dict[tuple[bytes, bytes], dict[int, int]] = {}
        for value in range(model.structure.all_sizes[action]):
            addressed = _way([mark[value] for mark in marks], ways)
            if addressed is not None:
                part, way = addressed
                ways.setdefault(way, {}).setdefault(part, value)
        complete = [parts for parts in ways.values() if len(parts) == group.n_parts]
        if complete:
            values = tuple(
                tuple(parts[part] for parts in complete) for part in range(group.n_parts)
            )
            return Group(group.states, group.actions, action, values)
    return group


def _way(
    marks: Sequence[bytes], ways: dict[tuple[bytes, bytes], dict[int, int]]
) -> tuple[int, tuple[bytes, bytes]] | None:
    """Return the part that a value addresses and the way, from what the value means for each part.

    Of two parts either may be the one that is addressed: the first value decides.
    """
    kinds = Counter(marks)
    if len(kinds) != 2 or min(kinds.values()) != 1:
        return None
    rare, other = sorted(kinds, key=lambda kind: kinds[kind])
    if kinds[other] == 1:
        rare, other = marks if tuple(marks[::-1]) not in ways else marks[::-1]
    return list(marks).index(rare), (rare, other)


def _tables_of(model: FactoredMDP, group: Group, part: int) -> list[tuple[Scope, Array]]:
    """Return the tables of a part, each with its scope: next values, and rewards that name it."""
    s, variables = model.structure, set(group.variables(part))
    tables = [(s.transition_scopes[i], model.transitions[i]) for i in group.states[part]]
    rewards = zip(s.reward_scopes, model.rewards, strict=True)
    return tables + [pair for pair in rewards if not variables.isdisjoint(pair[0])]


def _slice_marks(model: FactoredMDP, group: Group, part: int, action: int) -> list[bytes]:
    """Return the bytes of what each value of an action means in the tables of a part."""
    s = model.structure
    variables = group.variables(part)
    tables = [pair for pair in _tables_of(model, group, part) if action in pair[0]]
    marks = [b""] * s.all_sizes[action] if tables else []
    for scope, table in tables:
        cube = table.reshape([*s.scope_sizes(scope), -1])
        order = sorted(
            range(len(scope)),
            key=lambda axis: (
                scope[axis] != action,
                variables.index(scope[axis])
                if scope[axis] in variables
                else len(variables) + scope[axis],
            ),
        )
        rows = np.ascontiguousarray(cube.transpose(*order, len(scope)))
        marks = [mark + rows[value].tobytes() for value, mark in enumerate(marks)]
    return marks
