"""The factors of a model in terms of groups of parts, and the proof that parts are exchangeable.

Every table of a part is written in local terms: its own variables by slot, the common variables by
number, and "this part", "another part of the group" or a common value for a shared action. Parts
are exchangeable if these forms are equal, bit by bit, and every table and every sum over all parts
is symmetric. For a table or a sum, exchanging neighbours is checked: these transpositions generate
all permutations.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fmdp.model.compositions import compositions
from fmdp.model.constraints import AtMost, Forbidden
from fmdp.model.exchangeable.parts import (
    FORBIDDEN,
    REWARD,
    TRANSITION,
    AggregateStep,
    Array,
    Cap,
    CommonFactor,
    Exchangeable,
    Group,
    Mode,
    NotExchangeable,
    PartFactor,
    SymmetricSum,
)
from fmdp.model.exchangeable.sums import Chain, chains_of
from fmdp.model.factored import FactoredMDP
from fmdp.model.spaces import count, strides
from fmdp.model.structure import Scope

MOST_SYMMETRIC = 1 << 22
"""Most rows of a table over the variables of all parts that is checked for symmetry."""


class _Factor(NamedTuple):
    """A factor of the model with what messages call it."""

    kind: str
    number: int
    scope: Scope
    table: Array
    label: str


class Reader:
    """Reads the factors of a model in terms of groups; raises NotExchangeable where it cannot."""

    def __init__(self, model: FactoredMDP, groups: Sequence[Group]) -> None:
        self.model, self.groups = model, tuple(groups)
        s = self.structure = model.structure
        self.place = {
            v: (g, part, slot)
            for g, group in enumerate(self.groups)
            for part in range(group.n_parts)
            for slot, v in enumerate(group.variables(part))
        }
        self.modes: dict[int, tuple[Mode, ...]] = {}
        for action in sorted({g.selector for g in groups if g.selector is not None}):
            addressing = [k for k, g in enumerate(self.groups) if g.selector == action]
            used = {value for k in addressing for part in groups[k].values for value in part}
            free = [value for value in range(s.all_sizes[action]) if value not in used]
            self.modes[action] = (
                *(Mode(k, way) for k in addressing for way in range(len(groups[k].values[0]))),
                *(Mode(-1, value) for value in free),
            )
        self.chains = chains_of(s)

    def read(self, reasons: tuple[str, ...]) -> Exchangeable:
        s = self.structure
        self._refuse_budgets()
        of_parts: list[list[list[_Factor]]] = [
            [[] for _ in range(group.n_parts)] for group in self.groups
        ]
        common: list[_Factor] = []
        for factor in self._factors():
            owner = self._owner(factor)
            if owner is None:
                common.append(factor)
            else:
                of_parts[owner[0]][owner[1]].append(factor)
        part_factors = tuple(self._alike(g, factors) for g, factors in enumerate(of_parts))
        n = len(s.sizes)
        return Exchangeable(
            self.model,
            self.groups,
            tuple(v for v in range(s.m) if v not in self.place),
            tuple(v for v in range(s.m, n) if v not in self.place),
            self.modes,
            part_factors,
            tuple(map(self._common_factor, common)),
            tuple(map(self._symmetric_sum, self.chains)),
            tuple(self._cap(c) for c in s.constraints if isinstance(c, AtMost)),
            reasons,
        )

    def _refuse_budgets(self) -> None:
        """Raise if a constraint is neither a cap nor a table, since counts would not keep it."""
        s = self.structure
        for constraint in s.constraints:
            if not isinstance(constraint, AtMost | Forbidden):
                label = constraint.label(s.names)
                raise NotExchangeable(f"{label} is a budget with costs, not a cap (at_most)")

    def _factors(self) -> list[_Factor]:
        s, model = self.structure, self.model
        factors = [
            _Factor(TRANSITION, i, s.transition_scopes[i], model.transitions[i], s.state_names[i])
            for i in range(s.m)
        ]
        factors += [
            _Factor(REWARD, k, s.reward_scopes[k], model.rewards[k][:, None], s.reward_names[k])
            for k in range(s.l)
        ]
        factors += [
            _Factor(FORBIDDEN, k, c.scope, c.table[:, None], c.label(s.names))
            for k, c in enumerate(s.constraints)
            if isinstance(c, Forbidden)
        ]
        return factors

    def _owner(self, factor: _Factor) -> tuple[int, int] | None:
        """Return the (group, part) that a factor belongs to; None for common factors."""
        parts = {self.place[v][:2] for v in factor.scope if v in self.place}
        if factor.kind == TRANSITION:
            if factor.number not in self.place:
                return None
            owner = self.place[factor.number][:2]
            others = parts - {owner}
            if others:
                g, part = min(others)
                other = self.structure.names[self.groups[g].states[part][0]]
                raise NotExchangeable(f"{factor.label} depends on {other} directly", owner[0])
            return owner
        return parts.pop() if len(parts) == 1 else None

    # ---- parts ----

    def _alike(self, g: int, factors: list[list[_Factor]]) -> tuple[PartFactor, ...]:
        """Return the factors of one part in local terms; all parts must have the same."""
        forms: list[list[tuple[PartFactor, _Factor]]] = []
        classes: dict[object, list[int]] = {}
        for part, owned in enumerate(factors):
            local = [(self._local(g, part, factor), factor) for factor in owned]
            local.sort(key=lambda pair: _key(pair[0]))
            forms.append(local)
            classes.setdefault(tuple(_key(form) for form, _ in local), []).append(part)
        if len(classes) > 1:
            first, second = (parts[0] for parts in list(classes.values())[:2])
            keep = tuple(tuple(parts) for parts in classes.values())
            raise NotExchangeable(self._difference(g, forms[first], forms[second]), g, keep)
        return tuple(form for form, _ in forms[0])

    def _local(self, g: int, part: int, factor: _Factor) -> PartFactor:
        s = self.structure
        slots = sorted((self.place[v][2], v) for v in factor.scope if v in self.place)
        shared = [v for v in factor.scope if v not in self.place]
        order = [factor.scope.index(v) for v in (*(v for _, v in slots), *shared)]
        table = factor.table.reshape([*s.scope_sizes(factor.scope), -1])
        table = table.transpose(*order, len(order))
        for axis, v in enumerate(shared, len(slots)):
            if v in self.modes:
                table = self._by_modes(table, axis, v, factor, (g, part))
            elif v >= len(s.sizes):
                self._check_sum(v, factor, g)
        return PartFactor(
            factor.kind,
            self.place[factor.number][2] if factor.kind == TRANSITION else 0,
            tuple(slot for slot, _ in slots),
            tuple(shared),
            np.ascontiguousarray(table),
        )

    def _check_sum(self, v: int, factor: _Factor, g: int) -> None:
        if all(v != chain.numbers[-1] for chain in self.chains):
            raise NotExchangeable(f"{factor.label} depends on a partial sum", g)

    def _by_modes(
        self, table: Array, axis: int, action: int, factor: _Factor, owner: tuple[int, int] | None
    ) -> Array:
        """Return the table with an axis of modes instead of the values of a selector."""
        taken = []
        for g, kind in self.modes[action]:
            if g < 0:
                taken.append(kind)
                continue
            of_group = self.groups[g].values
            values = [ways[kind] for part, ways in enumerate(of_group) if (g, part) != owner]
            slices = table.take(values, axis=axis)
            first = slices.take([0], axis=axis)
            if not (slices == first).all():
                differs = np.moveaxis(slices != first, axis, 0).reshape(len(values), -1)
                place = int(differs.any(axis=1).argmax())
                self._raise_values(factor, action, values[0], values[place], table, axis, g)
            taken.append(values[0])
        if owner is not None and self.groups[owner[0]].selector == action:
            taken += self.groups[owner[0]].values[owner[1]]
        return table.take(taken, axis=axis)

    def _raise_values(
        self,
        factor: _Factor,
        action: int,
        one: int,
        other: int,
        table: Array,
        axis: int,
        g: int,
    ) -> None:
        s = self.structure
        first, second = table.take(one, axis=axis), table.take(other, axis=axis)
        where = np.unravel_index(int((first != second).argmax()), first.shape)
        name, values = s.names[action], s.values[action]
        raise NotExchangeable(
            f"{factor.kind} {factor.label} is {_number(first[where])} at {name}={values[one]} and "
            f"{_number(second[where])} at {name}={values[other]}",
            g,
        )

    def _difference(
        self,
        g: int,
        left: list[tuple[PartFactor, _Factor]],
        right: list[tuple[PartFactor, _Factor]],
    ) -> str:
        """Return what differs between two parts, in one line."""
        names = [
            " and ".join(pair[1].label for pair in side if pair[1].kind == TRANSITION)
            for side in (left, right)
        ]
        start = f"{names[0]} differs from {names[1]}"
        for (a, of_a), (b, of_b) in zip(left, right, strict=False):
            if _key(a) == _key(b):
                continue
            if (a.kind, a.number, a.slots, a.shared) != (b.kind, b.number, b.slots, b.shared):
                return f"{start}: {of_a.label} and {of_b.label} depend on different variables"
            if a.table.shape != b.table.shape:
                return f"{start}: {of_a.label} and {of_b.label} have different sizes"
            where = np.unravel_index(int((a.table != b.table).argmax()), a.table.shape)
            return (
                f"{start}: {a.kind} {of_a.label} is {_number(a.table[where])} and {of_b.label} is "
                f"{_number(b.table[where])} at {self._row(g, a, where)}"
            )
        return f"{start}: they have {len(left)} and {len(right)} factors"

    def _row(self, g: int, form: PartFactor, where: Sequence[Any]) -> str:
        """Return the assignment of an entry of a local table."""
        s = self.structure
        texts = []
        variables = (*(self.groups[g].variables(0)[slot] for slot in form.slots), *form.shared)
        for v, position in zip(variables, where, strict=False):
            if v not in self.modes:
                texts.append(f"{s.names[v]}={s.values[v][int(position)]}")
            elif position >= len(self.modes[v]):
                texts.append(f"{s.names[v]}=this part")
            else:
                group, value = self.modes[v][int(position)]
                text = "another part" if group >= 0 else s.values[v][value]
                texts.append(f"{s.names[v]}={text}")
        if form.kind == TRANSITION:
            texts.append(f"next value {int(where[-1])}")
        return ", ".join(texts) or "every state"

    # ---- common factors, sums and caps ----

    def _blocks(self, factor: _Factor) -> list[tuple[int, tuple[int, ...]]]:
        """Return (group, slots) of the variables of parts in a scope, which must name all parts."""
        slots: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        for v in factor.scope:
            if v in self.place:
                g, part, slot = self.place[v]
                slots[g][part].add(slot)
        for g, of_parts in slots.items():
            if (
                len(of_parts) < self.groups[g].n_parts
                or len(set(map(frozenset, of_parts.values()))) > 1
            ):
                raise NotExchangeable(f"{factor.kind} {factor.label} depends on some parts only", g)
        return [(g, tuple(sorted(slots[g][0]))) for g in sorted(slots)]

    def _common_factor(self, factor: _Factor) -> CommonFactor:
        s = self.structure
        blocks = self._blocks(factor)
        shared = tuple(v for v in factor.scope if v not in self.place)
        sizes = s.scope_sizes(factor.scope)
        step = dict(zip(factor.scope, strides(sizes), strict=True))
        rows = count(sizes)
        if blocks and rows > MOST_SYMMETRIC:
            raise NotExchangeable(
                f"{factor.kind} {factor.label} has {rows} rows over all parts; use a "
                f"derived Count or Sum",
                blocks[0][0],
            )
        for g, slots in blocks:
            self._check_symmetric(factor, g, slots, step, rows)
        for v in shared:
            if v >= len(s.sizes) and v not in self.modes:
                self._check_sum(v, factor, 0)
        index = np.zeros((1,) * 0, dtype=np.int64)
        for v in shared:
            index = index[..., None] + step[v] * np.arange(s.all_sizes[v])
        for g, slots in blocks:
            index = index[..., None] + self._offsets(g, slots, step)
        table = factor.table[index.reshape(-1)].reshape(*index.shape, -1)
        for axis, v in enumerate(shared):
            if v in self.modes:
                table = self._by_modes(table, axis, v, factor, None)
        return CommonFactor(factor.kind, factor.number, shared, tuple(blocks), table)

    def _check_symmetric(
        self, factor: _Factor, g: int, slots: tuple[int, ...], step: dict[int, int], rows: int
    ) -> None:
        """Raise unless exchanging neighbouring parts of a group leaves the table unchanged."""
        group, sizes = self.groups[g], self.structure.all_sizes
        index = np.arange(rows)
        for part in range(group.n_parts - 1):
            image = index.copy()
            for slot in slots:
                a, b = group.variables(part)[slot], group.variables(part + 1)[slot]
                left, right = index // step[a] % sizes[a], index // step[b] % sizes[b]
                image += (right - left) * (step[a] - step[b])
            differs = (factor.table[image] != factor.table).any(axis=1)
            if differs.any():
                row = int(differs.argmax())
                values = (factor.table[row][0], factor.table[image[row]][0])
                names = [self.structure.names[group.states[p][0]] for p in (part, part + 1)]
                raise NotExchangeable(
                    f"{factor.kind} {factor.label} changes from {_number(values[0])} to "
                    f"{_number(values[1])} when {names[0]} and {names[1]} are exchanged",
                    g,
                )

    def _offsets(self, g: int, slots: tuple[int, ...], step: dict[int, int]) -> Array:
        """Return the index of one arrangement of each composition of the values of the slots."""
        group, sizes = self.groups[g], self.structure.all_sizes
        first = [sizes[group.variables(0)[slot]] for slot in slots]
        counts = compositions(group.n_parts, count(first))
        ends = counts.cumsum(axis=1)
        offsets = np.zeros(len(counts), dtype=np.int64)
        for part in range(group.n_parts):
            value = (ends <= part).sum(axis=1)
            for slot, behind, size in zip(slots, strides(first), first, strict=True):
                offsets += value // behind % size * step[group.variables(part)[slot]]
        return offsets

    def _symmetric_sum(self, chain: Chain) -> SymmetricSum:
        s = self.structure
        name = s.names[chain.numbers[-1]]
        steps: list[AggregateStep] = []
        at = 0
        seen: set[tuple[int, int]] = set()
        while at < len(chain.members):
            v = chain.members[at]
            if v not in self.place:
                identity = np.arange(s.all_sizes[v])
                if v in self.modes:
                    raise NotExchangeable(f"sum {name} counts the shared action {s.names[v]}", 0)
                steps.append(AggregateStep(v, None, identity, chain.tables[at]))
                at += 1
                continue
            g, _, slot = self.place[v]
            run = at
            while run < len(chain.members) and self.place.get(chain.members[run], (-1, 0, -1))[
                ::2
            ] == (g, slot):
                run += 1
            if run - at != self.groups[g].n_parts or (g, slot) in seen:
                raise NotExchangeable(f"sum {name} does not count all parts one after the other", g)
            seen.add((g, slot))
            steps.append(self._run(name, g, slot, chain.tables[at:run]))
            at = run
        return SymmetricSum(chain.numbers[-1], s.all_sizes[chain.numbers[-1]], tuple(steps))

    def _run(self, name: str, g: int, slot: int, tables: Sequence[Array]) -> AggregateStep:
        """Return the sum over one slot of all parts, for each composition of its values."""
        for before, after in itertools.pairwise(tables):
            joint = after[before]  # [value before, x, x']
            if not np.array_equal(joint, joint.transpose(0, 2, 1)):
                raise NotExchangeable(f"sum {name} depends on the order of the parts", g)
        columns = np.concatenate(tables, axis=0)
        _, first, classes = np.unique(columns, axis=1, return_index=True, return_inverse=True)
        counts = compositions(len(tables), len(first))
        ends = counts.cumsum(axis=1)
        value = np.repeat(np.arange(len(tables[0]))[:, None], len(counts), axis=1)
        for position, table in enumerate(tables):
            value = table[value, first[(ends <= position).sum(axis=1)]]
        return AggregateStep(-1, (g, (slot,)), classes.reshape(-1), value)

    def _cap(self, cap: AtMost) -> Cap:
        s = self.structure
        common: list[tuple[int, int]] = []
        by_slot: dict[tuple[int, int], list[int]] = defaultdict(list)
        for v, idle in cap.pairs():
            if v in self.place:
                g, _, slot = self.place[v]
                by_slot[g, slot].append(idle)
            elif v in self.modes:
                modes = self.modes[v]
                if Mode(-1, idle) not in modes:
                    g = modes[0][0]
                    raise NotExchangeable(f"{cap.label(s.names)} has a part as idle value", g)
                common.append((v, modes.index(Mode(-1, idle))))
            else:
                common.append((v, idle))
        for (g, _), idle_values in by_slot.items():
            if len(idle_values) < self.groups[g].n_parts or len(set(idle_values)) > 1:
                raise NotExchangeable(f"{cap.label(s.names)} counts some parts only", g)
        of_parts = tuple((g, slot, idle[0]) for (g, slot), idle in sorted(by_slot.items()))
        return Cap(cap.most, tuple(common), of_parts)


def _key(form: PartFactor) -> tuple[Any, ...]:
    return (*form[:4], form.table.shape, form.table.tobytes())


def _number(value: Any) -> str:
    return str(bool(value)) if isinstance(value, np.bool_) else f"{float(value)!r}"
