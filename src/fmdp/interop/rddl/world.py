"""Laws of an instance over variables, and their tables.

Deterministic intermediate fluents are substituted where they are read. Random ones are `hidden`
variables. Those that decide several variables of the next state are derived variables of the model,
and stay in the scopes of its tables. All others are summed out of a table again, weighted by their
own law, which is exact because only one factor depends on them. Rewards may read anything: only
their expectation is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fmdp.errors import InvalidModel, TooLarge
from fmdp.interop.rddl.expressions import Constant, Expression, atoms_of, is_random, replaced
from fmdp.interop.rddl.instance import Instance
from fmdp.interop.rddl.laws import SLACK, Evaluation
from fmdp.interop.rddl.variables import Array, Frame, Variable, primed, unprimed

MOST_ENTRIES = 1 << 24
"""Most numbers in one table; 128 MiB."""


@dataclass(frozen=True)
class Explored:
    """The joint states that can be reached, and the values of the hidden fluents in their steps."""

    names: tuple[str, ...]
    states: Array
    """[states, names], values coded as in a frame."""
    drawn: Mapping[str, frozenset[float]]

    def values(self, name: str) -> frozenset[float]:
        """Return the coded values that a fluent takes."""
        if name in self.drawn:
            return self.drawn[name]
        return frozenset(np.unique(self.states[:, self.names.index(name)]).tolist())

    def places(self, group: Variable) -> list[int]:
        """Return the values that a group of boolean fluents takes."""
        columns = self.states[:, [self.names.index(fluent) for fluent in group.fluents]]
        holds = np.where(columns.any(axis=1), columns.argmax(axis=1) + 1, 0)
        return sorted(set(holds.tolist()))


class World:
    """The variables and the laws of fluents over them."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        names = sorted(
            {object_name for objects in instance.types.values() for object_name in objects}
        )
        self.codes = {name: code for code, name in enumerate(names)}
        self.names = dict(enumerate(names))
        self.owners: dict[str, Variable] = {}
        """The variable of every fluent, including hidden ones."""
        self.order: dict[str, int] = {}
        """The position of each variable among the axes, by name."""
        self.laws: dict[str, Expression] = {}
        """Laws of next values and hidden fluents, with deterministic ones substituted."""
        self.derived: frozenset[str] = frozenset()
        """Hidden fluents that are derived variables of the model, with all that they depend on."""
        self.fixed: dict[str, Constant] = {}
        """Fluents that never change, with their values."""
        self.explored: Explored | None = None
        """The joint states that can be reached, if they had to be listed."""
        self._resolve()

    def _resolve(self) -> None:
        given = {primed(name): law for name, law in self.instance.next.items()}
        given |= self.instance.between
        done: dict[str, Expression] = {}
        active: list[str] = []

        def resolved(name: str) -> Expression:
            if name in done:
                return done[name]
            if name in active:
                raise InvalidModel(f"the laws of {' and '.join(active)} read each other")
            active.append(name)
            done[name] = filled(given[name])
            active.pop()
            return done[name]

        fluents = {*given, *self.instance.states, *self.instance.actions}

        def filled(expression: Expression) -> Expression:
            for name in sorted(atoms_of(expression) - fluents):
                raise InvalidModel(f"{name} is read, and no law says what it is")
            known = {}
            for name in sorted(atoms_of(expression) & given.keys()):
                law = resolved(name)
                if not is_random(law) and not (atoms_of(law) & given.keys()):
                    known[name] = law
            return replaced(expression, known)

        for name in given:
            self.laws[name] = resolved(name)
        self.reward = filled(self.instance.reward)
        self.conditions = []
        for label, condition in self.instance.conditions:
            made = filled(condition)
            if is_random(made) or atoms_of(made) & given.keys():
                raise InvalidModel(f"{label} reads what is drawn in the step; must read the state")
            self.conditions.append((label, made))
        used: set[str] = set()
        for name in self.instance.states:
            used |= atoms_of(self.laws[primed(name)])
        used |= atoms_of(self.reward)
        self.hidden = [name for name in self._topological() if name in used | self._below(used)]

    def _topological(self) -> list[str]:
        """Return hidden fluents and next values, each after those that its law reads."""
        order: dict[str, None] = {}

        def visit(name: str) -> None:
            if name not in order:
                for parent in sorted(atoms_of(self.laws[name]) & self.laws.keys()):
                    visit(parent)
                order[name] = None

        for name in self.laws:
            visit(name)
        return list(order)

    def _below(self, names: Iterable[str]) -> set[str]:
        """Return the hidden fluents that the given ones depend on, including themselves.

        What lies behind derived variables is not included.
        """
        below: set[str] = set()
        left = [name for name in names if name in self.laws]
        while left:
            name = left.pop()
            if name not in below:
                below.add(name)
                if name not in self.derived:
                    left += atoms_of(self.laws[name]) & self.laws.keys()
        return below

    def derive_shared_draws(self, variables: Sequence[Variable]) -> None:
        """Make the draws that decide several of these state variables derived variables.

        A draw that decides two variables has behind it only draws that decide both.
        """
        self.derived = frozenset()
        decided: dict[str, set[str]] = {}
        for variable in variables:
            for fluent in variable.fluents:
                for drawn in self._below(atoms_of(self.laws[primed(fluent)])):
                    decided.setdefault(drawn, set()).add(variable.name)
        self.derived = frozenset(name for name, owners in decided.items() if len(owners) > 1)

    def fix(self, values: Mapping[str, Constant]) -> None:
        """Substitute fluents that never change."""
        self.fixed |= values
        known: dict[str, Expression] = dict(values)
        known |= {primed(name): value for name, value in values.items()}
        self.laws = {name: replaced(law, known) for name, law in self.laws.items()}
        self.reward = replaced(self.reward, known)
        self.conditions = [
            (label, replaced(condition, known)) for label, condition in self.conditions
        ]

    def own(self, variable: Variable) -> None:
        """Make a variable the owner of its fluents."""
        self.order.setdefault(variable.name, len(self.order))
        for fluent in variable.fluents:
            self.owners[fluent] = variable

    def scope(self, expressions: Iterable[Expression]) -> list[Variable]:
        """Return the variables that expressions read, hidden ones last, each after its parents."""
        atoms: set[str] = set().union(*map(atoms_of, expressions))
        hidden = self._below(atoms)
        for atom in hidden - self.derived:
            atoms |= atoms_of(self.laws[atom])
        plain = {
            self.owners[atom].name: self.owners[atom] for atom in atoms if atom not in self.laws
        }
        last: dict[str, Variable] = {}
        for name in self.hidden:
            if name in hidden:
                last[self.owners[name].name] = self.owners[name]
                # The law of a variable of the next state reads all that its fluents' laws do.
                if name.partition("___")[0].endswith("'"):
                    for fluent in self.owners[name].fluents:
                        for variable in self.scope([self.laws[fluent]]):
                            (plain if not self.is_hidden(variable) else last).setdefault(
                                variable.name, variable
                            )
        ordered = sorted(plain.values(), key=lambda v: self.order[v.name])
        return [*ordered, *last.values()]

    def is_hidden(self, variable: Variable) -> bool:
        return next(iter(variable.fluents)) in self.laws

    def evaluation(self, variables: Sequence[Variable], cells: int, what: str) -> Evaluation:
        """Return an evaluation for tables with `cells` numbers per row, or raise TooLarge."""
        entries = math.prod(v.size for v in variables) * cells
        if entries > MOST_ENTRIES:
            shown = ", ".join(v.name for v in variables[:6])
            raise TooLarge(
                f"{what} depends on {len(variables)} variables ({shown}"
                f"{', ...' if len(variables) > 6 else ''}): a table of {entries} numbers, at most "
                f"{MOST_ENTRIES} are made",
                8 * entries,
                8 * MOST_ENTRIES,
            )
        return Evaluation(Frame(variables, self.codes))

    def table(self, variable: Variable) -> tuple[list[Variable], Array]:
        """Return the scope of a variable's next value and its table [size, ..., size, values].

        Axes along which nothing changes may have length 1.
        """
        return self._summed_out(*self._conditional(variable))

    def _conditional(self, variable: Variable) -> tuple[list[Variable], Array]:
        """Return the table of a state variable or hidden one, given the hidden ones it reads."""
        hidden = self.is_hidden(variable)
        laws = [self.laws[name if hidden else primed(name)] for name in variable.fluents]
        scope = self.scope(laws)
        what = f"the next value of {unprimed(variable.name)}"
        evaluation = self.evaluation(scope, variable.size, what)
        try:
            columns = self._columns(evaluation, variable, laws)
        except InvalidModel as error:
            raise InvalidModel(f"{what}: {error}") from None
        table = np.stack(np.broadcast_arrays(*columns), axis=-1)
        total = table.sum(axis=-1)
        wrong = ~(np.abs(total - 1.0) <= SLACK)
        if self.explored is not None:
            # All states that can be reached are known, and their next values are among those of
            # the variable. These rows are never used, but must be distributions.
            table[wrong] = np.eye(variable.size)[0]
        elif wrong.any():
            raise InvalidModel(
                f"{what} is not one of {', '.join(variable.values[:8])} for sure: "
                f"the probabilities sum to {float(total[wrong][0]):g}"
            )
        return scope, table

    def _columns(
        self, evaluation: Evaluation, variable: Variable, laws: Sequence[Expression]
    ) -> list[Array]:
        fluents = list(variable.fluents.values())
        if len(laws) == 1:
            law = evaluation.law(laws[0])
            zero = np.zeros((1,) * len(evaluation.frame.shape))
            return [law.get(evaluation.frame.coded(constant), zero) for constant in fluents[0]]
        # At most one fluent of a group holds, so no product is needed. Several may hold where the
        # action is forbidden; these rows are never used, but must be distributions.
        chances = [evaluation.truth(law) for law in laws]
        most = np.maximum(sum(chances), 1.0)
        chances = [chance / most for chance in chances]
        neither = 1.0 - sum(chances)
        columns = []
        for value in range(variable.size):
            holds = [place for place, constants in enumerate(fluents) if constants[value]]
            columns.append(chances[holds[0]] if holds else np.maximum(neither, 0.0))
        return columns

    def _summed_out(self, scope: list[Variable], table: Array) -> tuple[list[Variable], Array]:
        """Return a table [scope..., cells] with its hidden variables summed out, last first.

        Derived variables stay.
        """
        for place in reversed(range(len(scope))):
            hidden = scope[place]
            if not self.is_hidden(hidden) or hidden.name in self.derived:
                continue
            parents, chances = self._conditional(hidden)  # [parents..., values]
            lengths = {v.name: size for v, size in zip(parents, chances.shape[:-1], strict=True)}
            shape = [lengths.get(v.name, 1) for v in scope[:place]]
            weights = chances.reshape([*shape, hidden.size, *[1] * (len(scope) - place)])
            table = (table * weights).sum(axis=place)
            scope = scope[:place] + scope[place + 1 :]
        return scope, table

    def mean(self, expression: Expression, what: str) -> tuple[list[Variable], Array]:
        """Return the scope and the expectation of a numeric expression: [size, ..., size]."""
        scope = self.scope([expression])
        evaluation = self.evaluation(scope, 1, what)
        try:
            table = evaluation.mean(expression)[..., None]
        except InvalidModel as error:
            raise InvalidModel(f"{what}: {error}") from None
        scope, table = self._summed_out(scope, table)
        return scope, table[..., 0]


def pruned(scope: Sequence[Variable], table: Array, cells: int) -> tuple[list[Variable], Array]:
    """Return a table without variables along which it is constant.

    The last `cells` axes are not variables.
    """
    kept = list(scope)
    for axis in reversed(range(len(kept))):
        first = table.take([0], axis=axis)
        if table.shape[axis] == 1 or (table == first).all():
            table = first.squeeze(axis=axis)
            del kept[axis]
    shape = [v.size for v in kept]
    return kept, np.broadcast_to(table, (*shape, *table.shape[len(shape) :]))
