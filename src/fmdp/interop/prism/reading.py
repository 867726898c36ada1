"""Conversion of a PRISM program to a factored MDP.

Modules synchronise on the chosen label, so that

    P(s' | s, label) = prod over modules P_M(s'_M | s, label)

and a module without that label keeps its values. The labels are the actions. Tables are made by
evaluating guards and probabilities at every assignment of the variables that they read; variables
that turn out to be irrelevant are removed from the scope. Each variable of a module becomes a
state variable if their next values are independent; otherwise all of them together become one.
If no command of a module holds for a label that it has, the label is not allowed: a constraint.

Refused, with the line: overlapping commands (a choice without a name), commands without a label if
several modules have commands (they would not synchronise), probabilities that do not sum to 1.
Such files are read state by state instead (exploring.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import describe_count
from fmdp.errors import did_you_mean
from fmdp.interop.prism.cubes import Cube, check_cells
from fmdp.interop.prism.expressions import Expression, Values, evaluate, guard_holds, names_in
from fmdp.interop.prism.notes import Actions, FactorNote, actions_of, cap_of, finished
from fmdp.interop.prism.objectives import Objective
from fmdp.interop.prism.program import Command, Item, Module, Program, Update
from fmdp.interop.prism.tokens import refuse
from fmdp.model.constraints import Constraint, Forbidden
from fmdp.model.factored import FactoredMDP
from fmdp.model.naming import Value
from fmdp.model.spaces import all_assignments, count, decode

_Indices: TypeAlias = NDArray[np.int64]

ROW_TOLERANCE = 1e-9
"""Largest deviation of a sum of probabilities from 1."""
_PRODUCT_TOLERANCE = 1e-12
"""Next values are independent if products of their laws differ by at most this."""

MOST_MEASURED = 1 << 20
"""Most numbers in the table of a reward structure that is not chosen, or of a label."""


def factored_model(program: Program, objective: Objective, name: str) -> FactoredMDP:
    """Return the model of a program whose modules synchronise."""
    return _Reading(program, objective).model(name)


@dataclass(frozen=True)
class _Moves:
    """The joint law of the variables of a module."""

    module: Module
    joint: Cube
    """Over variables and then action variables; a row is over the joint values of the module."""
    knows: NDArray[np.bool_]
    """[joint actions]: whether the module has commands for the label."""


@dataclass(frozen=True)
class _Law:
    """The law of one state variable of the model."""

    block: tuple[int, ...]
    """The variables of the file that it stands for."""
    cube: Cube
    note: FactorNote | None


class _Reading:
    def __init__(self, program: Program, objective: Objective) -> None:
        self.program = program
        self.objective = objective
        self.variables = program.variables
        self.numbers = {variable.name: i for i, variable in enumerate(self.variables)}
        self.sizes = [variable.high - variable.low + 1 for variable in self.variables]
        self.modules = _labelled(program)
        labels = dict.fromkeys(
            command.label for module in self.modules for command in module.commands
        )
        if not labels:
            refuse(program.modules[0].line, "there is no command; modules must move")
        self.actions: Actions = actions_of(program, list(labels), [v.name for v in self.variables])
        self.places = {label: place for place, label in enumerate(self.actions.labels)}
        self.n = len(self.variables)
        self.known = self.numbers | {name: self.n + j for j, name in enumerate(self.actions.names)}
        self.every = [*self.sizes, *self.actions.sizes]
        """Sizes of variables and action variables."""

    # ---- evaluation ------------------------------------------------------------------------------

    def _values(self, axes: Sequence[int]) -> dict[str, Values]:
        """Return the value of every name at every assignment of some variables."""
        by_name: dict[str, Values] = dict(self.program.constants)
        assignments = all_assignments([self.sizes[v] for v in axes])
        for column, v in enumerate(axes):
            variable = self.variables[v]
            values = assignments[:, column] + variable.low
            by_name[variable.name] = values.astype(np.bool_) if variable.is_truth else values
        return by_name

    def _read_by(self, *expressions: Expression) -> set[int]:
        """Return the variables that expressions read, or refuse an unknown name."""
        names = names_in(expressions, {**self.numbers, **self.program.constants})
        return {self.numbers[name] for name in names if name in self.numbers}

    def _place(self, axes: Sequence[int], row: int) -> str:
        """Return an assignment for an error message, e.g. "where x=1, y=true"."""
        chosen = decode(row, [self.sizes[v] for v in axes])
        parts = []
        for v, place in zip(axes, chosen, strict=True):
            variable = self.variables[v]
            value: Any = bool(place) if variable.is_truth else place + variable.low
            parts.append(f"{variable.name}={str(value).lower()}")
        return f"where {', '.join(parts)}" if parts else "everywhere"

    # ---- transitions -----------------------------------------------------------------------------

    def _moves(self, module: Module, more: Sequence[int]) -> _Moves:
        """Return the joint law of a module over the variables that it reads and those in `more`."""
        owned = [self.numbers[variable.name] for variable in module.variables]
        by_label: dict[str, list[Command]] = {}
        for command in module.commands:
            by_label.setdefault(command.label, []).append(command)
        axes = {*more}
        for command in module.commands:
            axes |= self._read_by(command.guard)
            for update in command.updates:
                axes |= self._read_by(update.probability, *(value for _, value in update.sets))
                assigned = {name for name, _ in update.sets}
                for name in assigned:
                    self._refuse_foreign(name, module, update.line)
                axes |= {v for v in owned if self.variables[v].name not in assigned}
        labels = self.actions.labels
        if any(label not in by_label for label in labels):
            axes |= set(owned)  # for that label it keeps its values
        scope = sorted(axes)
        n, width = count([self.sizes[v] for v in scope]), count([self.sizes[v] for v in owned])
        check_cells(
            n * len(labels) * width, f"the table of module {module.name} (line {module.line})"
        )
        values = self._values(scope)
        rows = np.zeros((n, len(labels), width))
        known = np.zeros((n, len(labels)), dtype=np.bool_)
        for place, label in enumerate(labels):
            if label in by_label:
                self._fill(by_label[label], owned, scope, values, rows[:, place], known[:, place])
            else:
                stay = self._steps(owned, values, n)
                rows[np.arange(n), place, stay] = 1.0
                known[:, place] = True
        shape = [self.sizes[v] for v in scope]
        acting = range(self.n, self.n + len(self.actions.sizes))
        joint = Cube(
            (*scope, *acting),
            rows.reshape(*shape, *self.actions.sizes, width),
            known.reshape(*shape, *self.actions.sizes),
        )
        return _Moves(module, joint, np.array([label in by_label for label in labels]))

    def _refuse_foreign(self, name: str, module: Module, line: int) -> None:
        if name not in self.numbers:
            known = did_you_mean(name, [variable.name for variable in module.variables])
            refuse(line, f"{name}' is set, but {name} is no variable{known}")
        if all(variable.name != name for variable in module.variables):
            home = next(
                other.name for other in self.modules if any(v.name == name for v in other.variables)
            )
            refuse(line, f"module {module.name} sets {name}', which is that of {home}")

    def _steps(
        self, owned: Sequence[int], values: Mapping[str, Values], n: int
    ) -> NDArray[np.int64]:
        """Return the index of the present joint value of a module: [n]."""
        index = np.zeros(n, dtype=np.int64)
        for v in owned:
            variable = self.variables[v]
            index = index * self.sizes[v] + (values[variable.name].astype(np.int64) - variable.low)
        return index

    def _fill(
        self,
        commands: Sequence[Command],
        owned: Sequence[int],
        scope: Sequence[int],
        values: Mapping[str, Values],
        rows: NDArray[np.float64],
        known: NDArray[np.bool_],
    ) -> None:
        """Write the law of one label into rows [n, joint values] and known [n]."""
        owner = np.full(len(known), -1, dtype=np.int64)
        for number, command in enumerate(commands):
            at = np.flatnonzero(guard_holds(command.guard, values, len(known)))
            if known[at].any():
                row = int(at[known[at]][0])
                refuse(
                    command.line,
                    f"two commands for [{command.label}] hold {self._place(scope, row)} (the other "
                    f"in line {commands[owner[row]].line}): a choice without a name; must have two "
                    f"labels",
                )
            owner[at], known[at] = number, True
            inside = _selected(values, at)
            total = np.zeros(len(at))
            for update in command.updates:
                chance = self._chance(update, inside, scope, at)
                total = total + chance
                rows[at, self._next(update, owned, inside, chance, scope, at)] += chance
            for i in np.flatnonzero(np.abs(total - 1.0) > ROW_TOLERANCE):
                where = self._place(scope, int(at[i]))
                refuse(command.line, f"probabilities sum to {total[i]} {where}; must be 1")

    def _chance(
        self, update: Update, values: Mapping[str, Values], scope: Sequence[int], at: _Indices
    ) -> NDArray[np.float64]:
        """Return the probability of an update at the rows `at` of a table."""
        chance = evaluate(update.probability, values)
        if chance.dtype.kind == "b":
            refuse(update.line, "a probability must be a number; got a truth")
        chance = np.broadcast_to(chance.astype(np.float64), len(at))
        for i in np.flatnonzero((chance < 0) | (chance > 1 + ROW_TOLERANCE)):
            where = self._place(scope, int(at[i]))
            refuse(update.line, f"a probability is {chance[i]} {where}; must be in 0..1")
        return chance

    def _next(
        self,
        update: Update,
        owned: Sequence[int],
        values: Mapping[str, Values],
        chance: NDArray[np.float64],
        scope: Sequence[int],
        at: _Indices,
    ) -> _Indices:
        """Return the index of the next joint value of a module at the rows `at` of a table."""
        index = np.zeros(len(at), dtype=np.int64)
        sets = dict(update.sets)
        for v in owned:
            variable = self.variables[v]
            name, low, high = variable.name, variable.low, variable.high
            value = evaluate(sets[name], values) if name in sets else values[name]
            if (value.dtype.kind == "b") != variable.is_truth or value.dtype.kind == "f":
                wanted = "true or false" if variable.is_truth else "a whole number"
                refuse(update.line, f"{name}' must be {wanted}")
            value = np.broadcast_to(value, (len(at),)).astype(np.int64)
            for i in np.flatnonzero(((value < low) | (value > high)) & (chance > 0)):
                where = self._place(scope, int(at[i]))
                refuse(update.line, f"{name}' is {value[i]} {where}; must be in {low}..{high}")
            index = index * self.sizes[v] + np.clip(value - low, 0, self.sizes[v] - 1)
        return index

    # ---- rewards ---------------------------------------------------------------------------------

    def _reward_cubes(self) -> list[tuple[FactorNote | None, Cube]]:
        """Return the reward factors: as noted, else one per set of variables that terms read."""
        structure = self.objective.structure
        if structure is None:
            return []
        factors: dict[Any, list[Item]] = {}
        notes: dict[Any, FactorNote | None] = {}
        for note in structure.notes:
            factors[note.line] = []
            notes[note.line] = FactorNote(note, self.known)
        for item in structure.items:
            if item.note is not None:
                factors[item.note.line].append(item)
                continue
            for term in item.value.terms():
                key = (frozenset(self._read_by(item.guard, term)), item.label is None)
                factors.setdefault(key, []).append(replace(item, value=term))
                notes.setdefault(key, None)
        return [(notes[key], self._reward(items, notes[key])) for key, items in factors.items()]

    def _quantities(
        self, merged: _Blocks
    ) -> tuple[dict[str, tuple[tuple[int, ...], NDArray[Any]]], list[str]]:
        """Return the scopes and tables of the quantities, and a remark on each that is left out."""
        tables: dict[str, tuple[tuple[int, ...], NDArray[Any]]] = {}
        remarks = []
        for name, structure in self.objective.measured:
            note = FactorNote(structure.notes[0], self.known) if structure.is_quantity else None
            read = self._read_by(*(part for item in structure.items for part in item.expressions))
            size = count([self.sizes[v] for v in read]) * len(self.actions.labels)
            if note is None and size > MOST_MEASURED:
                remarks.append(
                    f"{name} (line {structure.line}) is left out: its table would have "
                    f"{describe_count(size)} numbers; at most {MOST_MEASURED:,} are measured"
                )
                continue
            scope, rows, _ = merged.widened(self._reward(structure.items, note))
            tables[name] = (scope, rows[..., 0])
        return tables, remarks

    def _reward(self, items: Sequence[Item], note: FactorNote | None) -> Cube:
        noted = set() if note is None else set(note.scope)
        axes = {v for v in noted if v < self.n}
        for item in items:
            axes |= self._read_by(*item.expressions)
        scope = sorted(axes)
        n, labels = count([self.sizes[v] for v in scope]), self.actions.labels
        check_cells(n * len(labels), "a reward")
        values = self._values(scope)
        means = np.zeros((n, len(labels)))
        for item in items:
            holds = np.flatnonzero(guard_holds(item.guard, values, n))
            made = evaluate(item.value, _selected(values, holds))
            if made.dtype.kind == "b":
                refuse(item.line, "a reward must be a number; got a truth")
            mean = np.broadcast_to(made.astype(np.float64), len(holds))
            if item.label is None:
                means[holds] += mean[:, None]
            else:
                means[holds, self._label_of(item)] += mean
        shape = [self.sizes[v] for v in scope] + list(self.actions.sizes)
        acting = range(self.n, self.n + len(self.actions.sizes))
        cube = Cube((*scope, *acting), means.reshape(*shape, 1), np.ones(shape, dtype=np.bool_))
        cube = cube.reduced(kept=noted)
        if note is not None:
            note.refuse_more(cube.axes)
        return cube

    def _label_of(self, item: Item) -> int:
        label = str(item.label)
        if self.program.kind == "dtmc":
            heard = {
                command.label for module in self.program.modules for command in module.commands
            }
            if len(heard) > 1:
                refuse(
                    item.line,
                    f"a reward of [{label}] in a dtmc of several labels; must be one of states",
                )
            if label in heard:
                return 0
        if label not in self.places:
            hint = did_you_mean(label, self.places)
            refuse(item.line, f"a reward of [{label}], which no command has{hint}")
        return self.places[label]

    # ---- model -----------------------------------------------------------------------------------

    def model(self, name: str) -> FactoredMDP:
        moves = self._noted_moves()
        forbidden = [self._forbidden(move, note) for move, note in moves]
        laws = [law for move, note in moves for law in self._laws(move, note)]
        blocks = [law.block for law in laws]
        merged = _Blocks(blocks, self.every, self.n)
        start = [variable.first - variable.low for variable in self.variables]
        initial = [merged.index(block, start) for block in blocks]
        rewards = [(note, *merged.widened(cube)) for note, cube in self._reward_cubes()]
        constraints = [
            self._constraint(cube, move, note, merged)
            for cube, (move, note) in zip(forbidden, moves, strict=True)
        ]
        quantities, remarks = self._quantities(merged)
        model = finished(
            self.program,
            self.actions,
            state_names=["/".join(self.variables[v].name for v in block) for block in blocks],
            state_values=[self._values_of(block) for block in blocks],
            notes=[law.note for law in laws],
            transitions=[
                _transition(merged, law, first) for law, first in zip(laws, initial, strict=True)
            ],
            rewards=[(note, scope, rows) for note, scope, rows, _ in rewards],
            objective=self.objective,
            quantities=quantities,
            constraints=[constraint for constraint in constraints if constraint is not None],
            initial_state=initial,
            name=name,
        )
        return model.with_remarks(*self.objective.remarks, *remarks)

    def _noted_moves(self) -> list[tuple[_Moves, FactorNote | None]]:
        """Return the moves of every module, with the note that fmdp has written about it."""
        noted = []
        for module in self.modules:
            note = None if module.note is None else FactorNote(module.note, self.known)
            scope = [] if note is None else [v for v in note.scope if v < self.n]
            noted.append((self._moves(module, scope), note))
        return noted

    def _laws(self, move: _Moves, note: FactorNote | None) -> list[_Law]:
        """Return the laws of the state variables that a module becomes."""
        owned = [self.numbers[variable.name] for variable in move.module.variables]
        if not owned:
            return []
        parts = self._apart(move.joint, owned)
        blocks = [tuple(owned)] if len(parts) < len(owned) else [(v,) for v in owned]
        laws = []
        for block, part in zip(blocks, parts, strict=True):
            cube = part.reduced(kept=set() if note is None else set(note.scope))
            if note is not None:
                note.refuse_more(cube.axes)
            laws.append(_Law(block, cube, note))
        return laws

    def _values_of(self, block: Sequence[int]) -> list[Value]:
        """Return the values of a variable of the model: integers, words, or several joined by /."""

        def values(v: int) -> list[Value]:
            variable = self.variables[v]
            return (
                ["false", "true"]
                if variable.is_truth
                else list(range(variable.low, variable.high + 1))
            )

        return reduce(
            lambda left, v: [f"{a}/{b}" for a in left for b in values(v)],
            block[1:],
            values(block[0]),
        )

    def _apart(self, joint: Cube, owned: Sequence[int]) -> list[Cube]:
        """Return the law of each variable of a module, or their joint law if they are dependent."""
        sizes = [self.sizes[v] for v in owned]
        if len(owned) == 1:
            return [joint]
        rows = joint.rows.reshape(-1, *sizes)
        parts = [
            rows.sum(axis=tuple(1 + other for other in range(len(owned)) if other != place))
            for place in range(len(owned))
        ]
        product = parts[0]
        for part in parts[1:]:
            product = (product[:, :, None] * part[:, None, :]).reshape(len(part), -1)
        apart = np.abs(product - rows.reshape(product.shape)).max(axis=1) <= _PRODUCT_TOLERANCE
        if not (apart | ~joint.known.reshape(-1)).all():
            return [joint]
        shape = joint.known.shape
        return [Cube(joint.axes, part.reshape(*shape, -1), joint.known) for part in parts]

    def _forbidden(self, move: _Moves, note: FactorNote | None) -> Cube:
        """Return where a module has commands for a label, but none of them holds."""
        shape = move.joint.known.shape
        states = len(shape) - len(self.actions.sizes)
        knows = move.knows.reshape((1,) * states + tuple(self.actions.sizes))
        forbidden = ~move.joint.known & knows
        cube = Cube(move.joint.axes, forbidden[..., None], np.ones(shape, dtype=np.bool_))
        if note is not None and note.is_constraint:
            made = cube.reduced(kept=note.scope)
            note.refuse_more(made.axes)
            return made
        # A constraint must have an action variable in its scope.
        return cube.reduced(kept={self.n + len(self.actions.sizes) - 1})

    def _constraint(
        self, cube: Cube, move: _Moves, note: FactorNote | None, merged: _Blocks
    ) -> Constraint | None:
        noted = note is not None and note.is_constraint
        if not noted and not cube.rows.any():
            return None
        scope, rows, _ = merged.widened(cube)
        constraint = Forbidden(
            scope,
            rows.reshape(-1).astype(np.bool_),
            str(note.name) if noted and note is not None else f"module {move.module.name}",
        )
        if noted and note is not None and note.is_cap:
            cap = cap_of(note, self.n, merged.m)
            sizes = [*merged.sizes, *self.actions.sizes]
            if cap.scope != scope or not np.array_equal(
                cap.forbidden_table(sizes), constraint.table
            ):
                refuse(note.line, f"the comment says {cap.label()}, and the guards something else")
            return cap
        return constraint


def _selected(values: Mapping[str, Values], at: _Indices) -> dict[str, Values]:
    """Return the values of all names at some rows of a table."""
    return {name: array[at] if array.ndim else array for name, array in values.items()}


def _labelled(program: Program) -> list[Module]:
    """Return the modules with the labels on which they synchronise; a dtmc has only one."""
    moving = [module for module in program.modules if module.commands]
    alone = len(moving) == 1
    first: dict[str, int] = {}
    for module in moving:
        for command in module.commands:
            if not command.label and not alone:
                refuse(
                    command.line,
                    f"module {module.name} has a command without a label, and would move alone "
                    f"while the others stand still; give it a label that all modules know",
                )
            first.setdefault(command.label, command.line)
    if program.kind == "mdp" or not first:
        return program.modules
    if not alone and len(first) > 1:
        refuse(
            list(first.values())[1],
            f"a dtmc of several modules has the labels {', '.join(first)}; must have one, or be "
            f"an mdp",
        )
    label = next(iter(first)) if len(first) == 1 else ""
    return [
        replace(
            module, commands=tuple(replace(command, label=label) for command in module.commands)
        )
        for module in program.modules
    ]


class _Blocks:
    """Blocks of variables of the file that are one variable of the model each."""

    def __init__(self, blocks: Sequence[tuple[int, ...]], every: Sequence[int], n: int) -> None:
        self.blocks = list(blocks)
        self.every = every
        self.n = n
        self.m = len(blocks)
        self.number = {v: number for number, block in enumerate(blocks) for v in block}
        self.sizes = [count([every[v] for v in block]) for block in blocks]

    def index(self, block: Sequence[int], values: Sequence[int]) -> int:
        """Return the value of a block in an assignment of all variables."""
        index = 0
        for v in block:
            index = index * self.every[v] + values[v]
        return index

    def widened(self, cube: Cube) -> tuple[tuple[int, ...], NDArray[Any], NDArray[np.bool_]]:
        """Return a table over variables of the model: scope, rows [..., length], known [...]."""
        numbers = dict.fromkeys(self.number[v] for v in cube.axes if v < self.n)
        acting = [v for v in cube.axes if v >= self.n]
        axes = [v for number in numbers for v in self.blocks[number]] + acting
        whole = cube.with_axes(axes, [self.every[v] for v in axes])
        shape = [self.sizes[number] for number in numbers] + [self.every[v] for v in acting]
        scope = (*numbers, *(v - self.n + self.m for v in acting))
        length = cube.rows.shape[-1]
        return scope, whole.rows.reshape(*shape, length).copy(), whole.known.reshape(shape).copy()


def _transition(merged: _Blocks, law: _Law, first: int) -> tuple[tuple[int, ...], NDArray[Any]]:
    """Return the scope and the rows of a law; rows of actions that are never allowed lead to the
    first value, since they may be anything."""
    scope, rows, known = merged.widened(law.cube)
    rows[~known] = 0.0
    rows[~known, first] = 1.0
    return scope, rows
