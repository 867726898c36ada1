"""The text of a model file: one key, one list entry, one row or one rule per line.

A model is written in version 1 if that can express it, so that older readers read it and old files
are reproduced byte for byte, else in version 2, or in version 3 for derived variables, quantities
and budgets. Alike
rows are written once: by rules (rules.py) or as another factor with its variables renamed
(renaming.py). Rows with the numbers of their classes are written if rules would not be shorter.
Floats are written with the digits that identify them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmdp.model.constraints import AtMost, Budget, Constraint
from fmdp.model.effects import Effect, first_rows
from fmdp.model.factored import FactoredMDP
from fmdp.model.io.derived import written_derived
from fmdp.model.io.document import FORMAT
from fmdp.model.io.renaming import Renaming, find_renaming, renamed_rows
from fmdp.model.naming import Value, are_numerals, listed_values
from fmdp.model.rules import Box, find_boxes, find_rules, owners
from fmdp.model.spaces import FloatArray, IndexArray, all_assignments, count, decode, strides
from fmdp.model.structure import Structure


def text_of(model: FactoredMDP) -> str:
    """Return the text of the model file of a model."""
    s = model.structure
    known = s.alike is not None or s.effects is not None or model.intervals is not None
    budgets = any(isinstance(constraint, Budget) for constraint in s.constraints)
    newest = bool(s.derived or model.quantities or budgets)
    plain = not (known or s.constraints or newest)
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": 1 if plain else 3 if newest else 2,
        "name": model.name,
    }
    for key, sizes, names, values in (
        ("states", s.state_sizes, s.state_names, s.state_values),
        ("actions", s.action_sizes, s.action_names, s.action_values),
    ):
        document[key] = [
            {"name": name, "size": size}
            | ({} if are_numerals(labels) else {"values": listed_values(labels)})
            for name, size, labels in zip(names, sizes, values, strict=True)
        ]
    named = not plain and not all(map(are_numerals, s.state_values))
    document["initial_state"] = (
        _Line(s.name_state(model.initial_state)) if named else model.initial_state
    )
    document["groups"] = [[s.names[v] for v in group] for group in s.groups]
    document |= _tables(model) if plain else _knowledge(model)
    return _text(document) + "\n"


_FEW = 12
"""Most means on one line, and most rows for which rules need not be shorter."""


class _Line:
    """A value that is written on one line."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _text(value: Any, margin: str = "") -> str:
    """Return JSON with one key, one list entry or one row of a table per line."""
    inner = margin + "  "
    if isinstance(value, _Line):
        return json.dumps(value.value, ensure_ascii=False, allow_nan=False)
    if isinstance(value, np.ndarray):
        # A table holds only numbers, so the end of a row can be found in the compact text.
        compact = json.dumps(value.tolist(), allow_nan=False)
        end = "], [" if value.ndim == 2 else ", "
        lines = compact[1:-1].replace(end, end.replace(" ", f"\n{inner}"))
        return f"[\n{inner}{lines}\n{margin}]"
    if isinstance(value, dict) and any(
        isinstance(v, (list, np.ndarray, _Line)) for v in value.values()
    ):
        lines = f",\n{inner}".join(
            f"{json.dumps(key)}: {_text(item, inner)}" for key, item in value.items()
        )
        return f"{{\n{inner}{lines}\n{margin}}}"
    if isinstance(value, list) and any(isinstance(item, (dict, list, _Line)) for item in value):
        lines = f",\n{inner}".join(_text(item, inner) for item in value)
        return f"[\n{inner}{lines}\n{margin}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _noise(model: FactoredMDP, k: int) -> dict[str, Any]:
    law = model.noise[k]
    return {"kind": law.kind} | ({"scale": law.scale} if law.scale else {})


def _tables(model: FactoredMDP) -> dict[str, Any]:
    """Return the factors of version 1."""
    s = model.structure
    return {
        "transitions": [
            {"state": s.state_names[i], "scope": [s.names[v] for v in scope], "rows": table}
            for i, (scope, table) in enumerate(
                zip(s.transition_scopes, model.transitions, strict=True)
            )
        ],
        "rewards": [
            {
                "name": s.reward_names[k],
                "scope": [s.names[v] for v in scope],
                "range": s.reward_ranges[k],
                "noise": _noise(model, k),
                "means": means,
            }
            for k, (scope, means) in enumerate(zip(s.reward_scopes, model.rewards, strict=True))
        ],
    }


# ---- version 2 -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _WrittenFactor:
    """A factor as it is written, over the state after the effects if possible."""

    heading: dict[str, Any]
    """Keys before the table, except the scope."""
    scope: tuple[int, ...]
    scopes: dict[str, Any]
    """Keys of the scope."""
    table: FloatArray
    classes: IndexArray
    ends: tuple[FloatArray, FloatArray] | None
    """Ends of its intervals, equal for rows of one class; None if they have no width."""


def _knowledge(model: FactoredMDP) -> dict[str, Any]:
    """Return the factors, constraints and effects of version 2."""
    s, intervals = model.structure, model.intervals
    effects = s.effects
    transitions: list[_WrittenFactor] = []
    for i in range(s.m):
        transitions.append(
            _factor(
                s,
                {"state": s.state_names[i]},
                s.transition_scopes[i],
                model.transitions[i],
                s.transition_classes_of(i),
                None if intervals is None else (intervals.lower[i], intervals.upper[i]),
                None if effects is None else effects.after_scopes[i],
            )
        )
    rewards: list[_WrittenFactor] = []
    for k in range(s.l):
        kind = None if effects is None else effects.rewards[k]
        rewards.append(
            _factor(
                s,
                {"name": s.reward_names[k]}
                | ({} if kind in (None, "after") else {"kind": kind})
                | {"range": s.reward_ranges[k], "noise": _noise(model, k)},
                s.reward_scopes[k],
                model.rewards[k],
                s.reward_classes_of(k),
                None
                if intervals is None
                else (intervals.reward_lower[k], intervals.reward_upper[k]),
                effects.after_reward_scopes[k] if effects and kind == "after" else None,
            )
        )
    everything = (*transitions, *rewards)
    # If all intervals have no width, the first factor says that there are intervals.
    bare = intervals is not None and all(factor.ends is None for factor in everything)
    document: dict[str, Any] = {}
    if s.derived:
        document["derived"] = [
            {key: _Line(value) if key == "map" else value for key, value in entry.items()}
            for entry in written_derived(s)
        ]
    if s.constraints:
        document["constraints"] = [_Line(_constraint(s, c)) for c in s.constraints]
    if effects is not None:
        document["effects"] = [_effect(s, effect) for effect in effects.components]
    document["transitions"] = _written(s, transitions, s.state_names, "rows", "row", bare)
    document["rewards"] = _written(s, rewards, s.reward_names, "means", "mean", False)
    if model.quantities:
        document["quantities"] = [
            {
                "name": quantity.name,
                "scope": [s.names[v] for v in quantity.scope],
                "means": _Line(quantity.table.tolist()),
            }
            for quantity in model.quantities
        ]
    return document


def _factor(
    s: Structure,
    heading: dict[str, Any],
    scope: tuple[int, ...],
    table: FloatArray,
    classes: IndexArray,
    ends: tuple[FloatArray, FloatArray] | None,
    after: tuple[int, ...] | None,
) -> _WrittenFactor:
    if ends is not None and all(np.array_equal(end, table) for end in ends):
        ends = None
    if after is None:
        named = {"scope": [s.names[v] for v in scope]}
        return _WrittenFactor(heading, scope, named, table, classes, ends)
    assert s.effects is not None
    # States that no effect leads to may have any row.
    first = first_rows(s.effects.after_rows(after, s.sizes), count(s.scope_sizes(after)))
    return _WrittenFactor(
        heading,
        after,
        {"after": [s.names[v] for v in after]},
        table[first],
        classes[first],
        None if ends is None else (ends[0][first], ends[1][first]),
    )


def _written(
    s: Structure,
    factors: Sequence[_WrittenFactor],
    names: Sequence[str],
    rows_key: str,
    row_key: str,
    bare: bool,
) -> list[Any]:
    """Return all factors of one kind; the first with the ends of its intervals if `bare`."""
    sources = _sources(s, factors)
    explicit = [index for index in range(len(factors)) if index not in sources]
    places = Counter(
        number for index in explicit for number in np.unique(factors[index].classes).tolist()
    )
    shared = {number for number, n in places.items() if n > 1}
    written: list[Any] = []
    for index, factor in enumerate(factors):
        if index in sources:
            source, renaming = sources[index]
            # A reward that is like another has its range and noise.
            heading = {
                key: value for key, value in factor.heading.items() if key not in ("range", "noise")
            }
            like = _like(s, names[source], factors[source].scope, factor.scope, renaming)
            written.append(_Line(heading | {"like": like}))
            continue
        ends = (factor.table, factor.table) if bare and index == 0 else factor.ends
        (first, *others) = factor.heading.items()
        body = _body(s, factor, ends, shared, rows_key, row_key)
        written.append(dict([first]) | factor.scopes | dict(others) | body)
    return written


def _sources(s: Structure, factors: Sequence[_WrittenFactor]) -> dict[int, tuple[int, Renaming]]:
    """Return for each factor that is like an earlier one that factor and the renaming."""
    if s.alike is None:
        return {}
    sources: dict[int, tuple[int, Renaming]] = {}
    by_classes: dict[tuple[bytes, str], list[int]] = {}
    for index, factor in enumerate(factors):
        key = np.sort(factor.classes).tobytes(), f"{factor.heading.get('kind')}{[*factor.scopes]}"
        for source in by_classes.get(key, [])[:4]:
            other = factors[source]
            renaming = find_renaming(
                other.classes,
                s.scope_sizes(other.scope),
                factor.classes,
                s.scope_sizes(factor.scope),
            )
            if renaming is not None and _same_ends(other, factor, s, renaming):
                sources[index] = source, renaming
                break
        else:
            by_classes.setdefault(key, []).append(index)
    return sources


def _same_ends(old: _WrittenFactor, new: _WrittenFactor, s: Structure, renaming: Renaming) -> bool:
    if old.ends is None or new.ends is None:
        return old.ends is new.ends
    rows = renamed_rows(renaming, s.scope_sizes(old.scope))
    return all(
        np.array_equal(end[rows], other) for end, other in zip(old.ends, new.ends, strict=True)
    )


def _like(
    s: Structure, source: str, old: Sequence[int], new: Sequence[int], renaming: Renaming
) -> dict[str, Any]:
    like: dict[str, Any] = {"factor": source}
    pairs = [(v, new[axis]) for v, axis in zip(old, renaming.axes, strict=True)]
    renamed = {s.names[v]: s.names[other] for v, other in pairs if v != other}
    if renamed:
        like["with"] = renamed
    moved = {
        s.names[v]: _moves(s, v, other, values)
        for (v, other), values in zip(pairs, renaming.values, strict=True)
        if (values != np.arange(len(values))).any()
    }
    if moved:
        like["values"] = moved
    return like


def _moves(s: Structure, old: int, new: int, values: IndexArray) -> dict[str, Any]:
    """Return old value -> new value, as few as needed: the others keep their order."""
    changed = sorted(
        np.flatnonzero(values != np.arange(len(values))).tolist(), key=lambda new: values[new]
    )
    for value in changed:
        others = np.delete(np.arange(len(values)), values[value])
        if np.array_equal(np.insert(others, value, values[value]), values):
            changed = [value]
            break
    return {s.values[old][int(values[value])]: s.values[new][value] for value in changed}


def _body(
    s: Structure,
    factor: _WrittenFactor,
    ends: tuple[FloatArray, FloatArray] | None,
    shared: set[int],
    rows_key: str,
    row_key: str,
) -> dict[str, Any]:
    """Return the table: by rules if they are shorter, else row by row."""
    classes, n = factor.classes, len(factor.classes)
    sizes = s.scope_sizes(factor.scope)
    numbers, places = np.unique(classes, return_index=True)
    rules = None
    if len(numbers) < n:
        rules = find_rules(sizes, classes, most_boxes=max(n * 2 // 3, min(n - 1, _FEW)))
    if rules is None:
        body: dict[str, Any] = {rows_key: _short(factor.table)}
        if ends is not None:
            body |= {"lower": _short(ends[0]), "upper": _short(ends[1])}
        if len(numbers) < n or not shared.isdisjoint(numbers.tolist()):
            body["alike"] = _Line(classes.tolist())
        return body
    first = dict(zip(numbers.tolist(), places.tolist(), strict=True))
    lines: list[_Line] = []
    for rule in rules:
        row = first[rule.owner]
        line: dict[str, Any] = {}
        if len(rule.boxes) > 1:
            line["when"] = [_condition(s, factor.scope, box) for box in rule.boxes]
        elif rule.boxes[0]:
            line["when"] = _condition(s, factor.scope, rule.boxes[0])
        line[row_key] = factor.table[row].tolist()
        if ends is not None:
            line |= {"lower": ends[0][row].tolist(), "upper": ends[1][row].tolist()}
        if rule.owner in shared:
            line["alike"] = rule.owner
        lines.append(_Line(line))
    return {"rules": lines}


def _short(table: FloatArray) -> Any:
    """Return a few means on one line, other tables unchanged."""
    return _Line(table.tolist()) if table.ndim == 1 and len(table) <= _FEW else table


def _condition(s: Structure, scope: Sequence[int], box: Box) -> dict[str, Any]:
    return {s.names[scope[axis]]: _values(s, scope[axis], chosen) for axis, chosen in box.items()}


def _values(s: Structure, variable: int, chosen: Sequence[int]) -> Any:
    """Return listed values, or "not" the others if these are fewer."""
    size = s.all_sizes[variable]
    if 2 < size < 2 * len(chosen):
        kept = set(chosen)
        without = [value for value in range(size) if value not in kept]
        return {"not": _values(s, variable, without)}
    values = [_value(s, variable, place) for place in chosen]
    return values[0] if len(values) == 1 else values


def _value(s: Structure, variable: int, place: int) -> Value:
    return listed_values(s.values[variable])[place]


def _constraint(s: Structure, constraint: Constraint) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": constraint.name} if constraint.name else {}
    if isinstance(constraint, AtMost):
        entry |= {"at_most": constraint.most, "of": [s.names[v] for v in constraint.actions]}
        idle = [_value(s, *pair) for pair in constraint.pairs()]
        return entry | {"idle": idle[0] if len(set(idle)) == 1 else idle}
    if isinstance(constraint, Budget):
        costs = {
            s.names[v]: {s.values[v][place]: cost for place, cost in enumerate(row) if cost}
            for v, row in zip(constraint.actions, constraint.costs, strict=True)
        }
        return entry | {"budget": constraint.limit, "costs": costs}
    scope = constraint.scope
    boxes = find_boxes(s.scope_sizes(scope), constraint.forbidden_table(s.sizes))
    if set(scope) != {scope[axis] for box in boxes for axis in box}:
        entry["scope"] = [s.names[v] for v in scope]
    return entry | {"forbid": [_condition(s, scope, box) for box in boxes]}


def _effect(s: Structure, effect: Effect) -> dict[str, Any]:
    """Return a component, its outcome by rules; states that no rule names do not change."""
    sizes = s.scope_sizes(effect.scope)
    state_sizes = s.scope_sizes(effect.states)
    before = all_assignments(sizes)[:, : len(state_sizes)]
    after = effect.outcome[:, None] // np.array(strides(state_sizes)) % np.array(state_sizes)
    # One code per variable: 0 if it stays, 1 + value if it is set.
    sets = np.where(after == before, 0, after + 1)
    codes = [size + 1 for size in state_sizes]
    classes = (sets @ np.array(strides(codes))).astype(np.int64)
    _read_as_set(classes.reshape(count(state_sizes), -1), before, sets)
    rules = find_rules(sizes, classes, most_boxes=len(classes))
    heading: dict[str, Any] = {
        "states": [s.names[v] for v in effect.states],
        "actions": [s.names[v] for v in effect.actions],
    }
    if rules is None:
        return heading | {"outcome": _Line(effect.outcome.tolist())}
    setting = [rule for rule in rules if rule.owner]
    if (owners(sizes, [rule.boxes for rule in setting])[classes == 0] < 0).all():
        rules = setting  # rows that no rule fits do not change
    lines: list[_Line] = []
    for rule in rules:
        to = {
            s.names[v]: _value(s, v, code - 1)
            for v, code in zip(effect.states, decode(rule.owner, codes), strict=True)
            if code
        }
        when = [_condition(s, effect.scope, box) for box in rule.boxes]
        line = {} if when == [{}] else {"when": when[0] if len(when) == 1 else when}
        lines.append(_Line(line | {"to": to}))
    return heading | {"outcome": lines}


def _read_as_set(classes: IndexArray, before: IndexArray, sets: IndexArray) -> None:
    """Write unchanged states as set if an action sets all other states to the same values.

    For example, a repair sets every component to "new", also new ones. The classes, [states,
    actions], are changed in place.
    """
    n_actions = classes.shape[1]
    for action in range(n_actions):
        column = classes[:, action]
        changing = np.flatnonzero(column)
        if len(np.unique(column[changing])) != 1:
            continue
        to = sets[changing[0] * n_actions + action]
        same = ((before[action::n_actions] == to - 1) | (to == 0)).all(axis=1)
        column[(column == 0) & same] = column[changing[0]]
