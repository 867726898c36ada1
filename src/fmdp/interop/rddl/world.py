"""The laws of an instance over variables, and their tables.

Intermediate fluents whose law has no draw are put in where they are read. Those with a draw are
`hidden`: variables that are summed out of a table again, weighted with their own law. That is exact
for a table by itself; it is so for the model too only if one draw decides one variable of the next
state, and a draw that decides several is refused by name. The same goes for next values of state
fluents that other laws read. Rewards may read anything: their expectation is what is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fmdp.errors import InvalidModel, TooLarge
from fmdp.interop.rddl.expressions import (
    Constant,
    Expression,
    atoms_of,
    is_random,
    replaced,
)
from fmdp.interop.rddl.instance import Instance
from fmdp.interop.rddl.laws import SLACK, Evaluation
from fmdp.interop.rddl.variables import Array, Frame, Variable, primed, unprimed

MOST_ENTRIES = 1 << 24
"""Numbers of one table: 128 MiB."""


class World:
    """Variables, and the laws of fluents over them."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        names = sorted({one for objects in instance.types.values() for one in objects})
        self.codes = {name: code for code, name in enumerate(names)}
        self.names = dict(enumerate(names))
        self.owners: dict[str, Variable] = {}
        """The variable of every fluent; of hidden ones too."""
        self.order: dict[str, int] = {}
        """Where a variable stands among the axes, by name."""
        self.laws: dict[str, Expression] = {}
        """Of next values and of hidden fluents; those without a draw are put in already."""
        self.fixed: dict[str, Constant] = {}
        """Fluents that never change, and what they are."""
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

        def filled(expression: Expression) -> Expression:
            known = {}
            for one in sorted(atoms_of(expression) & given.keys()):
                law = resolved(one)
                if not is_random(law) and not (atoms_of(law) & given.keys()):
                    known[one] = law
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
        """Hidden fluents and next values, each after what its law reads."""
        order: dict[str, None] = {}

        def visit(name: str) -> None:
            if name not in order:
                for one in sorted(atoms_of(self.laws[name]) & self.laws.keys()):
                    visit(one)
                order[name] = None

        for name in self.laws:
            visit(name)
        return list(order)

    def _below(self, names: Iterable[str]) -> set[str]:
        """What the laws of hidden fluents read, and so on: hidden fluents alone."""
        found: set[str] = set()
        left = [one for one in names if one in self.laws]
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += atoms_of(self.laws[name]) & self.laws.keys()
        return found

    def refuse_shared_draws(self, variables: Sequence[Variable]) -> None:
        """A draw must decide one variable of the next state, or factors are not independent."""
        decided: dict[str, set[str]] = {}
        for variable in variables:
            for fluent in variable.fluents:
                for one in self._below(atoms_of(self.laws[primed(fluent)])):
                    decided.setdefault(one, set()).add(variable.name)
                    if unprimed(one) in self.instance.states:
                        decided[one].add(unprimed(one))
        for name, owners in decided.items():
            if len(owners) > 1:
                shown = sorted(owners)
                raise InvalidModel(
                    f"{name} is drawn and decides {len(owners)} state variables at once "
                    f"({', '.join(shown[:3])}{', ...' if len(shown) > 3 else ''}), which are then "
                    f"not independent of each other; must decide one"
                )

    def fix(self, values: Mapping[str, Constant]) -> None:
        """Put in what never changes."""
        self.fixed |= values
        known: dict[str, Expression] = dict(values)
        known |= {primed(name): value for name, value in values.items()}
        self.laws = {name: replaced(law, known) for name, law in self.laws.items()}
        self.reward = replaced(self.reward, known)
        self.conditions = [(label, replaced(one, known)) for label, one in self.conditions]

    def own(self, variable: Variable) -> None:
        """Take a variable for its fluents."""
        self.order.setdefault(variable.name, len(self.order))
        for fluent in variable.fluents:
            self.owners[fluent] = variable

    def scope(self, expressions: Iterable[Expression]) -> list[Variable]:
        """The variables that expressions are read off, hidden ones last, each after its parents."""
        atoms: set[str] = set().union(*map(atoms_of, expressions))
        hidden = self._below(atoms)
        for one in hidden:
            atoms |= atoms_of(self.laws[one])
        plain = {self.owners[one].name: self.owners[one] for one in atoms if one not in self.laws}
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
        ordered = sorted(plain.values(), key=lambda one: self.order[one.name])
        return [*ordered, *last.values()]

    def is_hidden(self, variable: Variable) -> bool:
        return next(iter(variable.fluents)) in self.laws

    def evaluation(self, variables: Sequence[Variable], cells: int, what: str) -> Evaluation:
        """For tables of `cells` numbers a row; TooLarge where that is too much."""
        entries = math.prod(one.size for one in variables) * cells
        if entries > MOST_ENTRIES:
            shown = ", ".join(one.name for one in variables[:6])
            raise TooLarge(
                f"{what} depends on {len(variables)} variables ({shown}"
                f"{', ...' if len(variables) > 6 else ''}): a table of {entries} numbers, at most "
                f"{MOST_ENTRIES} are made",
                8 * entries,
                8 * MOST_ENTRIES,
            )
        return Evaluation(Frame(variables, self.codes))

    def table(self, variable: Variable) -> tuple[list[Variable], Array]:
        """The scope of a variable's next value and the probabilities: [size, ..., size, values];
        an axis along which nothing changes may have length 1."""
        return self._summed_out(*self._conditional(variable))

    def _conditional(self, variable: Variable) -> tuple[list[Variable], Array]:
        """The same of a state variable or a hidden one, given the hidden ones that it reads."""
        hidden = self.is_hidden(variable)
        laws = [self.laws[one if hidden else primed(one)] for one in variable.fluents]
        scope = self.scope(laws)
        what = f"the next value of {unprimed(variable.name)}"
        evaluation = self.evaluation(scope, variable.size, what)
        try:
            columns = self._columns(evaluation, variable, laws)
        except InvalidModel as error:
            raise InvalidModel(f"{what}: {error}") from None
        found = np.stack(np.broadcast_arrays(*columns), axis=-1)
        total = found.sum(axis=-1)
        wrong = ~(np.abs(total - 1.0) <= SLACK)
        if wrong.any():
            raise InvalidModel(
                f"{what} is not one of {', '.join(variable.values[:8])} for sure: "
                f"the probabilities sum to {float(total[wrong][0]):g}"
            )
        return scope, found

    def _columns(
        self, evaluation: Evaluation, variable: Variable, laws: Sequence[Expression]
    ) -> list[Array]:
        fluents = list(variable.fluents.values())
        if len(laws) == 1:
            law = evaluation.law(laws[0])
            zero = np.zeros((1,) * len(evaluation.frame.shape))
            return [law.get(evaluation.frame.coded(one), zero) for one in fluents[0]]
        # At most one of a group holds, so the others are surely false: no product is needed. (Where
        # conditions forbid the action several may; no such row is ever used, but it must be a law.)
        chances = [evaluation.truth(law) for law in laws]
        most = np.maximum(sum(chances), 1.0)
        chances = [one / most for one in chances]
        none = 1.0 - sum(chances)
        columns = []
        for value in range(variable.size):
            holds = [place for place, told in enumerate(fluents) if told[value]]
            columns.append(chances[holds[0]] if holds else np.maximum(none, 0.0))
        return columns

    def _summed_out(self, scope: list[Variable], found: Array) -> tuple[list[Variable], Array]:
        """A table [scope..., cells] without its hidden variables, from the last to the first."""
        while scope and self.is_hidden(scope[-1]):
            own, chances = self._conditional(scope[-1])  # [own..., values]
            lengths = {one.name: size for one, size in zip(own, chances.shape[:-1], strict=True)}
            scope, hidden = scope[:-1], scope[-1]
            shape = [lengths.get(one.name, 1) for one in scope]
            weights = chances.reshape([*shape, hidden.size, 1])
            found = (found * weights).sum(axis=len(scope))
        return scope, found

    def mean(self, expression: Expression, what: str) -> tuple[list[Variable], Array]:
        """The scope and the expectation of a numeric expression: [size, ..., size]."""
        scope = self.scope([expression])
        evaluation = self.evaluation(scope, 1, what)
        try:
            found = evaluation.mean(expression)[..., None]
        except InvalidModel as error:
            raise InvalidModel(f"{what}: {error}") from None
        scope, found = self._summed_out(scope, found)
        return scope, found[..., 0]


def pruned(scope: Sequence[Variable], table: Array, cells: int) -> tuple[list[Variable], Array]:
    """A table without the variables along which it is constant; `cells` axes at the end are no
    variables."""
    kept = list(scope)
    for axis in reversed(range(len(kept))):
        first = table.take([0], axis=axis)
        if table.shape[axis] == 1 or (table == first).all():
            table = first.squeeze(axis=axis)
            del kept[axis]
    shape = [one.size for one in kept]
    return kept, np.broadcast_to(table, (*shape, *table.shape[len(shape) :]))
