"""What fmdp writes into comments of a PRISM file, and reads again: what PRISM has no words for.

    //: model {"name": ..., "groups": ..., "effects": ...}
    //: actions {"restart": ["0", "1"]}           the action variables and their values, in order
    //: label restart_0 {"restart": "0"}          the joint action behind a label
    //: variable {"name": "pump 1", "values": ["new", "worn"], "scope": [...], "alike": [...]}
    //: constraint {"name": ..., "scope": [...]}, or with "at_most", "of" and "idle"
    //: reward {"name": ..., "scope": [...], "range": [0, 1], "noise": {...}, "alike": [...]}

Scopes name variables as the file does, and action variables as the note on them does. The numbers
are those of the commands, always: a note that says otherwise (a scope that lacks a variable on
which the commands depend, a cap that the guards do not have) is refused, with its line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fmdp.errors import InvalidModel
from fmdp.interop.effects import with_effects
from fmdp.interop.prism.program import Note, Program
from fmdp.interop.prism.tokens import refuse
from fmdp.model.alike import Alike
from fmdp.model.constraints import AtMost, Constraint
from fmdp.model.factored import FactoredMDP
from fmdp.model.fields import is_value
from fmdp.model.naming import Value
from fmdp.model.noise import Noise
from fmdp.model.spaces import FloatArray, count, encode, shown
from fmdp.model.tables import range_of

ACTION = "action"
"""What the one action variable of a file without notes is called."""
STEP = "step"
"""What commands without a label are called."""


@dataclass(frozen=True)
class Actions:
    """The labels, and the action variables behind them."""

    labels: list[str]
    """One a joint action, in order."""
    names: list[str]
    values: Sequence[Sequence[Value]]

    @property
    def sizes(self) -> list[int]:
        """Of the action variables."""
        return [len(own) for own in self.values]


def actions_of(program: Program, labels: list[str], taken: Sequence[str]) -> Actions:
    """The actions: as noted, else one variable whose values are the labels."""
    noted = [note for note in program.notes if note.word == "actions"]
    if not noted:
        name = ACTION
        while name in taken:
            name += "_"
        names = [label or STEP for label in labels]
        if len(set(names)) < len(names):
            names[labels.index("")] = f"{STEP}_"
        return Actions(labels, [name], [names])
    note = noted[0]
    values = [_values(own, note) for own in note.content.values()]
    actions = Actions([], list(note.content), values)
    by_index: dict[int, str] = {}
    for own in (own for own in program.notes if own.word == "label"):
        place = []
        for name, known in zip(actions.names, values, strict=True):
            if own.content.get(name) not in known:
                refuse(own.line, f"label {own.name}: {name} is {shown(own.content.get(name))}; "
                       f"must be one of {', '.join(map(str, known))}")  # fmt: skip
            place.append(known.index(own.content[name]))
        by_index[encode(place, actions.sizes)] = own.name
    if len(by_index) != count(actions.sizes) or len({*by_index.values()}) != len(by_index):
        refuse(note.line, f"{len(by_index)} labels are noted for {count(actions.sizes)} joint "
               f"actions; must be one each")  # fmt: skip
    known_labels = {*by_index.values()}
    for label in labels:
        if label not in known_labels:
            line = next(
                own.line for module in program.modules for own in module.commands
                if own.label == label
            )  # fmt: skip
            refuse(line, f"[{label}] is none of the labels that are noted in line {note.line}")
    return replace(actions, labels=[by_index[index] for index in sorted(by_index)])


def _values(given: Any, note: Note) -> list[Value]:
    """Return the values of an action variable in a comment, or refuse them."""
    if not isinstance(given, list) or not given or not all(map(is_value, given)):
        refuse(note.line, f"the comment holds {shown(given)}; must be a list of texts or numbers")
    return list(given)


class FactorNote:
    """A note on a variable, a constraint or a reward."""

    def __init__(self, note: Note, actions: Actions, numbers: Mapping[str, int]) -> None:
        self.line = note.line
        self.content = note.content
        self.is_cap = "at_most" in note.content
        self.is_constraint = note.word == "constraint"
        self._names = [*numbers, *actions.names]
        known = dict(numbers) | {name: len(numbers) + j for j, name in enumerate(actions.names)}
        listed = note.content.get("of" if self.is_cap else "scope", [])
        if not isinstance(listed, list) or not all(
            isinstance(own, str) and own in known for own in listed
        ):
            refuse(note.line, f"the scope in the comment is {shown(listed)}; must be variables")
        self.scope = sorted(known[own] for own in listed)

    @property
    def name(self) -> str | None:
        """The name as it was, if it is there."""
        found = self.content.get("name")
        if found is not None and not isinstance(found, str):
            refuse(self.line, f"the name in the comment is {shown(found)}; must be a text")
        return found

    def refuse_more(self, axes: Sequence[int]) -> None:
        """Refuse a table that depends on more than the scope."""
        for v in axes:
            if v not in self.scope:
                refuse(
                    self.line,
                    f"the comment says that this depends on "
                    f"{', '.join(self._names[own] for own in self.scope) or 'nothing'}, but it "
                    f"depends on {self._names[v]}",
                )


def cap_of(note: FactorNote, n: int, m: int) -> AtMost:
    """The cap in a note; the file has n variables, the model m."""
    idle = note.content.get("idle", [])
    actions = tuple(v - n + m for v in note.scope)
    try:
        return AtMost(actions, note.content["at_most"], idle, note.name or "")
    except InvalidModel as error:
        refuse(note.line, f"the comment holds no cap: {error}")


def finished(
    program: Program,
    actions: Actions,
    *,
    state_names: Sequence[str],
    state_values: Sequence[Sequence[Value]],
    notes: Sequence[FactorNote | None],
    transitions: Sequence[tuple[tuple[int, ...], FloatArray]],
    rewards: Sequence[tuple[FactorNote | None, tuple[int, ...], FloatArray]],
    reward_name: str,
    constraints: Sequence[Constraint],
    initial_state: Sequence[int],
    name: str,
) -> FactoredMDP:
    """The model of tables, with what notes add to them."""
    told = next((note for note in program.notes if note.word == "model"), None)
    about = {} if told is None else told.content
    values = [
        own if note is None or "values" not in note.content else note.content["values"]
        for own, note in zip(state_values, notes, strict=True)
    ]
    laws = [Noise() if note is None else _noise(note) for note, _, _ in rewards]
    means = [rows[..., 0] for _, _, rows in rewards]
    try:
        model = FactoredMDP.from_factors(
            [len(own) for own in state_values],
            actions.sizes,
            transitions,
            [(scope, own) for (_, scope, _), own in zip(rewards, means, strict=True)],
            reward_ranges=[
                range_of(own) if note is None else note.content.get("range", range_of(own))
                for (note, _, _), own in zip(rewards, means, strict=True)
            ],
            state_names=[
                own if note is None else note.name or own
                for own, note in zip(state_names, notes, strict=True)
            ],
            action_names=actions.names,
            reward_names=_reward_names(rewards, reward_name),
            state_values=values,
            action_values=actions.values,
            groups=about.get("groups", ()),
            noise=laws,
            initial_state=list(initial_state),
            name=about.get("name", name),
            alike=_alike([*notes], [note for note, _, _ in rewards]),
            constraints=constraints,
        )
        return with_effects(model, about["effects"]) if "effects" in about else model
    except (TypeError, KeyError, AttributeError, OverflowError) as error:
        # What a comment holds may be anything.
        line = 1 if told is None else told.line
        refuse(line, f"comments of fmdp's do not fit the model ({type(error).__name__}: {error})")


def _reward_names(
    rewards: Sequence[tuple[FactorNote | None, tuple[int, ...], FloatArray]], name: str
) -> list[str]:
    base = name or "reward"
    return [
        (note.name if note is not None else None) or (base if place == 1 else f"{base}_{place}")
        for place, (note, _, _) in enumerate(rewards, start=1)
    ]


def _noise(note: FactorNote) -> Noise:
    given = note.content.get("noise", {})
    if not isinstance(given, dict) or not given.keys() <= {"kind", "scale"}:
        refuse(note.line, f"the noise in the comment is {shown(given)}; must be a kind and a scale")
    return Noise(**given)


def _alike(
    transitions: Sequence[FactorNote | None], rewards: Sequence[FactorNote | None]
) -> Alike | None:
    every = [*transitions, *rewards]
    lists = [None if note is None else note.content.get("alike") for note in every]
    if all(own is None for own in lists):
        return None
    for note, own in zip(every, lists, strict=True):
        if not isinstance(own, list) or not all(type(one) is int for one in own):
            line = next(one.line for one in every if one is not None) if note is None else note.line
            refuse(line, "which rows are alike must be noted for all tables, by whole numbers")
    made = [np.array(own, dtype=np.int64) for own in lists]
    return Alike(tuple(made[: len(transitions)]), tuple(made[len(transitions) :]))
