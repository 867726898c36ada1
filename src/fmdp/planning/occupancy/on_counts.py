"""What a policy on counts does in the long run, from the counts alone.

Every number is the long-run mean of a function of the counts and the move, with a certificate of
its own (counts/policy_chain.py). A policy on counts acts on the first parts in a local state, so
single parts of a group may fare differently; what is known are means over all parts of the group,
and their sums for reward factors. They are reported under the names of the first and last variable.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline
from fmdp._base.numerals import upper_text
from fmdp.model import FactoredMDP
from fmdp.model.exchangeable.parts import REWARD
from fmdp.planning.counts.moves import Move
from fmdp.planning.counts.pair_values import PairValues
from fmdp.planning.counts.policy_chain import PolicyChain, chain_of
from fmdp.planning.occupancy.law import NotCertified
from fmdp.planning.occupancy.records import Summary
from fmdp.planning.policies.counts import CountPolicy

Floats = NDArray[np.float64]
Key = tuple[str, ...]
"""("factors", name), or ("states" or "actions", name, value)."""

TOLERANCE = 1e-7
"""Largest gap between the bounds of a mean, relative to the range of its function."""
MOST_UNKNOWN = 1e-3
"""Largest gap that is reported: rounding may leave more than the tolerance with many parts."""
_CAVEAT = (
    "numbers of several variables are means over all of them, and of several reward factors their "
    "sums: a policy on counts treats the first parts first, so single parts may differ"
)


def summarise_on_counts(
    model: FactoredMDP,
    policy: CountPolicy,
    *,
    memory_limit: int | None = None,
    max_seconds: float | None = None,
) -> Summary:
    """Return the exact summary of a policy on counts.

    Raise NotCertified if a mean depends on the initial state or is not known precisely enough, and
    as `chain_of` does.
    """
    started = time.perf_counter()
    deadline = Deadline.after(max_seconds, started)
    chain = chain_of(model, policy, memory_limit=memory_limit, deadline=deadline)
    functions = _Functions(chain).all()
    table = np.stack(list(functions.values()), axis=1)
    scale = np.ptp(table, axis=0)
    scale[scale == 0.0] = 1.0
    means = chain.means(table / scale, TOLERANCE, deadline)
    if means.widest > MOST_UNKNOWN:
        raise NotCertified(
            f"the shares of time of this policy are known up to {upper_text(means.widest, 2)} "
            f"only: they depend on the initial state, or its counts mix too slowly"
        )
    numbers: dict[str, Any] = {"factors": {}, "actions": {}, "states": {}}
    kinds = ("factors", "quantities", "actions", "states", "events")
    bounds: dict[str, Any] = {kind: {} for kind in kinds}
    for (kind, name, *value), low, high in zip(
        functions, means.lower * scale, means.upper * scale, strict=True
    ):
        for target, entry in (
            (numbers, float(0.5 * (low + high))),
            (bounds, (float(low), float(high))),
        ):
            if value:
                target[kind].setdefault(name, {})[value[0]] = entry
            else:
                target[kind][name] = entry
    return Summary(
        kind="exact",
        **numbers,
        bounds=bounds,
        caveat=_CAVEAT,
        seconds=time.perf_counter() - started,
        model=model,
    )


def _label(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


class _Functions:
    """Functions of the counts and the policy's move, by what they count."""

    def __init__(self, chain: PolicyChain) -> None:
        self.chain = chain
        self.parts = chain.quotient.parts
        self.structure = self.parts.model.structure
        self._table: dict[Key, Floats] = {}

    def all(self) -> dict[Key, Floats]:
        """Return the functions by key, [S] each."""
        for move, values in self.chain.by_move():
            for key, entries in self._of_move(move, values):
                if key not in self._table:
                    self._table[key] = np.zeros(self.chain.n_states)
                self._table[key][values.states] += entries
        order = {"factors": 0, "actions": 1, "states": 2}
        return dict(sorted(self._table.items(), key=lambda item: order[item[0][0]]))

    def _of_move(self, move: Move, values: PairValues) -> Iterator[tuple[Key, Any]]:
        yield from self._rewards(values)
        s, parts = self.structure, self.parts
        for v in parts.common_states:
            for place, value in enumerate(s.values[v]):
                yield ("states", s.names[v], value), values.value(v) == place
        for v, chosen in zip(parts.common_actions, move.common, strict=True):
            for place, value in enumerate(self._values_of(v)):
                yield ("actions", s.names[v], value), float(place == chosen)
        for local, counts in zip(self.chain.quotient.locals, values.counts, strict=True):
            group = parts.groups[local.number]
            for slot in range(len(group.variables(0))):
                members = [group.variables(part)[slot] for part in range(group.n_parts)]
                kind = "states" if members[0] < s.m else "actions"
                name = _label([s.names[v] for v in members])
                of_class = local.value(slot)
                for place, value in enumerate(s.values[members[0]]):
                    total = np.zeros(len(values.states))
                    for c, number in counts.items():
                        if of_class[c] == place:
                            total += number
                    yield (kind, name, value), total / local.n_parts

    def _values_of(self, v: int) -> list[str]:
        """Return the values of a common action; those that address parts are one value per way."""
        s, parts = self.structure, self.parts
        if v not in parts.modes:
            return list(s.values[v])
        listed = []
        for mode in parts.modes[v]:
            if mode.group < 0:
                listed.append(s.values[v][mode.kind])
            else:
                ways = [of_part[mode.kind] for of_part in parts.groups[mode.group].values]
                listed.append(_label([s.values[v][value] for value in sorted(ways)]))
        return listed

    def _rewards(self, values: PairValues) -> Iterator[tuple[Key, Any]]:
        s = self.structure
        for factor in self.parts.common_factors:
            if factor.kind == REWARD:
                entries = factor.table.reshape(-1)[values.common_rows(factor)]
                yield ("factors", s.reward_names[factor.number]), entries
        for local, context in values.reward_forms:
            table = context.table.reshape(-1, local.n_classes)
            row = values.index(context.shared, context.sizes)
            total = np.zeros(len(values.states))
            for c in values.present[local.number]:
                total += values.counts[local.number][c] * table[row, c]
            name = self._reward_name(local.number, context.form.slots, context.form.shared)
            yield ("factors", name), total

    def _reward_name(self, g: int, slots: tuple[int, ...], shared: tuple[int, ...]) -> str:
        """Return the name of the reward factors of all parts with this scope; factors of one part
        with equal scopes are added up."""
        return _label(self._reward_names[g, slots, shared])

    @cached_property
    def _reward_names(self) -> dict[Any, list[str]]:
        """The names of the reward factors of single parts, by group and scope."""
        place = {
            v: (g, part, slot)
            for g, group in enumerate(self.parts.groups)
            for part in range(group.n_parts)
            for slot, v in enumerate(group.variables(part))
        }
        names: dict[Any, list[str]] = defaultdict(list)
        s = self.structure
        for name, scope in zip(s.reward_names, s.reward_scopes, strict=True):
            inside = [place[v] for v in scope if v in place]
            if len({entry[:2] for entry in inside}) == 1:
                slots = tuple(sorted(slot for _, _, slot in inside))
                shared = tuple(v for v in scope if v not in place)
                names[inside[0][0], slots, shared].append(name)
        return names
