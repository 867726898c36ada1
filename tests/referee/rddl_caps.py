"""RDDL with caps on actions: the allowed joint actions of every state, by brute force.

A recipe has caps ("at most k of these action variables differ from their idle values") and
forbidden combinations, and says by enumeration which joint actions are allowed in which state. It
becomes RDDL in two ways: written by fmdp from a model, and written here. What fmdp reads back must
allow exactly the same joint actions, in whatever variables it puts them: exclusive actions become
the values of one variable, and actions that can never be taken have none.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fmdp
from fmdp.interop import rddl
from referee.ledger import Ledger

Action = tuple[int, ...]
State = tuple[int, ...]

BOOLEAN = ("false", "true")
CLAIMS = {
    "written by fmdp": "RDDL with caps: allowed actions of a model that fmdp wrote",
    "written by the referee": "RDDL with caps: allowed actions of a domain that the referee wrote",
}


@dataclass(frozen=True)
class Cap:
    """At most `most` of these actions, by number, differ from their idle values."""

    actions: tuple[int, ...]
    most: int
    idle: tuple[int, ...]


@dataclass(frozen=True)
class Capped:
    """A model with constraints, as plain values."""

    name: str
    states: tuple[tuple[str, ...], ...]
    """The names of the values of every state variable."""
    actions: tuple[tuple[str, ...], ...]
    caps: tuple[Cap, ...]
    forbidden: tuple[tuple[tuple[int, ...], frozenset[tuple[int, ...]]], ...]
    """(scope, assignments): numbers of variables, states before actions."""

    @property
    def n_states(self) -> int:
        return int(np.prod([len(values) for values in self.states]))

    @property
    def n_actions(self) -> int:
        return int(np.prod([len(values) for values in self.actions]))

    @property
    def whole(self) -> Cap | None:
        """The cap on all actions, which RDDL has a place for of its own."""
        everything = tuple(range(len(self.actions)))
        return next((cap for cap in self.caps if cap.actions == everything), None)

    @property
    def defaults(self) -> Action:
        return (0,) * len(self.actions) if self.whole is None else self.whole.idle

    def allows(self, state: State, action: Action) -> bool:
        joint = (*state, *action)
        for cap in self.caps:
            idle = zip(cap.actions, cap.idle, strict=True)
            if sum(action[a] != value for a, value in idle) > cap.most:
                return False
        return not any(
            tuple(joint[v] for v in scope) in assignments for scope, assignments in self.forbidden
        )

    def allowed(self) -> dict[State, set[Action]]:
        return {
            state: {action for action in _all(self.actions) if self.allows(state, action)}
            for state in _all(self.states)
        }

    def build(self) -> fmdp.FactoredMDP:
        """A model in which every state can be reached and every action is paid differently."""
        m, n = len(self.states), len(self.actions)
        draw = np.random.default_rng(len(self.name))
        sizes = [len(values) for values in (*self.states, *self.actions)]
        scope = list(range(m, m + n))
        shape = [sizes[v] for v in scope]
        constraints: list[Any] = [
            fmdp.AtMost(tuple(m + a for a in cap.actions), cap.most, cap.idle) for cap in self.caps
        ]
        for own, assignments in self.forbidden:
            table = np.zeros([sizes[v] for v in own], dtype=bool)
            for assignment in assignments:
                table[assignment] = True
            constraints.append(fmdp.Forbidden(own, table.reshape(-1)))
        return fmdp.FactoredMDP.from_factors(
            sizes[:m],
            sizes[m:],
            [(scope, draw.dirichlet(np.ones(sizes[i]), shape)) for i in range(m)],
            [(scope, draw.random(shape))],
            state_names=[f"s{i}" for i in range(m)],
            action_names=[f"a{a}" for a in range(n)],
            state_values=self.states,
            action_values=self.actions,
            constraints=constraints,
        )

    def texts(self) -> tuple[str, str]:
        """The same constraints as a domain and an instance, written without fmdp."""
        names = [f"s{i}" for i in range(len(self.states))]
        names += [f"a{a}" for a in range(len(self.actions))]
        values = (*self.states, *self.actions)
        enumerated = sorted({own for own in values if own != BOOLEAN})
        kinds = {own: f"kind{number}" for number, own in enumerate(enumerated)}
        first = (*(0 for _ in self.states), *self.defaults)

        def literal(v: int, value: int) -> str:
            text = values[v][value]
            return text if values[v] == BOOLEAN else f"@{text}"

        def equals(v: int, value: int) -> str:
            if values[v] == BOOLEAN:
                return names[v] if value else f"~{names[v]}"
            return f"({names[v]} == {literal(v, value)})"

        types = " ".join(
            f"{kind} : {{{', '.join(f'@{one}' for one in own)}}};" for own, kind in kinds.items()
        )
        fluents = " ".join(
            f"{name} : {{ {'state' if v < len(self.states) else 'action'}-fluent, "
            f"{kinds.get(values[v], 'bool')}, default = {literal(v, first[v])} }};"
            for v, name in enumerate(names)
        )
        laws = " ".join(f"s{i}' = {_law(own, kinds)};" for i, own in enumerate(self.states))
        m = len(self.states)
        paid = [
            f"{1 + 3 * a + value} * [{equals(m + a, value)}]"
            for a, own in enumerate(self.actions)
            for value in range(len(own))
        ]
        conditions = []
        for cap in self.caps:
            if cap is not self.whole:
                idle = zip(cap.actions, cap.idle, strict=True)
                busy = " + ".join(f"[~{equals(m + a, value)}]" for a, value in idle)
                conditions.append(f"[{busy}] <= {cap.most};")
        for scope, assignments in self.forbidden:
            for assignment in sorted(assignments):
                parts = [equals(v, value) for v, value in zip(scope, assignment, strict=True)]
                conditions.append(f"~[{' ^ '.join(parts)}];")
        domain = (
            f"domain d {{ types {{ {types} }}; pvariables {{ {fluents} }}; cpfs {{ {laws} }}; "
            f"reward = {' + '.join(paid)}; "
            f"action-preconditions {{ {' '.join(conditions) or 'true;'} }}; }}\n"
        )
        most = "pos-inf" if self.whole is None else self.whole.most
        instance = (
            "non-fluents n { domain = d; }\n"
            f"instance i {{ domain = d; non-fluents = n; max-nondef-actions = {most}; "
            "horizon = 5; discount = 1.0; }\n"
        )
        return domain, instance


def _all(variables: tuple[tuple[str, ...], ...]) -> itertools.product[Action]:
    return itertools.product(*(range(len(values)) for values in variables))


def _law(values: tuple[str, ...], kinds: dict[tuple[str, ...], str]) -> str:
    if values == BOOLEAN:
        return "Bernoulli(0.5)"
    chances = ", ".join(f"@{one} : {1 / len(values)!r}" for one in values)
    return f"Discrete({kinds[values]}, {chances})"


def recipe(seed: int) -> Capped:
    """A model with random constraints that leave every state an action."""
    draw = np.random.default_rng(seed)
    kinds = (BOOLEAN, BOOLEAN, ("off", "on"), ("low", "middle", "high"))
    while True:
        states = tuple(kinds[draw.integers(len(kinds))] for _ in range(draw.integers(1, 3)))
        actions = tuple(kinds[draw.integers(len(kinds))] for _ in range(draw.integers(1, 4)))
        found = Capped(f"rddl-{seed}", states, actions, *_constraints(draw, states, actions))
        if all(found.allowed().values()):
            return found


def _constraints(
    draw: np.random.Generator, states: tuple[Any, ...], actions: tuple[Any, ...]
) -> tuple[Any, Any]:
    m, n = len(states), len(actions)
    sizes = [len(values) for values in (*states, *actions)]
    caps = []
    for _ in range(draw.integers(0, 3)):
        everything = draw.random() < 0.6
        own = range(n) if everything else draw.choice(n, int(draw.integers(1, n + 1)), False)
        places = tuple(sorted(int(a) for a in own))
        idle = tuple(int(draw.integers(len(actions[a]))) for a in places)
        caps.append(Cap(places, int(draw.integers(0, len(places) + 1)), idle))
    forbidden = []
    if draw.random() < 0.4:  # actions that exclude each other, from the values of the default
        idle = caps[0].idle if caps and len(caps[0].actions) == n else (0,) * n
        for a, b in itertools.combinations(range(n), 2):
            busy = itertools.product(*(range(sizes[m + v]) for v in (a, b)))
            both = frozenset(x for x in busy if x[0] != idle[a] and x[1] != idle[b])
            forbidden.append(((m + a, m + b), both))
    for _ in range(draw.integers(0, 2)):  # a condition on states and actions
        scope = tuple(sorted({int(draw.integers(m)), m + int(draw.integers(n))}))
        cells = list(itertools.product(*(range(sizes[v]) for v in scope)))
        chosen = frozenset(cell for cell in cells if draw.random() < 0.3)
        forbidden.append((scope, chosen))
    return tuple(caps), tuple(forbidden)


# ---- the comparison --------------------------------------------------------------------------


def allowed_in(model: fmdp.FactoredMDP, recipe: Capped) -> dict[State, set[Action]]:
    """What a model that was read from RDDL allows, in the recipe's variables."""
    s = model.structure
    found: dict[State, set[Action]] = {state: set() for state in _all(recipe.states)}
    for own in _all(s.state_values):
        values = dict(zip(s.state_names, _told(s.state_values, own), strict=True))
        known = [
            [values[f"s{i}"]] if f"s{i}" in values else list(names)
            for i, names in enumerate(recipe.states)
        ]
        states = [
            tuple(recipe.states[i].index(text) for i, text in enumerate(one))
            for one in itertools.product(*known)
        ]
        for action in _all(s.action_values):
            if s.allowed(own, action):
                told = _told(s.action_values, action)
                meant = _meant(recipe, dict(zip(s.action_names, told, strict=True)))
                for state in states:
                    found[state].add(meant)
    return found


def _told(values: Any, numbers: Any) -> list[str]:
    return [own[number] for own, number in zip(values, numbers, strict=True)]


def _meant(recipe: Capped, told: dict[str, str]) -> Action:
    """The joint action that values of the read variables stand for: "a0" of the variable `action`
    is that a0 is true, "a1=high" that it is high, and "noop" that all are at their defaults."""
    meant = list(recipe.defaults)
    for name, value in told.items():
        if name == "action":
            if value == "noop":
                continue
            name, _, value = value.partition("=")
            value = value or BOOLEAN[1 - recipe.defaults[int(name[1:])]]
        number = int(name[1:])
        meant[number] = recipe.actions[number].index(value)
    return tuple(meant)


def judge(ledger: Ledger, claim: str, recipe: Capped, model: fmdp.FactoredMDP) -> None:
    """Compare what a model allows with what the recipe says, state by state."""
    expected, found = recipe.allowed(), allowed_in(model, recipe)
    for state, actions in expected.items():
        more, less = sorted(found[state] - actions), sorted(actions - found[state])
        ledger.judge(
            claim,
            recipe,  # type: ignore[arg-type]  # it has what a ledger reads of a recipe
            not more and not less,
            float("inf"),
            f"state {state}: allows {more} more, {less} less; caps {recipe.caps}",
        )


def play(short: bool) -> Ledger:
    """Write and read back generated models, and compare their allowed actions."""
    ledger = Ledger()
    for seed in range(40 if short else 400):
        own = recipe(seed)
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / "domain.rddl", Path(folder) / "instance.rddl"]
            read = "+".join(map(str, paths))
            rddl.write(own.build(), paths)
            judge(ledger, CLAIMS["written by fmdp"], own, fmdp.problem(read))
            for path, text in zip(paths, own.texts(), strict=True):
                path.write_text(text)
            judge(ledger, CLAIMS["written by the referee"], own, fmdp.problem(read))
    return ledger
