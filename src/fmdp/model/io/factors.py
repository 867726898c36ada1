"""The factors of a model file of version 2: tables by rows, by rules, by a tree, or like another.

    "rows": [[...], ...]                               one distribution per assignment of the scope
    "rules": [{"when": {...}, "row": [...]}, ...]      the first rule that fits
    "tree": {"on": ..., "cases": {...}, "else": ...}   the row at the leaf
    "like": {"factor": ..., "with": {...}}             another factor, its variables renamed

The rows of a rule or a leaf are alike (alike.py), and those of a factor that is like another are
alike with the other's. Each of the "rows" is its own class, unless "alike" numbers them; a number
is one class in all factors. Rewards have "means" or "costs" for "rows", "mean" or "cost" for "row";
a cost is a negative reward. Tables that would not fit into memory are refused before any is made.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fmdp._base.archives import memory_for_files
from fmdp._base.memory import describe_bytes
from fmdp.errors import FileProblem, InvalidModel, UnknownName, did_you_mean
from fmdp.model.conditions import Conditions, value_of
from fmdp.model.effects import Effects
from fmdp.model.fields import array, is_number, is_text, is_whole, keyed, show, text
from fmdp.model.rules import Box, owners
from fmdp.model.spaces import FloatArray, IndexArray, count, shown, strides
from fmdp.model.structure import Structure
from fmdp.model.tables import as_distributions
from fmdp.model.variables import VariableSpace

_COPIES = 4
"""Most copies of a table that exist while it is read and checked."""


class Kind(NamedTuple):
    """The keys of transition or reward factors in a file."""

    tables: tuple[str, ...]
    """Keys of whole tables."""
    rows: tuple[str, ...]
    """Keys of the row of a rule or a leaf, in the order of `tables`."""
    others: tuple[str, ...]
    """Other keys."""


TRANSITION = Kind(("rows",), ("row",), ("state",))
REWARD = Kind(("means", "costs"), ("mean", "cost"), ("name", "range", "noise", "kind"))
_BODIES = ("rules", "tree", "like")
_ENDS = ("lower", "upper")


@dataclass(frozen=True)
class Factor:
    """A table as read from the file."""

    scope: tuple[int, ...]
    """Variables, in the order of the file."""
    after: bool
    """True if the scope is over the state after the effects."""
    table: FloatArray  # [rows, size] of a transition, [rows] of a reward
    classes: IndexArray  # [rows]
    ends: tuple[FloatArray, FloatArray] | None
    """Lower and upper ends of the numbers; None if they are known exactly."""
    costs: bool = False
    """True if the file has costs; the table always has rewards."""

    def over_joint(self, effects: Effects | None, sizes: Sequence[int]) -> Factor:
        """Return the table over the state before the effects and the action."""
        if not self.after:
            return self
        assert effects is not None
        rows = effects.after_rows(self.scope, sizes)
        return replace(
            self,
            scope=effects.full_scope(self.scope),
            after=False,
            table=self.table[rows],
            classes=self.classes[rows],
            ends=None if self.ends is None else (self.ends[0][rows], self.ends[1][rows]),
        )


class _ClassNumbers:
    """Numbers for classes of rows, over all factors of one kind."""

    def __init__(self) -> None:
        self._next = 0
        self._by_number: dict[int, int] = {}
        self.any_shared = False
        """True if two rows may be of one class."""

    def fresh(self, n: int) -> IndexArray:
        """Return n new classes."""
        self._next += n
        return np.arange(self._next - n, self._next, dtype=np.int64)

    def numbered(self, number: int) -> int:
        """Return the class with this number in the file."""
        self.any_shared = True
        if number not in self._by_number:
            self._by_number[number] = self._next
            self._next += 1
        return self._by_number[number]


class FactorReader:
    """Reader of all factors of one kind.

    `labels` begin the error messages, "like" refers to `names`, and `sizes` are the lengths of the
    rows (None for rewards).
    """

    def __init__(
        self,
        kind: Kind,
        entries: Sequence[Any],
        variables: Structure,
        effects: Effects | None,
        names: Sequence[str],
        labels: Sequence[str],
        sizes: Sequence[int | None],
    ) -> None:
        self.kind, self.variables, self.effects = kind, variables, effects
        self.names, self.labels, self.sizes = tuple(names), tuple(labels), tuple(sizes)
        self.classes = _ClassNumbers()
        self.entries = [self._keys(*pair) for pair in zip(entries, labels, strict=True)]
        self.order = self._in_order()
        self.scopes: list[tuple[tuple[int, ...], bool]] = [((), False)] * len(self.entries)
        """Scope of each table, and whether it is over the state after the effects."""
        self.after: list[tuple[int, ...] | None] = [None] * len(self.entries)
        """Variables after the effects that each factor depends on; None without "after"."""
        for index in self.order:
            self._read_factor_scope(index)

    # ---- before any table is made ----------------------------------------------------------------

    def _keys(self, entry: Any, label: str) -> dict[str, Any]:
        kind = self.kind
        bodies = (*kind.tables, *_BODIES)
        beside = ("scope", "after", *bodies, *_ENDS, "alike")
        fields = keyed(entry, label, (), (*kind.others, *beside))
        given = [key for key in bodies if key in fields]
        if len(given) != 1:
            raise InvalidModel(
                f"{label}: has {' and '.join(map(show, given)) or 'no table'}; must have one of "
                f"{', '.join(bodies)}"
            )
        body = given[0]
        for key in (*_ENDS, "alike"):
            if key in fields and body not in kind.tables:
                raise InvalidModel(
                    f"{label}: key {show(key)} beside {show(body)}; must be beside "
                    f"{' or '.join(map(show, kind.tables))}, or in a rule"
                )
        if body == "like":
            for key in ("scope", "after"):
                if key in fields:
                    raise InvalidModel(
                        f'{label}: key {show(key)} beside "like", which tells it; must not be there'
                    )
        elif "after" in fields:
            if self.effects is None:
                raise InvalidModel(f'{label}: key "after", but the model has no "effects"')
            if "scope" in fields:
                raise InvalidModel(f'{label}: has "scope" and "after"; must have one of them')
        elif kind is TRANSITION and self.effects is not None:
            raise InvalidModel(
                f'{label}: key "after" is missing, the variables whose values after the effects '
                f"it depends on"
            )
        elif "scope" not in fields:
            raise InvalidModel(f'{label}: key "scope" is missing')
        return fields

    def _in_order(self) -> list[int]:
        """Return the factors in an order in which each comes after the one that it is like."""
        numbers = {name: index for index, name in enumerate(self.names)}
        self.source: dict[int, int] = {}
        """The factor that each factor is like."""
        for index, (fields, label) in enumerate(zip(self.entries, self.labels, strict=True)):
            if "like" not in fields:
                continue
            like = keyed(fields["like"], f'{label}: "like"', ("factor",), ("with", "values"))
            name = text(like["factor"], f'{label}: "like", "factor"')
            if name not in numbers:
                raise InvalidModel(
                    f"{label}: is like {show(name)}, which is no such factor"
                    f"{did_you_mean(name, self.names)}"
                )
            self.source[index] = numbers[name]
        order: list[int] = []
        done: set[int] = set()
        for start in range(len(self.entries)):
            path: dict[int, None] = {}
            at: int | None = start
            while at is not None and at not in done:
                if at in path:
                    walked = list(path)
                    circle = [self.names[i] for i in [*walked[walked.index(at) :], at]][:8]
                    raise InvalidModel(
                        f"{self.labels[at]}: is like itself: {' like '.join(map(show, circle))}"
                    )
                path[at] = None
                at = self.source.get(at)
            order.extend(reversed(path))
            done.update(path)
        return order

    def _read_factor_scope(self, index: int) -> None:
        fields, label = self.entries[index], self.labels[index]
        if index in self.source:
            new = self._renamed(index)
            scope, of_after = self.scopes[self.source[index]]
            self.scopes[index] = new, of_after
            after = self.after[self.source[index]]
            if after is not None:
                renamed = dict(zip(scope, new, strict=True))
                self.after[index] = tuple(renamed.get(v, v) for v in after)
            return
        if "after" in fields:
            after = read_scope(fields["after"], self.variables, f'{label}: "after"', label)
            action = next((v for v in after if v >= self.variables.m), None)
            if action is not None:
                raise InvalidModel(
                    f'{label}: "after" has {show(self.variables.names[action])}; must be state '
                    f"variables"
                )
            self.after[index] = after
            self.scopes[index] = after, True
        else:
            scope = read_scope(fields["scope"], self.variables, f"{label}: scope", label)
            self.scopes[index] = scope, False

    def _renamed(self, index: int) -> tuple[int, ...]:
        """Return the scope of a factor that is like another."""
        like, label, s = self.entries[index]["like"], self.labels[index], self.variables
        source = self.source[index]
        scope, _ = self.scopes[source]
        conditions = Conditions(s, scope, f'{label}: "like"')
        new = list(scope)
        pairs = like.get("with", {})
        if not isinstance(pairs, dict):
            raise InvalidModel(f'{label}: "like", "with" is {show(pairs)}; must be an object')
        for old, name in pairs.items():
            axis = conditions.axis(old, f'{label}: "like", "with"')
            (new[axis],) = read_scope([name], s, f'{label}: "like", "with"', label)
            if s.all_sizes[new[axis]] != s.all_sizes[scope[axis]]:
                raise InvalidModel(
                    f'{label}: "like" has {name} for {old}, which has '
                    f"{s.all_sizes[scope[axis]]} values; {name} has {s.all_sizes[new[axis]]}"
                )
        if len(set(new)) < len(new):
            twice = next(v for place, v in enumerate(new) if v in new[:place])
            raise InvalidModel(
                f'{label}: "like" {self.names[source]} has {s.names[twice]} for two variables; '
                f"must be different ones"
            )
        if self.sizes[index] != self.sizes[source]:
            raise InvalidModel(
                f"{label}: is like {show(self.names[source])}, whose rows have "
                f"{self.sizes[source]} probabilities; its own must have {self.sizes[index]}"
            )
        return tuple(new)

    def bytes_needed(self) -> int:
        """Return the memory for tables that the file does not have row by row."""
        total = 0
        for (scope, after), fields, size in zip(self.scopes, self.entries, self.sizes, strict=True):
            if after:
                assert self.effects is not None
                scope = self.effects.full_scope(scope)
            if after or not any(key in fields for key in self.kind.tables):
                total += 8 * _COPIES * ((size or 1) + 2) * count(self.variables.scope_sizes(scope))
        return total

    # ---- the tables ------------------------------------------------------------------------------

    def read(self) -> list[Factor]:
        """Return the factors in the order of the file."""
        factors: dict[int, Factor] = {}
        for index in self.order:
            fields = self.entries[index]
            if index in self.source:
                factors[index] = self._like(index, factors[self.source[index]])
            elif "rules" in fields or "tree" in fields:
                factors[index] = self._by_rules(index)
            else:
                factors[index] = self._by_rows(index)
        return [factors[index] for index in range(len(self.entries))]

    def _by_rows(self, index: int) -> Factor:
        fields, label, size = self.entries[index], self.labels[index], self.sizes[index]
        scope, after = self.scopes[index]
        key = next(key for key in self.kind.tables if key in fields)
        needed = count(self.variables.scope_sizes(scope))

        def table(key: str, what: str) -> FloatArray:
            if size is None:
                return read_means(fields[key], self.variables, scope, label, key, what)
            return read_rows(fields[key], self.variables, scope, size, label, key, what)

        values = table(key, {"costs": "cost", "means": "mean"}.get(key, "probability of value"))
        ends = None
        if _has_ends(fields, label):
            ends = (table("lower", "lower end of value"), table("upper", "upper end of value"))
        if "alike" in fields:
            given = array(fields["alike"], f'{label}: "alike"', is_whole, "a whole number")
            if len(given) != needed:
                raise InvalidModel(
                    f'{label}: "alike" has {len(given)} numbers; must have {shown(needed)}, one '
                    f"per row"
                )
            classes = np.fromiter(map(self.classes.numbered, given), np.int64, count=needed)
        else:
            classes = self.classes.fresh(needed)
        if after and size is not None:
            row_label = self.variables.row_label
            as_distributions(
                values, lambda row: f"{label}, {row_label(scope, row)} after the effects"
            )
        return _signed(Factor(scope, after, values, classes, ends, key == "costs"))

    def _by_rules(self, index: int) -> Factor:
        fields, label, size = self.entries[index], self.labels[index], self.sizes[index]
        scope, after = self.scopes[index]
        conditions = Conditions(self.variables, scope, label)
        boxes: list[Sequence[Box]] = []
        rules: list[dict[str, Any]] = []
        labels: list[str] = []
        if "tree" in fields:
            for box, leaf, place in conditions.leaves(fields["tree"]):
                bare = not isinstance(leaf, dict)
                boxes.append((box,))
                rules.append(self._given({self.kind.rows[0]: leaf} if bare else leaf, place))
                labels.append(place)
        else:
            for number, entry in enumerate(array(fields["rules"], f'{label}: "rules"')):
                place = f"{label}, rule {number}"
                rules.append(self._given(entry, place, "when"))
                boxes.append(conditions.boxes(entry["when"], place) if "when" in entry else ({},))
                labels.append(place)
        owner = owners(conditions.sizes, boxes)
        self._refuse_idle(owner, boxes, conditions, labels)
        key = self._one_key(rules, labels)
        values = _rule_table([rule[key] for rule in rules], key, size, labels)
        if size is not None:
            as_distributions(values, lambda rule: labels[rule])
        ends = None
        with_ends = [_has_ends(rule, place) for rule, place in zip(rules, labels, strict=True)]
        if any(with_ends):
            lower, upper = (
                _rule_table([rule.get(end, rule[key]) for rule in rules], end, size, labels)
                for end in _ENDS
            )
            ends = (lower[owner], upper[owner])
        numbers = self._rule_classes(rules, labels)
        return _signed(Factor(scope, after, values[owner], numbers[owner], ends, key == "cost"))

    def _rule_classes(self, rules: Sequence[dict[str, Any]], labels: Sequence[str]) -> IndexArray:
        """Return the class of the rows of each rule."""
        self.classes.any_shared = True
        numbers = self.classes.fresh(len(rules))
        for index, rule in enumerate(rules):
            if "alike" in rule:
                if not is_whole(rule["alike"]):
                    raise InvalidModel(
                        f'{labels[index]}: "alike" is {show(rule["alike"])}; must be a whole number'
                    )
                numbers[index] = self.classes.numbered(rule["alike"])
        return numbers

    def _given(self, entry: Any, label: str, *more: str) -> dict[str, Any]:
        """Return the checked keys of a rule or a leaf."""
        rows = self.kind.rows
        fields = keyed(entry, label, (), (*more, *rows, *_ENDS, "alike"))
        if sum(key in fields for key in rows) != 1:
            raise InvalidModel(f"{label}: must have {' or '.join(map(show, rows))}")
        return fields

    def _one_key(self, rules: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> str:
        """Return the key under which all rules have their numbers."""
        key = next(key for key in self.kind.rows if key in rules[0])
        for rule, label in zip(rules, labels, strict=True):
            if key not in rule:
                raise InvalidModel(f"{label}: has no {show(key)}, as the first has; must be alike")
        return key

    def _refuse_idle(
        self,
        owner: IndexArray,
        boxes: Sequence[Sequence[Box]],
        conditions: Conditions,
        labels: Sequence[str],
    ) -> None:
        """Raise InvalidModel if a row has no rule, or a rule no row."""
        left = np.flatnonzero(owner < 0)
        if left.size:
            more = f" (and {left.size - 1} more)" if left.size > 1 else ""
            row = self.variables.row_label(conditions.scope, int(left[0]))
            raise InvalidModel(
                f"{conditions.label}: no rule fits {row}{more}; every row must have one: a last "
                f'rule without "when" fits all that is left'
            )
        idle = np.flatnonzero(np.bincount(owner, minlength=len(boxes)) == 0)
        if not idle.size:
            return
        rule = int(idle[0])
        before = np.unique(owner[owners(conditions.sizes, [boxes[rule]]) >= 0])
        earlier = f"rule {before[0]} fits" if before.size == 1 else "earlier rules fit"
        raise InvalidModel(f"{labels[rule]}: can never fit, as {earlier} all of it first")

    def _like(self, index: int, source: Factor) -> Factor:
        like, s = self.entries[index]["like"], self.variables
        label = f'{self.labels[index]}: "like"'
        scope, _ = self.scopes[index]
        self.classes.any_shared = True
        maps = like.get("values", {})
        if not isinstance(maps, dict):
            raise InvalidModel(f'{label}, "values" is {show(maps)}; must be an object')
        if not maps:
            return replace(source, scope=scope)
        conditions = Conditions(s, source.scope, label)
        moved = [np.arange(size) for size in conditions.sizes]
        for name, pairs in maps.items():
            place = f'{label}, "values" of {show(name)}'
            axis = conditions.axis(name, place)
            moved[axis] = _moved_values(s, source.scope[axis], scope[axis], pairs, place)
        rows = np.zeros(1, dtype=np.int64)
        for values, step in zip(moved, strides(conditions.sizes), strict=True):
            rows = (rows[:, None] + values * step).reshape(-1)
        return replace(
            source,
            scope=scope,
            table=source.table[rows],
            classes=source.classes[rows],
            ends=None if source.ends is None else (source.ends[0][rows], source.ends[1][rows]),
        )


def _has_ends(fields: Mapping[str, Any], label: str) -> bool:
    given = [end for end in _ENDS if end in fields]
    if len(given) == 1:
        raise InvalidModel(f'{label}: has {show(given[0])} alone; must have "lower" and "upper"')
    return bool(given)


def _signed(factor: Factor) -> Factor:
    """Return a factor with costs turned into rewards."""
    if not factor.costs:
        return factor
    ends = None if factor.ends is None else (-factor.ends[1], -factor.ends[0])
    return replace(factor, table=-factor.table, ends=ends)


def _moved_values(s: Structure, old: int, new: int, pairs: Any, label: str) -> IndexArray:
    """Return for each value of the new variable the value of the old one.

    Values that are not named correspond, in their order, to those that are left.
    """
    if not isinstance(pairs, dict):
        raise InvalidModel(f"{label} is {show(pairs)}; must be an object")
    size = s.all_sizes[old]
    source = np.full(size, -1, dtype=np.int64)
    for name, target in pairs.items():
        value = value_of(s, new, target, label)
        if source[value] >= 0:
            raise InvalidModel(f"{label}: {show(target)} stands for two values; must be for one")
        source[value] = value_of(s, old, name, label)
    free = np.ones(size, dtype=np.bool_)
    free[source[source >= 0]] = False
    source[source < 0] = np.flatnonzero(free)
    return source


def _rule_table(given: list[Any], key: str, size: int | None, labels: Sequence[str]) -> FloatArray:
    """Return the rows of the rules of one factor, [rules, size], or their means, [rules]."""
    if size is None:
        return numbers(given, lambda place: f"{labels[place]}: {show(key)}")
    for rule, row in enumerate(given):
        if type(row) is not list or len(row) != size:
            raise InvalidModel(
                f"{labels[rule]}: {show(key)} is {show(row)}; must be an array of {size} numbers"
            )
    entries = list(itertools.chain.from_iterable(given))
    return numbers(
        entries, lambda place: f"{labels[place // size]}: {show(key)}, entry {place % size}"
    ).reshape(len(given), size)


def refuse_large_tables(readers: Sequence[FactorReader]) -> None:
    """Raise FileProblem if the tables would not fit into memory."""
    needed = sum(reader.bytes_needed() for reader in readers)
    limit = memory_for_files()
    if needed > limit:
        size = describe_bytes(needed) if needed < 1 << 60 else f"{shown(needed)} bytes"
        raise FileProblem(
            f"the tables of its rules take about {size}; must be at most "
            f"{describe_bytes(limit)}, half of the free memory"
        )


def read_scope(value: Any, structure: VariableSpace, what: str, label: str) -> tuple[int, ...]:
    """Return the numbers of variables that a file names, in any order."""
    names = array(value, what, is_text, "the name of a variable")
    try:
        scope = tuple(structure.variable(name) for name in names)
    except UnknownName as error:
        raise InvalidModel(f"{label}: {error}") from None
    if len(set(scope)) < len(scope):
        twice = next(v for place, v in enumerate(scope) if v in scope[:place])
        raise InvalidModel(
            f"{label}: variable {twice} ({show(structure.names[twice])}) occurs twice; must occur "
            f"once"
        )
    return scope


def read_rows(
    value: Any,
    structure: VariableSpace,
    scope: Sequence[int],
    size: int,
    label: str,
    key: str = "rows",
    what: str = "probability of value",
) -> FloatArray:
    """Return transition rows: an array of arrays of numbers, [|X[scope]|, size].

    The type of every entry is checked, because NumPy would turn "0.5", true and null into numbers;
    sets of types over the whole table keep that fast.
    """
    rows = array(value, f'{label}: "{key}"')
    needed = count(structure.scope_sizes(scope))
    if len(rows) != needed:
        raise InvalidModel(_wrong_length(label, key, len(rows), needed, structure, scope))
    if not set(map(type, rows)) <= {list}:
        row = next(r for r, entries in enumerate(rows) if type(entries) is not list)
        raise InvalidModel(
            f"{label}, {structure.row_label(scope, row)}: is {show(rows[row])}; "
            f"must be an array of {size} numbers"
        )
    if not set(map(len, rows)) <= {size}:
        row = next(r for r, entries in enumerate(rows) if len(entries) != size)
        raise InvalidModel(
            f"{label}, {structure.row_label(scope, row)}: has {len(rows[row])} probabilities; "
            f"must have {size}"
        )
    entries = list(itertools.chain.from_iterable(rows))
    return numbers(
        entries,
        lambda place: (
            f"{label}, {structure.row_label(scope, place // size)}: {what} {place % size}"
        ),
    ).reshape(needed, size)


def read_means(
    value: Any,
    structure: Structure,
    scope: Sequence[int],
    label: str,
    key: str = "means",
    what: str = "mean",
) -> FloatArray:
    """Return reward means: an array of numbers, [|X[scope]|]."""
    means = array(value, f'{label}: "{key}"')
    needed = count(structure.scope_sizes(scope))
    if len(means) != needed:
        raise InvalidModel(_wrong_length(label, key, len(means), needed, structure, scope))
    return numbers(means, lambda place: f"{label}, {structure.row_label(scope, place)}: {what}")


def _wrong_length(
    label: str, key: str, given: int, needed: int, structure: VariableSpace, scope: Sequence[int]
) -> str:
    named = ", ".join(f"{structure.names[v]} of size {structure.all_sizes[v]}" for v in scope)
    return f'{label}: "{key}" has {given} rows; must have {shown(needed)}, for scope ({named})'


def numbers(entries: list[Any], place_label: Callable[[int], str]) -> FloatArray:
    """Return JSON numbers as an array, or raise InvalidModel with the place of another entry."""
    if set(map(type, entries)) <= {int, float}:
        with contextlib.suppress(OverflowError):
            return np.fromiter(entries, dtype=np.float64, count=len(entries))
    place = next(p for p, entry in enumerate(entries) if not is_number(entry))
    raise InvalidModel(f"{place_label(place)} is {show(entries[place])}; must be a number")
