"""Notes: comments of a PRISM file in which fmdp stores what PRISM cannot express.

    //: model {"name": ..., "groups": ..., "effects": ...}
    //: actions {"restart": ["0", "1"]}           the action variables and their values, in order
    //: label restart_0 {"restart": "0"}          the joint action behind a label
    //: variable {"name": "pump 1", "values": ["new", "worn"], "scope": [...], "alike": [...]}
    //: constraint {"name": ..., "scope": [...]}, or with "at_most", "of" and "idle", or with
    //: "budget", "of" and "costs"
    //: reward {"name": ..., "scope": [...], "range": [0, 1], "noise": {...}, "alike": [...]}
    //: quantity {"name": ..., "scope": [...]}    of a structure that is measured and not paid

Scopes use the file's names for variables and the names of the note `actions` for action variables.
The commands always determine the numbers: a note that contradicts them (a scope that lacks a
variable on which the commands depend, a cap that the guards do not have) is refused with its line.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fmdp.errors import FmdpError, InvalidModel
from fmdp.interop.choosing import free_name, negative_name
from fmdp.interop.effects import with_effects
from fmdp.interop.explicit import STEP
from fmdp.interop.prism.objectives import Objective
from fmdp.interop.prism.program import Note, Program
from fmdp.interop.prism.tokens import refuse
from fmdp.model.alike import Alike
from fmdp.model.constraints import AtMost, Budget, Constraint, LinearCap
from fmdp.model.factored import FactoredMDP
from fmdp.model.fields import is_value
from fmdp.model.naming import Value
from fmdp.model.noise import Noise
from fmdp.model.spaces import FloatArray, count, encode, shown
from fmdp.model.tables import negated, range_of

ACTION = "action"
"""Name of the only action variable of a file without notes."""


@dataclass(frozen=True)
class Actions:
    """The labels and the action variables that they stand for."""

    labels: list[str]
    """One per joint action, in order."""
    names: list[str]
    values: Sequence[Sequence[Value]]

    @property
    def sizes(self) -> list[int]:
        return [len(values) for values in self.values]


def actions_of(program: Program, labels: list[str], taken: Sequence[str]) -> Actions:
    """Return the actions of the notes, or else one variable whose values are the labels."""
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
    values = [_values(listed, note) for listed in note.content.values()]
    actions = Actions([], list(note.content), values)
    by_index: dict[int, str] = {}
    for entry in program.notes:
        if entry.word != "label":
            continue
        joint = []
        for name, known in zip(actions.names, values, strict=True):
            value = entry.content.get(name)
            if value not in known:
                allowed = ", ".join(map(str, known))
                refuse(
                    entry.line,
                    f"label {entry.name}: {name} is {shown(value)}; must be one of {allowed}",
                )
            joint.append(known.index(value))
        by_index[encode(joint, actions.sizes)] = entry.name
    n_actions = count(actions.sizes)
    if len(by_index) != n_actions or len({*by_index.values()}) != len(by_index):
        refuse(
            note.line,
            f"{len(by_index)} labels are noted for {n_actions} joint actions; must be one each",
        )
    commands = [command for module in program.modules for command in module.commands]
    for label in labels:
        if label not in by_index.values():
            line = next(command.line for command in commands if command.label == label)
            refuse(line, f"[{label}] is none of the labels that are noted in line {note.line}")
    return replace(actions, labels=[by_index[index] for index in sorted(by_index)])


def _values(given: Any, note: Note) -> list[Value]:
    """Return the values of an action variable in a note, or refuse them."""
    if not isinstance(given, list) or not given or not all(map(is_value, given)):
        refuse(note.line, f"the comment holds {shown(given)}; must be a list of texts or numbers")
    return list(given)


class FactorNote:
    """A note on a variable, a constraint or a reward."""

    def __init__(self, note: Note, known: Mapping[str, int]) -> None:
        """`known`: the number of every variable and action variable, in order."""
        self.line = note.line
        self.content = note.content
        self.is_cap = "at_most" in note.content or "budget" in note.content
        self.is_constraint = note.word == "constraint"
        self._known = known
        listed = note.content.get("of" if self.is_cap else "scope", [])
        if not isinstance(listed, list) or not all(
            isinstance(name, str) and name in known for name in listed
        ):
            refuse(note.line, f"the scope in the comment is {shown(listed)}; must be variables")
        self.scope = sorted(known[name] for name in listed)

    @property
    def name(self) -> str | None:
        """The original name, if noted."""
        name = self.content.get("name")
        if name is not None and not isinstance(name, str):
            refuse(self.line, f"the name in the comment is {shown(name)}; must be a text")
        return name

    def refuse_more(self, axes: Sequence[int]) -> None:
        """Refuse a table that depends on variables outside the scope."""
        for v in axes:
            if v not in self.scope:
                names = list(self._known)
                refuse(
                    self.line,
                    f"the comment says that this depends on "
                    f"{', '.join(names[u] for u in self.scope) or 'nothing'}, but it "
                    f"depends on {names[v]}",
                )


def cap_of(note: FactorNote, n: int, m: int) -> LinearCap:
    """Return the cap in a note of a file with n variables, for a model with m."""
    idle = note.content.get("idle", [])
    actions = tuple(v - n + m for v in note.scope)
    try:
        if "budget" in note.content:
            costs = note.content.get("costs", ())
            return Budget(actions, note.content["budget"], costs, note.name or "")
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
    objective: Objective,
    quantities: Mapping[str, tuple[tuple[int, ...], FloatArray]],
    constraints: Sequence[Constraint],
    initial_state: Sequence[int],
    name: str,
) -> FactoredMDP:
    """Return the model of the tables, completed from the notes."""
    of_model = next((note for note in program.notes if note.word == "model"), None)
    about = {} if of_model is None else of_model.content
    reward_notes = [note for note, _, _ in rewards]
    means, ranges = _paid(rewards, objective)
    try:
        model = FactoredMDP.from_factors(
            [len(values) for values in state_values],
            actions.sizes,
            transitions,
            [(scope, table) for (_, scope, _), table in zip(rewards, means, strict=True)],
            reward_ranges=ranges,
            state_names=[
                (note.name if note is not None else None) or plain
                for plain, note in zip(state_names, notes, strict=True)
            ],
            action_names=actions.names,
            reward_names=_reward_names(reward_notes, objective, quantities),
            state_values=[
                values if note is None else note.content.get("values", values)
                for note, values in zip(notes, state_values, strict=True)
            ],
            action_values=actions.values,
            groups=about.get("groups", ()),
            noise=[Noise() if note is None else _noise(note) for note in reward_notes],
            initial_state=list(initial_state),
            name=about.get("name", name),
            alike=_alike(notes, reward_notes),
            constraints=constraints,
            quantities=dict(quantities),
        )
        return with_effects(model, about["effects"]) if "effects" in about else model
    except FmdpError:
        raise
    except (TypeError, KeyError, AttributeError, OverflowError, ValueError) as error:
        line = 1 if of_model is None else of_model.line
        refuse(line, f"comments of fmdp's do not fit the model ({type(error).__name__}: {error})")


def _paid(
    rewards: Sequence[tuple[FactorNote | None, tuple[int, ...], FloatArray]], objective: Objective
) -> tuple[list[FloatArray], list[Any]]:
    """Return the tables of the reward factors, and their ranges."""
    means = [rows[..., 0] for _, _, rows in rewards]
    if objective.minimised is not None:
        means = [negated(table, objective.minimised) for table in means]
        return means, [range_of(table) for table in means]
    return means, [
        range_of(table) if note is None else note.content.get("range", range_of(table))
        for (note, _, _), table in zip(rewards, means, strict=True)
    ]


def _reward_names(
    notes: Sequence[FactorNote | None], objective: Objective, taken: Collection[str]
) -> list[str]:
    """Return the names of reward factors; none of several parts has the name of the whole."""
    names: list[str] = []
    for place, note in enumerate(notes, start=1):
        if note is not None and note.name:
            names.append(note.name if objective.minimised is None else negative_name(note.name))
        else:
            name = objective.name if len(notes) == 1 else f"{objective.name}_{place}"
            names.append(free_name(name, {*taken}))
    return names


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
    if all(classes is None for classes in lists):
        return None
    for note, classes in zip(every, lists, strict=True):
        if not isinstance(classes, list) or not all(type(other) is int for other in classes):
            line = (
                next(other.line for other in every if other is not None)
                if note is None
                else note.line
            )
            refuse(line, "which rows are alike must be noted for all tables, by whole numbers")
    made = [np.array(classes, dtype=np.int64) for classes in lists]
    return Alike(tuple(made[: len(transitions)]), tuple(made[len(transitions) :]))
