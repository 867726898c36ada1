"""Writing of a model as RDDL: a domain and an instance without objects, one fluent per variable.

A variable with the values false and true is a boolean; any other has an enumerated type, which
variables with the same values share. Laws and rewards are nested if-then-else over the values of
their scopes, with constant parts joined. Only the means of rewards are written: RDDL cannot express
their noise and ranges, nor alike rows. Names become identifiers ("pump 1" -> pump-1). Reading back
gives the same variables, laws, mean rewards, allowed actions and initial state.

Numbers are written without an exponent, which RDDL does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np

from fmdp.errors import InvalidModel, TooLarge
from fmdp.interop.rddl.variables import Array
from fmdp.model.constraints import AtMost, Budget
from fmdp.model.factored import FactoredMDP
from fmdp.model.io.files import write_atomically
from fmdp.model.structure import Structure

BOOLEAN = ("false", "true")
SEPARATOR = "--"
"""Separates a type from a value whose name several types have."""

MOST_ROWS = 1 << 20
"""Most rows of all tables; each takes a line or two of text."""

RESERVED = frozenset(
    re.findall(
        r"\S+",
        """
        domain instance horizon discount objects init-state requirements
        state-action-constraints action-preconditions termination state-invariants types object
        bool int real neg-inf pos-inf pvariables non-fluent non-fluents state-fluent
        interm-fluent derived-fluent observ-fluent action-fluent param-fluent level default
        max-nondef-actions terminate-when terminal cpfs cdfs policy reward forall exists argmax
        argmin true false if then else switch case otherwise KronDelta DiracDelta Uniform
        Bernoulli Discrete UnnormDiscrete Normal Poisson Exponential Weibull Gamma Binomial
        NegativeBinomial Beta Geometric Pareto Student Gumbel Laplace Cauchy Gompertz ChiSquare
        Kumaraswamy MultivariateNormal MultivariateStudent Dirichlet Multinomial det inverse
        pinverse cholesky row col sum prod avg max min
        """,
    )
)


def write(model: FactoredMDP, paths: Sequence[Path]) -> list[str]:
    """Write a domain and an instance, each atomically, and return what is left out."""
    domain, instance = texts(model)
    write_atomically(paths[0], domain)
    write_atomically(paths[1], instance)
    left_out = {
        "the noise of rewards": any(noise.kind != "deterministic" for noise in model.noise),
        "which rows are alike": model.structure.alike is not None,
        "intervals": model.intervals is not None,
    }
    return [what for what, applies in left_out.items() if applies]


def texts(model: FactoredMDP) -> tuple[str, str]:
    """Return the text of the domain and the instance of a model."""
    return _Writer(model).texts()


def identifiers(names: Iterable[str], kind: str) -> list[str]:
    """Return distinct RDDL names: letters, digits, - and _, a letter first, no - or _ last."""
    unique: list[str] = []
    for name in names:
        # pyRDDLGym joins a fluent and its objects by three underscores.
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).replace("___", "-of-").strip("-_")
        plain = re.sub(r"__+", "-", plain)
        if not plain or not plain[0].isalpha():
            plain = f"{kind}-{plain}".rstrip("-")
        if plain in RESERVED or plain in unique:
            number = 2
            while f"{plain}-{number}" in unique:
                number += 1
            plain = f"{plain}-{number}"
        unique.append(plain)
    return unique


def number(value: float) -> str:
    """Return a number in RDDL that reads back exactly."""
    text = format(Decimal(repr(float(value))), "f")
    return text if "." in text else f"{text}.0"


class _Writer:
    def __init__(self, model: FactoredMDP) -> None:
        self.model = model
        self.structure: Structure = model.structure
        rows = sum(self.structure.transition_rows) + sum(self.structure.reward_rows)
        rows += sum(len(variable.table) for variable in self.structure.derived)
        if rows > MOST_ROWS:
            raise TooLarge(
                f"the tables have {rows} rows; at most {MOST_ROWS} are written as RDDL",
                rows,
                MOST_ROWS,
            )
        if self.structure.n_actions == 1 and len(self.structure.action_sizes) > 1:
            raise InvalidModel("a model without a choice of actions cannot be written as RDDL")
        # RDDL has one cap on all actions (max-nondef-actions); other caps are written out.
        actions = tuple(range(self.structure.m, len(self.structure.sizes)))
        caps = (cap for cap in self.structure.constraints if isinstance(cap, AtMost))
        self.cap = next((cap for cap in caps if cap.actions == actions), None)
        self.names = identifiers(self.structure.names, "v")
        self.types, self.literals = self._types()

    def _types(self) -> tuple[dict[int, str], dict[int, list[str]]]:
        """Return the type and the names of the values of every variable that is no boolean."""
        by_values: dict[tuple[str, ...], str] = {}
        holders: dict[str, set[tuple[str, ...]]] = {}
        for values in map(tuple, self.structure.values):
            if values != BOOLEAN and values not in by_values:
                by_values[values] = f"values-{len(by_values) + 1}"
                for value in values:
                    holders.setdefault(_literal(value), set()).add(values)
        types: dict[int, str] = {}
        literals: dict[int, list[str]] = {}
        for v, values in enumerate(map(tuple, self.structure.values)):
            if values == BOOLEAN:
                continue
            types[v] = by_values[values]
            plain = [_literal(value) for value in values]
            shared = len(set(plain)) < len(plain) or any(len(holders[value]) > 1 for value in plain)
            if len(set(plain)) < len(plain):
                plain = [f"{value}-{index}" for index, value in enumerate(plain)]
            prefix = f"{types[v]}{SEPARATOR}" if shared else ""
            literals[v] = [f"@{prefix}{value}" for value in plain]
        return types, literals

    def texts(self) -> tuple[str, str]:
        s = self.structure
        name = identifiers([self.model.name or "model"], "model")[0]
        m = s.m
        lines = [f"domain {name} {{", "", "  requirements = { reward-deterministic };", ""]
        if self.types:
            lines.append("  types {")
            lines += [
                f"    {kind} : {{{', '.join(literals)}}};"
                for kind, literals in {self.types[v]: self.literals[v] for v in self.types}.items()
            ]
            lines += ["  };", ""]
        lines.append("  pvariables {")
        for v, fluent in enumerate(self.names):
            lines.append(f"    {fluent} : {{ {self._declared(v)} }};")
        lines += ["  };", "", "  cpfs {"]
        for v, variable in enumerate(s.derived, len(s.sizes)):
            table = variable.table
            if variable.deterministic:
                table = np.eye(variable.size)[table]
            table = table.reshape(*s.scope_sizes(variable.scope), variable.size)
            lines.append(f"    {self.names[v]} =")
            lines.append(f"{self._tree(variable.scope, table, v, 3)};")
        for i in range(m):
            table = self.model.transitions[i].reshape(
                *s.scope_sizes(s.transition_scopes[i]), s.state_sizes[i]
            )
            lines.append(f"    {self.names[i]}' =")
            lines.append(f"{self._tree(s.transition_scopes[i], table, i, 3)};")
        lines += ["  };", "", "  reward ="]
        terms = [
            f"    [{self._tree(scope, means.reshape(s.scope_sizes(scope)), None, 3).lstrip()}]"
            for scope, means in zip(s.reward_scopes, self.model.rewards, strict=True)
        ]
        lines.append(" +\n".join(terms or ["    0.0"]) + ";")
        limits, most = self._limits()
        if limits:
            lines += [
                "",
                "  action-preconditions {",
                *(f"    {condition};" for condition in limits),
                "  };",
            ]
        lines += ["}", ""]
        return "\n".join(lines), self._instance(name, most)

    def _value(self, v: int, value: int) -> str:
        return BOOLEAN[value] if v not in self.types else self.literals[v][value]

    def _declared(self, v: int) -> str:
        kind = self.types.get(v, "bool")
        if v >= len(self.structure.sizes):
            return f"interm-fluent, {kind}"
        role = "state-fluent" if v < self.structure.m else "action-fluent"
        return f"{role}, {kind}, default = {self._default(v)}"

    def _default(self, v: int) -> str:
        """Return the first value of a variable, or the idle value in the cap on all actions."""
        if self.cap is None or v not in self.cap.actions:
            return self._value(v, 0)
        return self._value(v, self.cap.idle[self.cap.actions.index(v)])

    def _tree(self, scope: Sequence[int], table: Array, target: int | None, depth: int) -> str:
        """Return a table as nested if-then-else; without a target its cells are numbers."""
        pad = "  " * depth
        cells = 0 if target is None else 1
        for axis in reversed(range(table.ndim - cells)):
            if (table == table.take([0], axis=axis)).all():
                table = table.take(0, axis=axis)
                scope = [v for place, v in enumerate(scope) if place != axis]
        if not scope:
            return pad + self._leaf(table, target)
        v = scope[0]
        if v not in self.types:
            return (
                f"{pad}if ({self.names[v]}) then\n"
                f"{self._tree(scope[1:], table[1], target, depth + 1)}\n{pad}else\n"
                f"{self._tree(scope[1:], table[0], target, depth + 1)}"
            )
        text = ""
        for value in range(len(self.literals[v]) - 1):
            text += (
                f"{pad}if ({self.names[v]} == {self.literals[v][value]}) then\n"
                f"{self._tree(scope[1:], table[value], target, depth + 1)}\n{pad}else\n"
            )
        return text + self._tree(scope[1:], table[-1], target, depth + 1)

    def _leaf(self, cell: Array, target: int | None) -> str:
        if target is None:
            mean = float(cell)
            return number(mean) if mean >= 0 else f"-{number(-mean)}"
        sure = np.flatnonzero(cell == 1.0)
        if sure.size:  # KronDelta does not take objects
            value = self._value(target, int(sure[0]))
            return value if target in self.types else f"KronDelta({value})"
        if target not in self.types:
            return f"Bernoulli({number(float(cell[1]))})"
        kind = self.types[target]
        parts = [
            f"{literal} : {number(float(chance))}"
            for literal, chance in zip(self.literals[target], cell, strict=True)
        ]
        return f"Discrete({kind}, {', '.join(parts)})"

    def _limits(self) -> tuple[list[str], str]:
        """Return conditions on actions, and how many of them may be non-default."""
        s = self.structure
        most = "pos-inf" if self.cap is None else str(self.cap.most)
        conditions: list[str] = []
        for constraint in s.constraints:
            if constraint is self.cap:
                continue
            if isinstance(constraint, AtMost):
                parts = [
                    f"[{self._equal(v, idle, negated=True)}]" for v, idle in constraint.pairs()
                ]
                conditions.append(f"[{' + '.join(parts)}] <= {constraint.most}")
                continue
            if isinstance(constraint, Budget):
                conditions.append(self._budget(constraint))
                continue
            table = constraint.forbidden_table(s.sizes).reshape(s.scope_sizes(constraint.scope))
            cases = []
            for values in np.argwhere(table):
                parts = [
                    self._equal(v, int(x)) for v, x in zip(constraint.scope, values, strict=True)
                ]
                cases.append(f"~[{' ^ '.join(parts)}]")
            if cases:
                conditions.append(" ^ ".join(cases))
        return conditions, most

    def _budget(self, budget: Budget) -> str:
        """Return the condition that a budget is kept, with costs in whole units."""
        parts = [
            f"{cost} * [{self._equal(v, value)}]"
            for v, costs in zip(
                budget.actions, budget.unit_costs(self.structure.sizes), strict=True
            )
            for value, cost in enumerate(costs.tolist())
            if cost
        ]
        return f"[{' + '.join(parts or ['0'])}] <= {budget.most_units}"

    def _equal(self, v: int, value: int, *, negated: bool = False) -> str:
        if v not in self.types:
            return self.names[v] if bool(value) != negated else f"~{self.names[v]}"
        return f"({self.names[v]} {'~=' if negated else '=='} {self.literals[v][value]})"

    def _instance(self, name: str, most: str) -> str:
        first = [
            f"    {self.names[v]} = {self._value(v, value)};"
            for v, value in enumerate(self.model.initial_state)
        ]
        return "\n".join(
            [
                f"non-fluents constants-of-{name} {{",
                f"  domain = {name};",
                "}",
                "",
                f"instance instance-of-{name} {{",
                f"  domain = {name};",
                f"  non-fluents = constants-of-{name};",
                "  init-state {",
                *first,
                "  };",
                f"  max-nondef-actions = {most};",
                "  horizon = 40;",
                "  discount = 1.0;",
                "}",
                "",
            ]
        )


def _literal(value: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", value).strip("-_")
    return plain or "value"
