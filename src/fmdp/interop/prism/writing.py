"""Writing of a model as a PRISM file, with one module per state variable.

The modules synchronise on the label of the joint action:

    module machine_0_moves
      machine_0 : [0..1] init 1;
      [restart_0] true -> 1.0 : (machine_0'=1);
      [restart_1] machine_1=0 & machine_0=1 -> 0.525 : (machine_0'=0) + 0.475 : (machine_0'=1);
      ...

Equal rows share one command, whose guard is a union of boxes (`fmdp.model.rules`). A constraint
is a module without variables, whose guards hold where it allows a label. All reward factors are in
one structure, "reward", because their sum is maximised: R{"reward"}max=? [ LRA ]. Each quantity is
a structure of its own. Numbers are written with all significant digits. Comments hold what PRISM
cannot express (notes.py), so that the model read back is equal, bit for bit.

Cost: every joint action (at most MOST_LABELS) is a label for which every module has commands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fmdp.errors import InvalidParameter, TooLarge
from fmdp.interop import effects
from fmdp.interop.identifiers import identifiers
from fmdp.interop.prism.tokens import AVOIDED
from fmdp.model.constraints import AtMost, Budget, Constraint, Mask
from fmdp.model.factored import FactoredMDP
from fmdp.model.naming import are_numerals, listed_values
from fmdp.model.rules import Box, find_boxes
from fmdp.model.spaces import FloatArray, all_assignments, shown, strides

MOST_LABELS = 1 << 12
"""Most joint actions of a model that can be written."""
MOST_LINES = 1 << 20
"""Most commands and rewards in a file."""

REWARD = "reward"
"""Name of the structure with all reward factors."""

_HEAD = """\
// A factored MDP: modules synchronise on the label of the joint action.
// Lines that begin with //: are for fmdp and hold what PRISM cannot express.
// The optimal long-run average: R{"reward"}max=? [ LRA ]"""


def text_of(model: FactoredMDP) -> str:
    """Return the text of the PRISM file of a model."""
    return "\n".join(_Writing(model).lines()) + "\n"


class _Writing:
    def __init__(self, model: FactoredMDP) -> None:
        s = self.s = model.structure
        self.model = model
        if model.intervals is not None:
            raise InvalidParameter(
                f"model {model.name or '(without a name)'} has intervals, and a PRISM file one "
                f"number for each probability; write it without them"
            )
        if s.n_actions > MOST_LABELS:
            raise TooLarge(
                f"a PRISM file has a label for each joint action, and there are "
                f"{shown(s.n_actions)}; at most {MOST_LABELS} are written",
                s.n_actions,
                MOST_LABELS,
            )
        self.joint = all_assignments(s.action_sizes)
        labels = [
            "__".join(
                f"{name}_{values[value]}"
                for name, values, value in zip(s.action_names, s.action_values, row, strict=True)
            )
            for row in self.joint.tolist()
        ]
        made = identifiers(
            [
                *s.state_names,
                *(f"{name}_moves" for name in s.state_names),
                *labels,
                *(f"constraint_{k}" for k in range(len(s.constraints))),
                *(quantity.name for quantity in model.quantities),
            ],
            AVOIDED | {*s.action_names, REWARD},  # notes name these as they are
        )
        self.variables, rest = made[: s.m], made[s.m :]
        self.modules, rest = rest[: s.m], rest[s.m :]
        self.labels, rest = rest[: len(labels)], rest[len(labels) :]
        self.limits, self.measured = rest[: len(s.constraints)], rest[len(s.constraints) :]
        self.left = MOST_LINES

    def lines(self) -> Iterator[str]:
        s, model = self.s, self.model
        yield _HEAD
        about: dict[str, Any] = {"name": model.name}
        if s.groups:
            about["groups"] = [[s.names[v] for v in group] for group in s.groups]
        if s.effects is not None:
            about["effects"] = effects.plain(s.effects)
        yield _note("model", about)
        values = [list(listed_values(listed)) for listed in s.action_values]
        yield _note("actions", dict(zip(s.action_names, values, strict=True)))
        for label, row in zip(self.labels, self.joint.tolist(), strict=True):
            yield _note(f"label {label}", s.naming.actions.as_listed(row))
        yield "\nmdp"
        for i in range(s.m):
            yield from self._module(i)
        for k, constraint in enumerate(s.constraints):
            yield from self._constraint(k, constraint)
        if s.l:
            yield f'\nrewards "{REWARD}"'
            for k in range(s.l):
                yield from self._reward(k)
            yield "endrewards"
        for name, quantity in zip(self.measured, model.quantities, strict=True):
            yield f'\nrewards "{name}"'
            note = {"name": quantity.name, "scope": self._scope(quantity.scope)}
            yield "  " + _note("quantity", note)
            yield from self._means(quantity.scope, quantity.table)
            yield "endrewards"

    def _module(self, i: int) -> Iterator[str]:
        s = self.s
        name, size = self.variables[i], s.state_sizes[i]
        note: dict[str, Any] = {"name": s.state_names[i]}
        if not are_numerals(s.state_values[i]):
            note["values"] = list(listed_values(s.state_values[i]))
        note["scope"] = self._scope(s.transition_scopes[i])
        if s.alike is not None:
            note["alike"] = s.alike.transitions[i].tolist()
        yield f"\nmodule {self.modules[i]}"
        yield "  " + _note("variable", note)
        yield f"  {name} : [0..{size - 1}] init {self.model.initial_state[i]};"
        parts = self._by_label(s.transition_scopes[i], self.model.transitions[i] + 0.0)
        for label, commands in zip(self.labels, parts, strict=True):
            for guard, row in commands:
                update = " + ".join(
                    f"{float(p)!r} : ({name}'={value})" for value, p in enumerate(row) if p > 0
                )
                yield self._counted(f"  [{label}] {guard} -> {update};")
        yield "endmodule"

    def _constraint(self, k: int, constraint: Constraint) -> Iterator[str]:
        s = self.s
        note: dict[str, Any] = {"name": constraint.name}
        if isinstance(constraint, AtMost):
            note["at_most"] = constraint.most
            note["of"] = self._scope(constraint.actions)
            note["idle"] = list(constraint.idle)
        elif isinstance(constraint, Budget):
            note["budget"] = constraint.limit
            note["of"] = self._scope(constraint.actions)
            note["costs"] = constraint.costs
        else:
            note["scope"] = self._scope(constraint.scope)
        yield f"\nmodule {self.limits[k]}"
        yield "  " + _note("constraint", note)
        allowed = (~constraint.forbidden_table(s.sizes)).astype(np.float64)[:, None]
        for label, commands in zip(
            self.labels, self._by_label(constraint.scope, allowed), strict=True
        ):
            guards = [guard for guard, row in commands if row[0]]
            yield self._counted(f"  [{label}] {guards[0] if guards else 'false'} -> true;")
        yield "endmodule"

    def _reward(self, k: int) -> Iterator[str]:
        s, law = self.s, self.model.noise[k]
        scope = s.reward_scopes[k]
        note: dict[str, Any] = {
            "name": s.reward_names[k],
            "scope": self._scope(scope),
            "range": s.reward_ranges[k],
        }
        if law.kind != "deterministic":
            note["noise"] = {"kind": law.kind} | ({"scale": law.scale} if law.scale else {})
        if s.alike is not None:
            note["alike"] = s.alike.rewards[k].tolist()
        yield "  " + _note("reward", note)
        yield from self._means(scope, self.model.rewards[k])

    def _means(self, scope: Sequence[int], table: FloatArray) -> Iterator[str]:
        s = self.s
        parts = self._by_label(scope, table[:, None] + 0.0)
        acts = any(v >= s.m for v in scope)
        # A factor without actions is a state reward and needs no label.
        labels = [f"[{label}] " for label in self.labels] if acts else [""]
        for label, commands in zip(labels, parts, strict=False):
            for guard, row in commands:
                if row[0] != 0.0:
                    yield self._counted(f"  {label}{guard} : {float(row[0])!r};")

    def _counted(self, line: str) -> str:
        self.left -= 1
        if self.left < 0:
            raise TooLarge(
                f"the PRISM file would have more than {MOST_LINES} commands", MOST_LINES, MOST_LINES
            )
        return line

    def _scope(self, scope: Sequence[int]) -> list[str]:
        """Return variables by their names in the file, action variables by those in the notes."""
        return [(*self.variables, *self.s.action_names)[v] for v in scope]

    def _by_label(
        self, scope: Sequence[int], table: FloatArray
    ) -> list[list[tuple[str, FloatArray]]]:
        """Return, for every label, the guards and distinct rows of a table [rows, length]."""
        s = self.s
        states = [v for v in scope if v < s.m]
        acting = [v - s.m for v in scope if v >= s.m]
        sizes = [s.sizes[v] for v in states]
        acted = [s.action_sizes[j] for j in acting]
        # Scopes are sorted: states come first.
        cube = table.reshape(-1, int(np.prod(acted, dtype=np.int64)), table.shape[1])
        index = self.joint[:, acting] @ np.array(strides(acted), dtype=np.int64)
        names = [self.variables[v] for v in states]
        guarded: dict[int, list[tuple[str, FloatArray]]] = {}
        by_label = []
        for place in index.tolist():
            if place not in guarded:
                guarded[place] = _guarded_rows(names, sizes, cube[:, place])
            by_label.append(guarded[place])
        return by_label


def _guarded_rows(
    names: Sequence[str], sizes: Sequence[int], rows: FloatArray
) -> list[tuple[str, FloatArray]]:
    """Return the distinct rows of a table [n, length], each with its guard."""
    places: dict[bytes, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.tobytes(), []).append(place)
    if len(places) == 1:
        return [("true", rows[0])]
    made = []
    for indices in places.values():
        mask: Mask = np.zeros(len(rows), dtype=np.bool_)
        mask[indices] = True
        boxes = [_guard(names, sizes, box) for box in find_boxes(sizes, mask)]
        whole = boxes[0] if len(boxes) == 1 else " | ".join(f"({box})" for box in boxes)
        made.append((whole, rows[indices[0]]))
    return made


def _guard(names: Sequence[str], sizes: Sequence[int], box: Box) -> str:
    return " & ".join(
        _values(names[axis], sizes[axis], chosen) for axis, chosen in sorted(box.items())
    )


def _values(name: str, size: int, chosen: Sequence[int]) -> str:
    """Return the condition that a variable has one of these values."""
    low, high = chosen[0], chosen[-1]
    if len(chosen) == 1:
        return f"{name}={low}"
    if high - low + 1 == len(chosen):
        least = [] if low == 0 else [f"{name}>={low}"]
        return " & ".join(least + ([] if high == size - 1 else [f"{name}<={high}"]))
    without = sorted(set(range(size)) - set(chosen))
    if len(without) < len(chosen):
        return " & ".join(f"{name}!={value}" for value in without)
    return f"({' | '.join(f'{name}={value}' for value in chosen)})"


def _note(word: str, content: dict[str, Any]) -> str:
    return f"//: {word} {json.dumps(content, allow_nan=False)}"
