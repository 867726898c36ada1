"""Conversion of a PRISM program to a model of its reachable states, from the initial state on.

Case studies of the model-checking field are written over reachable states: modules move one at a
time, guards leave states that cannot be reached without a command, and updates leave the ranges of
variables there. Here every combination of commands that PRISM would offer is a choice of a state:

    mdp     a choice is an action, named after its label, or the module that moves alone
    dtmc    one of the choices is drawn, each with the same probability
    ctmc    choices are a race of exponential clocks; the chain is uniformised:
            P(s' | s) = rate(s, s') / L for s' != s, with L the largest rate at which a state is
            left. Rewards are per unit of time, those of a step times its rate.

A state without a choice stays as it is, as Storm and PRISM do with deadlocks. States are found in
layers, and expressions are evaluated for a whole layer at once.

Cost: per layer one evaluation of every guard; memory for the matrix of transitions, and for the
dense table of the model (`fmdp.interop.explicit`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import describe_count
from fmdp.errors import TooLarge, did_you_mean
from fmdp.interop.explicit import (
    MOST_STATES,
    STAY,
    STEP,
    Explicit,
    Indices,
    numbered,
    uniformised,
)
from fmdp.interop.prism.expressions import Expression, Values, evaluate, guard_holds, names_in
from fmdp.interop.prism.notes import ACTION
from fmdp.interop.prism.objectives import Objective
from fmdp.interop.prism.program import Command, Item, Program, Rewards, Update, Variable
from fmdp.interop.prism.tokens import refuse
from fmdp.model.factored import FactoredMDP
from fmdp.model.naming import Value
from fmdp.model.spaces import FloatArray, count

ROW_TOLERANCE = 1e-9
"""Largest deviation of a sum of probabilities from 1."""
MOST_ENTRIES = 1 << 23
"""Most transitions of a file."""
MOST_CHOICES = 1 << 14
"""Most combinations of commands for one label in the states that are expanded together."""
_LAYER = 1 << 22
"""Most numbers in the successors of the states that are expanded together."""
_NO_COMMAND = "-"
"""Label of the self-loop of a deadlock, which no command can have."""


def explored_model(
    program: Program, objective: Objective, name: str, max_states: int | None, reason: str
) -> FactoredMDP:
    """Return the model of the reachable states of a program.

    `reason` says why the file is not read as a product of its variables.
    """
    space = _Exploration(program, MOST_STATES if max_states is None else max_states).run()
    explicit, remarks = _Assembly(program, objective, space).explicit()
    variables = program.variables
    sizes = [variable.high - variable.low + 1 for variable in variables]
    sizes_text = f"{len(space.states):,} reachable states of {describe_count(count(sizes))}"
    joined = "one variable" if len(variables) == 1 else f"one variable, {explicit.variable}"
    model = explicit.model(name, max_states)
    return model.with_remarks(
        f"{sizes_text} assignments, as the values of {joined} ({reason})",
        *remarks,
        *objective.remarks,
    )


@dataclass
class _Space:
    """The reachable states, their choices, and where these lead."""

    states: NDArray[np.int64]
    """[states, variables], sorted."""
    initial: int
    owners: Indices
    """[choices]: the state of each, sorted."""
    names: list[str]
    labels: list[str]
    """One per choice; empty if its commands have none."""
    rows: Indices
    successors: Indices
    chances: FloatArray
    """[entries]: probabilities, or rates."""


@dataclass
class _Lists:
    """The parts of a space in the order of exploration: one array per group of choices."""

    owners: list[Indices] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    rows: list[Indices] = field(default_factory=list)
    successors: list[Indices] = field(default_factory=list)
    chances: list[FloatArray] = field(default_factory=list)


class _Exploration:
    def __init__(self, program: Program, most: int) -> None:
        self.program = program
        self.most = most
        self.entries = 0
        self.variables = program.variables
        self.numbers = {variable.name: i for i, variable in enumerate(self.variables)}
        self.groups = _groups(program)
        self.homes = {
            variable.name: module.name
            for module in program.modules
            for variable in module.variables
        }
        self._check()

    def _check(self) -> None:
        """Refuse unknown names and foreign variables, in commands that are never possible too."""
        for module in self.program.modules:
            for command in module.commands:
                self._check_names(command.guard)
                for update in command.updates:
                    self._check_names(update.probability, *(value for _, value in update.sets))
                    for name, _ in update.sets:
                        self._check_home(name, module.name, update.line)

    def _check_names(self, *expressions: Expression) -> None:
        names_in(expressions, {**self.numbers, **self.program.constants})

    def _check_home(self, name: str, module: str, line: int) -> None:
        home = self.homes.get(name)
        if home is None:
            hint = did_you_mean(name, self.numbers)
            refuse(line, f"{name}' is set, but {name} is no variable{hint}")
        if home != module and not home.startswith("global "):
            refuse(line, f"module {module} sets {name}', which is that of {home}")

    # ---- layers ----------------------------------------------------------------------------------

    def run(self) -> _Space:
        """Explore from the initial state, layer by layer."""
        rows = [np.array([variable.first for variable in self.variables], dtype=np.int64)]
        index = {rows[0].tobytes(): 0}
        lists, first = _Lists(), 0
        # So many states at a time that the successors of a layer fit into memory.
        commands = sum(len(module.commands) for module in self.program.modules)
        size = max(1, _LAYER // (commands * len(self.variables)))
        while first < len(rows):
            layer = np.array(rows[first : first + size])
            distinct, places = _distinct(self._expanded(layer, first, lists))
            known = np.empty(len(distinct), dtype=np.int64)
            for place, row in enumerate(distinct):
                known[place] = index.setdefault(row.tobytes(), len(index))
                if known[place] == len(rows):
                    rows.append(row)
            if len(rows) > self.most:
                self._refuse_size("states", self.most, "; max-states=N allows more")
            lists.successors.append(known[places])
            first += len(layer)
        return _sorted(np.array(rows), lists)

    def _refuse_size(self, what: str, most: int, hint: str = "") -> NoReturn:
        raise TooLarge(f"more than {most:,} {what} can be reached{hint}", 8 * most + 8, 8 * most)

    def _expanded(self, layer: NDArray[np.int64], first: int, lists: _Lists) -> NDArray[np.int64]:
        """Add the choices of a layer to `lists`; return the successors of the new entries."""
        values = values_of(self.variables, layer) | self.program.constants
        every = np.arange(len(layer))
        made = [np.empty((0, len(self.variables)), dtype=np.int64)]
        holds: dict[int, NDArray[np.bool_]] = {}
        for name, label, parts in self.groups:
            combined: list[tuple[tuple[Command, ...], Indices]] = [((), every)]
            for commands in parts:
                for command in commands:
                    if id(command) not in holds:
                        holds[id(command)] = guard_holds(command.guard, values, len(layer))
                combined = [
                    ((*chosen, command), rest)
                    for chosen, at in combined
                    for command in commands
                    if len(rest := at[holds[id(command)][at]])
                ]
                if len(combined) > MOST_CHOICES:
                    self._refuse_size(f"choices of [{label}]", MOST_CHOICES)
            for chosen, at in combined:
                base = len(lists.names)
                owner, chance, successors = self._outcomes(chosen, at, layer, values)
                lists.owners.append(first + at)
                lists.names += [name] * len(at)
                lists.labels += [label] * len(at)
                lists.rows.append(base + owner)
                lists.chances.append(chance)
                self.entries += len(chance)
                made.append(successors)
        return np.concatenate(made)

    def _outcomes(
        self,
        commands: Sequence[Command],
        at: Indices,
        layer: NDArray[np.int64],
        values: Mapping[str, Values],
    ) -> tuple[Indices, FloatArray, NDArray[np.int64]]:
        """Return the place in `at`, the chance and the successor of all outcomes of commands."""
        places, chances, rows = np.arange(len(at)), np.ones(len(at)), layer[at]
        written: set[str] = set()
        for command in commands:
            self._refuse_twice(command, written)
            parts = []
            total = np.zeros(len(at))
            for update in command.updates:
                chance = self._chance(update, at, layer, values)
                total = total + chance
                kept = np.flatnonzero(chance[places] > 0)
                origins = places[kept]
                moved = self._moved(update, rows[kept], at[origins], layer, values)
                parts.append((origins, chances[kept] * chance[origins], moved))
                self._check_entries(sum(len(part[0]) for part in parts))
            if self.program.kind != "ctmc":
                self._refuse_sum(command, total, at, layer)
            places, chances, rows = (
                np.concatenate([part[0] for part in parts]),
                np.concatenate([part[1] for part in parts]),
                np.concatenate([part[2] for part in parts]),
            )
        return places, chances, rows

    def _check_entries(self, n: int) -> None:
        """Refuse so many successors of one choice, or transitions in all."""
        most = min(MOST_ENTRIES - self.entries, 4 * _LAYER // len(self.variables))
        if n > most:
            self._refuse_size("transitions", self.entries + most)

    def _refuse_twice(self, command: Command, written: set[str]) -> None:
        names = {name for update in command.updates for name, _ in update.sets}
        for name in sorted(names & written):
            refuse(command.line, f"two modules set {name}' in one step of [{command.label}]")
        written |= names

    def _refuse_sum(
        self, command: Command, total: FloatArray, at: Indices, layer: NDArray[np.int64]
    ) -> None:
        for i in np.flatnonzero(np.abs(total - 1.0) > ROW_TOLERANCE):
            where = self._place(layer[at[i]])
            refuse(command.line, f"probabilities sum to {total[i]} {where}; must be 1")

    def _chance(
        self,
        update: Update,
        at: Indices,
        layer: NDArray[np.int64],
        values: Mapping[str, Values],
    ) -> FloatArray:
        chance = _evaluated(update.probability, values, at)
        is_rate = self.program.kind == "ctmc"
        what = "a rate" if is_rate else "a probability"
        if chance.dtype.kind == "b":
            refuse(update.line, f"{what} must be a number; got a truth")
        chance = np.broadcast_to(chance.astype(np.float64), len(at))
        wrong = chance < 0 if is_rate else (chance < 0) | (chance > 1 + ROW_TOLERANCE)
        for i in np.flatnonzero(wrong):
            allowed = "at least 0" if is_rate else "in 0..1"
            refuse(
                update.line,
                f"{what} is {chance[i]} {self._place(layer[at[i]])}; must be {allowed}",
            )
        return chance

    def _moved(
        self,
        update: Update,
        rows: NDArray[np.int64],
        at: Indices,
        layer: NDArray[np.int64],
        values: Mapping[str, Values],
    ) -> NDArray[np.int64]:
        """Return rows with the variables that an update sets, from the states `at` of the layer."""
        moved = rows.copy()
        for name, expression in update.sets:
            variable = self.variables[self.numbers[name]]
            value = _evaluated(expression, values, at)
            if (value.dtype.kind == "b") != variable.is_truth or value.dtype.kind == "f":
                wanted = "true or false" if variable.is_truth else "a whole number"
                refuse(update.line, f"{name}' must be {wanted}")
            value = np.broadcast_to(value, (len(at),)).astype(np.int64)
            for i in np.flatnonzero((value < variable.low) | (value > variable.high)):
                refuse(
                    update.line,
                    f"{name}' is {value[i]} {self._place(layer[at[i]])}; must be in "
                    f"{variable.low}..{variable.high}",
                )
            moved[:, self.numbers[name]] = value
        return moved

    def _place(self, row: NDArray[np.int64]) -> str:
        return f"where {described(self.variables, row)}"


def described(variables: Sequence[Variable], row: NDArray[np.int64]) -> str:
    """Return a state for a message, e.g. "x=1, y=true"."""
    return ", ".join(
        f"{variable.name}={_named(variable, int(value))}"
        for variable, value in zip(variables, row, strict=True)
    )


def _named(variable: Variable, value: int) -> str:
    return ("true" if value else "false") if variable.is_truth else str(value)


def _groups(program: Program) -> list[tuple[str, str, list[list[Command]]]]:
    """Return the name and label of the choices, and the commands of each module that move together.

    A command without a label moves its module alone.
    """
    moving = [module for module in program.modules if module.commands]
    if not moving:
        refuse(program.modules[0].line, "there is no command; modules must move")
    by_label: dict[str, list[list[Command]]] = {}
    groups: list[tuple[str, str, list[list[Command]]]] = []
    for module in moving:
        labels: dict[str, list[Command]] = {}
        for command in module.commands:
            labels.setdefault(command.label, []).append(command)
        for label, commands in labels.items():
            if not label:
                groups.append((STEP if len(moving) == 1 else module.name, "", [commands]))
            elif label not in by_label:
                by_label[label] = [commands]
                groups.append((label, label, by_label[label]))
            else:
                by_label[label].append(commands)
    return groups


def _distinct(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], Indices]:
    """Return the distinct rows, and the number of each row among them."""
    distinct, places = np.unique(rows, axis=0, return_inverse=True)
    return distinct, places.reshape(-1)


def _sorted(states: NDArray[np.int64], lists: _Lists) -> _Space:
    """Return the space with sorted states, and choices in the order of their states."""
    order = np.lexsort(states.T[::-1])
    new = np.empty(len(states), dtype=np.int64)
    new[order] = np.arange(len(states))
    nothing = np.empty(0, dtype=np.int64)
    owners = new[np.concatenate([nothing, *lists.owners])]
    choices = np.argsort(owners, kind="stable")
    moved = np.empty(len(choices), dtype=np.int64)
    moved[choices] = np.arange(len(choices))
    return _Space(
        states[order],
        int(new[0]),
        owners[choices],
        [lists.names[choice] for choice in choices.tolist()],
        [lists.labels[choice] for choice in choices.tolist()],
        moved[np.concatenate([nothing, *lists.rows])],
        new[np.concatenate([nothing, *lists.successors])],
        np.concatenate([np.empty(0), *lists.chances]),
    )


# ---- evaluation ----------------------------------------------------------------------------------


def values_of(variables: Sequence[Variable], states: NDArray[np.int64]) -> dict[str, Values]:
    """Return the value of every variable in every state."""
    return {
        variable.name: states[:, i].astype(np.bool_) if variable.is_truth else states[:, i]
        for i, variable in enumerate(variables)
    }


def _evaluated(expression: Expression, values: Mapping[str, Values], at: Indices) -> Values:
    """Return the value of an expression in some states."""
    if expression.operator == "value":
        return np.asarray(expression.detail)
    names = {leaf.detail for leaf in expression.leaves()}
    chosen = {name: values[name][at] if values[name].ndim else values[name] for name in names}
    return evaluate(expression, chosen)


# ---- the model -----------------------------------------------------------------------------------


class _Assembly:
    """The explicit model of a space."""

    def __init__(self, program: Program, objective: Objective, space: _Space) -> None:
        self.program = program
        self.objective = objective
        self.space = space
        self.values = values_of(program.variables, space.states) | program.constants
        self.remarks: list[str] = []
        labels = [command.label for module in program.modules for command in module.commands]
        self.commanded = set(labels)

    def explicit(self) -> tuple[Explicit, list[str]]:
        """Return the model, and what users must know about it."""
        self._add_deadlocks()
        kind, space = self.program.kind, self.space
        names, chosen = numbered(space.names, space.owners)
        owners, rows, successors, chances = (
            space.owners,
            space.rows,
            space.successors,
            space.chances,
        )
        if kind != "mdp":
            names, chosen = [STEP], np.zeros(len(space.states), dtype=np.int64)
            owners, rows = np.arange(len(space.states)), space.owners[space.rows]
            chances = self._drawn(chances) if kind == "dtmc" else chances
        if kind == "ctmc":
            rows, successors, chances, rate = uniformised(owners, rows, successors, chances)
            self.remarks.append(
                f"a ctmc, uniformised at rate {rate:.12g}; rewards and gain are per unit of time"
            )
        variables = self.program.variables
        action = ACTION
        name = "/".join(variable.name for variable in variables)
        while action == name:
            action += "_"
        sign = 1.0 if self.objective.minimised is None else -1.0
        main = self.objective.structure
        model = Explicit(
            name,
            self._state_values(),
            space.initial,
            names,
            owners,
            chosen,
            rows,
            successors,
            chances,
            {} if main is None else {self.objective.name: sign * self._means(main) + 0.0},
            {key: self._means(structure) for key, structure in self.objective.measured},
            action,
        )
        return model, self.remarks

    def _state_values(self) -> list[Value]:
        variables = self.program.variables
        if len(variables) == 1 and not variables[0].is_truth:
            return list(self.space.states[:, 0].tolist())
        return ["/".join(map(_named, variables, row)) for row in self.space.states.tolist()]

    def _add_deadlocks(self) -> None:
        """Give every state without a choice one that stays, with the rewards of the state."""
        space = self.space
        stuck = np.setdiff1d(np.arange(len(space.states)), space.owners)
        if not len(stuck):
            return
        example = described(self.program.variables, space.states[stuck[0]])
        stay = (
            f"a deadlock gets a self-loop: {example}"
            if len(stuck) == 1
            else f"{len(stuck):,} deadlocks get a self-loop, e.g. {example}"
        )
        self.remarks.append(stay)
        base = len(space.owners)
        space.owners = np.concatenate([space.owners, stuck])
        space.names += [STAY] * len(stuck)
        space.labels += [_NO_COMMAND] * len(stuck)
        # The states of a ctmc stay because nothing leaves them.
        if self.program.kind != "ctmc":
            space.rows = np.concatenate([space.rows, base + np.arange(len(stuck))])
            space.successors = np.concatenate([space.successors, stuck])
            space.chances = np.concatenate([space.chances, np.ones(len(stuck))])

    def _drawn(self, chances: FloatArray) -> FloatArray:
        """Return the probabilities of a dtmc: all choices of a state are equally likely."""
        weights = self._weights()
        shared = weights < 1.0
        if shared.any():
            states = len(np.unique(self.space.owners[shared]))
            self.remarks.append(
                f"in {states:,} states of the dtmc several commands hold: each is equally likely"
            )
        return chances * weights[self.space.rows]

    def _weights(self) -> FloatArray:
        """Return for each choice one over the number of choices of its state."""
        owners = self.space.owners
        weights: FloatArray = 1.0 / np.bincount(owners, minlength=1)[owners]
        return weights

    def _rates(self) -> FloatArray:
        """Return the rate of each choice of a ctmc."""
        rates = np.zeros(len(self.space.owners))
        np.add.at(rates, self.space.rows, self.space.chances)
        return rates

    # ---- rewards ---------------------------------------------------------------------------------

    def _means(self, structure: Rewards) -> FloatArray:
        """Return the reward of each choice: of an mdp's choices, else of the states."""
        space, n = self.space, len(self.space.states)
        states, steps = np.zeros(n), np.zeros(len(space.owners))
        labels = np.array(space.labels)
        for item in structure.items:
            means = self._item(item, n)
            if item.label is None:
                states += means
            else:
                self._check_label(item)
                at = np.flatnonzero(labels == item.label)
                steps[at] += means[space.owners[at]]
        if self.program.kind == "mdp":
            return states[space.owners] + steps
        weights = self._weights() if self.program.kind == "dtmc" else self._rates()
        return states + np.bincount(space.owners, weights * steps, n)

    def _item(self, item: Item, n: int) -> FloatArray:
        """Return what a line of a reward structure adds in each state."""
        names_in(item.expressions, self.values)
        at = np.flatnonzero(guard_holds(item.guard, self.values, n))
        value = _evaluated(item.value, self.values, at)
        if value.dtype.kind == "b":
            refuse(item.line, "a reward must be a number; got a truth")
        means = np.zeros(n)
        means[at] = value
        return means

    def _check_label(self, item: Item) -> None:
        if item.label not in self.commanded:
            hint = did_you_mean(str(item.label), self.commanded)
            refuse(item.line, f"a reward of [{item.label}], which no command has{hint}")
