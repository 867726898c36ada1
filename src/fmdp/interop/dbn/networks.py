"""A factored MDP as a network of two slices, made and read with pyAgrum.

    x_0 (now), x_t (next) for each state variable x, a node for each action variable:
    P(x_t | parents) = P_i(. | x[Z_i]),   parents among the nodes now and the actions

As a Bayesian network the actions are uniform roots, and there are no rewards; as an influence
diagram actions are decision nodes and reward factors utility nodes. The law of x_0 is all on the
initial state. Names become identifiers; what a network has no place for (names as they were, ranges
and noise of rewards, constraints, alike rows, groups, effects) goes into the property `fmdp`.

Reading takes any network of that form. Next values must be independent given what is now: an arc
between nodes of the next slice is refused by name. Rows that miss 1 by what pyAgrum's writers
round (ROUNDED) are divided by their sum.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from fmdp.errors import FmdpError, InvalidModel
from fmdp.interop import effects
from fmdp.interop.effects import with_effects
from fmdp.interop.identifiers import identifiers
from fmdp.model.alike import Alike
from fmdp.model.constraints import from_plain, plain
from fmdp.model.factored import FactoredMDP, check_model
from fmdp.model.naming import Assignment, Value, listed_values
from fmdp.model.noise import Noise
from fmdp.model.spaces import FloatArray, shown
from fmdp.model.tables import range_of

NOW, NEXT = "_0", "_t"
PROPERTY = "fmdp"
ROUNDED = 1e-5
"""By how much a row may miss 1: writers of networks print six digits."""
_EXACT = 1e-9
"""What is a distribution up to rounding is left as it is."""


def pyagrum() -> Any:
    """The library, or an error that says which extra has it."""
    try:
        import pyagrum as library
    except ImportError:
        raise FmdpError(
            "this needs pyAgrum, which is not installed; pip install 'fmdp[dbn]'"
        ) from None
    return library


# ---- out -----------------------------------------------------------------------------------------


def to_bayesian_network(model: FactoredMDP) -> Any:
    """The transitions of a model as a network of two slices.

    Parameters
    ----------
    model
        Its reward tables stay behind; without intervals.

    Returns
    -------
    pyagrum.BayesNet
        Nodes x_0 and x_t for each state variable, and a uniform root for each action variable.

    Raises
    ------
    FmdpError
        Where pyAgrum is not installed.
    InvalidParameter
        Where it is no model.
    """
    check_model(model, "to_bayesian_network")
    network = pyagrum().BayesNet(model.name or "model")
    nodes = _Nodes(model)
    for name, labels in nodes.slices:
        network.add(_variable(name, labels))
    for name, labels in nodes.actions:
        network.add(_variable(name, labels))
        network.cpt(name).fillWith([1.0 / len(labels)] * len(labels))
    _fill(network, nodes, model)
    network.setProperty(PROPERTY, json.dumps(_told(model, nodes)))
    return network


def to_influence_diagram(model: FactoredMDP) -> Any:
    """A model as an influence diagram of two slices.

    Parameters
    ----------
    model
        Without intervals.

    Returns
    -------
    pyagrum.InfluenceDiagram
        Nodes x_0 and x_t for each state variable, a decision for each action variable, a utility
        for each reward factor.

    Raises
    ------
    FmdpError
        Where pyAgrum is not installed.
    InvalidParameter
        Where it is no model.
    """
    check_model(model, "to_influence_diagram")
    diagram = pyagrum().InfluenceDiagram()
    nodes = _Nodes(model)
    for name, labels in nodes.slices:
        diagram.addChanceNode(_variable(name, labels))
    for name, labels in nodes.actions:
        diagram.addDecisionNode(_variable(name, labels))
    for name in nodes.rewards:
        diagram.addUtilityNode(_variable(name, ["mean"]))
    _fill(diagram, nodes, model)
    s = model.structure
    for name, scope, means in zip(nodes.rewards, s.reward_scopes, model.rewards, strict=True):
        for v in scope:
            diagram.addArc(nodes.given(v), name)
        _set(diagram.utility(name), [*map(nodes.given, scope), name],
             means.reshape(*s.scope_sizes(scope), 1))  # fmt: skip
    diagram.setProperty(PROPERTY, json.dumps(_told(model, nodes)))
    return diagram


class _Nodes:
    """The names of the nodes of a model, and those of their values."""

    def __init__(self, model: FactoredMDP) -> None:
        s = model.structure
        # No other node may look like one of a slice; and a reward may be called as a variable is.
        others = [
            f"{name}_" if name.endswith((NOW, NEXT)) else name
            for name in (*s.action_names, *s.reward_names)
        ]
        if len({*s.state_names, *others}) < s.m + len(others):
            others[len(s.action_names) :] = [f"reward {name}_" for name in s.reward_names]
        made = identifiers([*s.state_names, *others])
        m, n = s.m, len(s.names)
        self.m = m
        self.states = made[:m]
        self.rewards = made[n:]
        self.labels = [_labels(own) for own in s.values]
        self.actions = list(zip(made[m:n], self.labels[m:], strict=True))
        self.slices = [
            (f"{name}{end}", labels)
            for end in (NOW, NEXT)
            for name, labels in zip(self.states, self.labels[:m], strict=True)
        ]

    def given(self, v: int) -> str:
        """The node of a variable in a scope."""
        return f"{self.states[v]}{NOW}" if v < self.m else self.actions[v - self.m][0]


def _labels(values: Sequence[str]) -> list[str]:
    """Names of values that pyAgrum's files hold: words, or the numerals 0, 1, ...

    Numbers that are not 0, 1, ... would be put in order by its readers, without their tables.
    """
    if all(value == str(number) for number, value in enumerate(values)):
        return list(values)
    if all(_is_number(value) for value in values):
        return identifiers([f"v_{value}" for value in values])
    if all(re.fullmatch(r"[A-Za-z0-9_]+", value) for value in values):
        return list(values)
    return identifiers(values)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _variable(name: str, labels: Sequence[str]) -> Any:
    return pyagrum().LabelizedVariable(name, name, list(labels))


def _fill(network: Any, nodes: _Nodes, model: FactoredMDP) -> None:
    """Arcs and tables of both slices."""
    s = model.structure
    for i, name in enumerate(nodes.states):
        first = np.zeros(s.state_sizes[i])
        first[model.initial_state[i]] = 1.0
        _set(network.cpt(name + NOW), [name + NOW], first)
        scope = s.transition_scopes[i]
        for v in scope:
            network.addArc(nodes.given(v), name + NEXT)
        table = model.transitions[i].reshape(*s.scope_sizes(scope), s.state_sizes[i])
        _set(network.cpt(name + NEXT), [*map(nodes.given, scope), name + NEXT], table)


def _set(tensor: Any, axes: Sequence[str], table: FloatArray) -> None:
    """Fill a tensor, whose first variable is the fastest, from a table with named axes."""
    order = [axes.index(name) for name in reversed(tensor.names)]
    tensor.fillWith(table.transpose(order).reshape(-1).tolist())


def _told(model: FactoredMDP, nodes: _Nodes) -> dict[str, Any]:
    """What the network has no place for."""
    s = model.structure
    made: dict[str, Any] = {
        "name": model.name,
        "states": [
            {"node": node, "name": name, "values": list(listed_values(values))}
            for node, name, values in zip(nodes.states, s.state_names, s.state_values, strict=True)
        ],
        "actions": [
            {"node": node, "name": name, "values": list(listed_values(values))}
            for (node, _), name, values in zip(
                nodes.actions, s.action_names, s.action_values, strict=True
            )
        ],
        "rewards": [
            {
                "node": nodes.rewards[k],
                "name": s.reward_names[k],
                "range": s.reward_ranges[k],
                "noise": [model.noise[k].kind, model.noise[k].scale],
            }
            for k in range(s.l)
        ],
    }
    if s.groups:
        made["groups"] = s.groups
    if s.constraints:
        made["constraints"] = [plain(own) for own in s.constraints]
    if s.alike is not None:
        made["alike"] = [
            [own.tolist() for own in side] for side in (s.alike.transitions, s.alike.rewards)
        ]
    if s.effects is not None:
        made["effects"] = effects.plain(s.effects)
    return made


# ---- in ------------------------------------------------------------------------------------------


def from_bayesian_network(
    network: Any,
    *,
    now: str = NOW,
    later: str = NEXT,
    actions: Sequence[str] | None = None,
    initial_state: Assignment | None = None,
    name: str = "",
) -> FactoredMDP:
    """The model of a network of two slices.

    Parameters
    ----------
    network
        A pyagrum.BayesNet or pyagrum.InfluenceDiagram: for each state variable x two nodes, x + now
        and x + later; the other nodes are the actions, and are roots; utility nodes are rewards.
    now, later
        How the names of the nodes of the two slices end.
    actions
        The nodes that are actions, in order; None: all that are no state and no reward.
    initial_state
        Where the laws of the nodes now are not sure: one value a state variable, as in
        `Structure.check_state`.
    name
        Of the model, where the network does not say.

    Returns
    -------
    FactoredMDP
        With one action of one value where the network has no action.

    Raises
    ------
    InvalidModel
        Where it is no such network; the text names the node.
    FmdpError
        Where pyAgrum is not installed.
    """
    library = pyagrum()
    if not isinstance(network, library.BayesNet | library.InfluenceDiagram):
        raise InvalidModel(
            f"a network must be a pyagrum.BayesNet or InfluenceDiagram; got {shown(network)}"
        )
    return _Reading(network, now, later, actions).model(initial_state, name)


class _Reading:
    def __init__(self, network: Any, now: str, later: str, actions: Sequence[str] | None) -> None:
        self.network = network
        self.now, self.later = now, later
        names = [network.variable(node).name() for node in sorted(network.nodes())]
        utility = getattr(network, "isUtilityNode", lambda _: False)
        self.rewards = [one for one in names if utility(network.idFromName(one))]
        rest = [one for one in names if one not in self.rewards]
        self.states = [one[: -len(now)] for one in rest if one.endswith(now) and one != now]
        for state in self.states:
            if state + later not in rest:
                _refuse(f"node {state}{now} has no node {state}{later} for its next value")
        slices = {state + end for state in self.states for end in (now, later)}
        for one in rest:
            if one.endswith(later) and one not in slices:
                _refuse(f"node {one} has no node {one[: -len(later)]}{now} for its value now")
        found = [one for one in rest if one not in slices]
        self.actions = found if actions is None else list(actions)
        for one in {*found, *self.actions} - ({*found} & {*self.actions}):
            _refuse(
                f"node {one} is no action; nodes must be x{now}, x{later}, actions or utilities"
            )
        if not self.states:
            _refuse(f"no node ends in {now!r}; nodes must be x{now} and x{later}")
        for one in [state + now for state in self.states] + self.actions:
            if network.parents(one):
                _refuse(f"node {one} has parents; states now and actions must be roots")
        self.numbers = {
            one: number
            for number, one in enumerate([*(state + now for state in self.states), *self.actions])
        }
        told = network.propertyWithDefault(PROPERTY, "")
        try:
            self.told: dict[str, Any] = json.loads(told) if told else {}
        except ValueError:
            _refuse("the property fmdp of the network is no JSON")
        if not isinstance(self.told, dict):
            _refuse("the property fmdp of the network is no JSON object")

    def _table(self, tensor: Any, node: str) -> tuple[list[int], FloatArray]:
        """The sorted scope of a node and its table [size, ..., own values]."""
        names = list(tensor.names)
        for one in names:
            if one != node and one not in self.numbers:
                _refuse(
                    f"node {one} is a parent of {node}; only states now and actions may be, next "
                    f"values being independent given these"
                )
        axes = list(reversed(names))  # the first is the fastest
        sizes = [self.network.variable(one).domainSize() for one in axes]
        array = np.asarray(tensor.toarray(), dtype=np.float64).reshape(sizes)
        scope = sorted(self.numbers[one] for one in names if one != node)
        by_number = {number: one for one, number in self.numbers.items()}
        order = [axes.index(by_number[v]) for v in scope] + [axes.index(node)]
        return scope, array.transpose(order)

    def _law(self, state: str) -> tuple[list[int], FloatArray]:
        node = state + self.later
        scope, table = self._table(self.network.cpt(node), node)
        total = table.sum(axis=-1, keepdims=True)
        if not np.isfinite(table).all() or (np.abs(total - 1.0) > ROUNDED).any():
            worst = float(total.reshape(-1)[np.abs(total - 1.0).argmax()])
            _refuse(f"a row of node {node} sums to {worst}; must be 1")
        if (np.abs(total - 1.0) > _EXACT).any():
            table = table / total
        return scope, table

    def _first(self) -> list[int]:
        """The value on which the law of each state now is."""
        made = []
        for state in self.states:
            law = np.asarray(self.network.cpt(state + self.now).toarray(), dtype=np.float64)
            if law.max() < 1.0 - ROUNDED:
                _refuse(
                    f"node {state}{self.now} has the law {law.round(4).tolist()}; must be sure, or "
                    f"initial_state be given"
                )
            made.append(int(law.argmax()))
        return made

    def model(self, initial_state: Assignment | None, name: str) -> FactoredMDP:
        """The model of all of it."""
        transitions = [self._law(state) for state in self.states]
        rewards = [self._table(self.network.utility(one), one) for one in self.rewards]
        means = [table[..., 0] for _, table in rewards]
        if any(table.shape[-1] != 1 for _, table in rewards):
            _refuse("a utility node has more than one value; must have one")
        states = self._named("states", self.states, self.now)
        actions = self._named("actions", self.actions, "")
        if not actions:
            actions = [("action", ["step"])]
        told = self._noted("rewards", self.rewards)
        start = self._first() if initial_state is None else initial_state
        try:
            alike = self.told.get("alike")
            model = FactoredMDP.from_factors(
                [len(values) for _, values in states],
                [len(values) for _, values in actions],
                transitions,
                [(scope, own) for (scope, _), own in zip(rewards, means, strict=True)],
                reward_ranges=[
                    range_of(own) if note is None else tuple(note["range"])
                    for own, note in zip(means, told, strict=True)
                ],
                state_names=[one for one, _ in states],
                action_names=[one for one, _ in actions],
                reward_names=[
                    one if note is None else note["name"]
                    for one, note in zip(self.rewards, told, strict=True)
                ],
                state_values=[values for _, values in states],
                action_values=[values for _, values in actions],
                groups=self.told.get("groups", ()),
                noise=[Noise() if note is None else Noise(*note["noise"]) for note in told],
                initial_state=start,
                name=self.told.get("name", name),
                constraints=[from_plain(own) for own in self.told.get("constraints", ())],
                alike=None if alike is None else _alike(alike, len(self.rewards)),
            )
            told_effects = self.told.get("effects")
            if told_effects is None or len(told_effects["rewards"]) != len(self.rewards):
                return model
            return with_effects(model, told_effects)
        except (TypeError, KeyError, AttributeError, IndexError) as error:
            _refuse(f"the property fmdp does not fit the network ({type(error).__name__}: {error})")

    def _noted(self, kind: str, nodes: Sequence[str]) -> list[dict[str, Any] | None]:
        """What the property says about nodes; None where it says nothing."""
        given = self.told.get(kind, [])
        if not isinstance(given, list) or not all(isinstance(own, dict) for own in given):
            _refuse(f"the property fmdp has {kind} {shown(given)}; must be a list of objects")
        by_node = {own.get("node"): own for own in given}
        return [by_node.get(node) for node in nodes]

    def _named(
        self, kind: str, nodes: Sequence[str], end: str
    ) -> list[tuple[str, Sequence[Value]]]:
        """Return the name and the values of each variable: as noted, else those of the node."""
        made: list[tuple[str, Sequence[Value]]] = []
        for node, note in zip(nodes, self._noted(kind, nodes), strict=True):
            labels = [str(own) for own in self.network.variable(node + end).labels()]
            if note is None:
                made.append((node, labels))
                continue
            values = note.get("values")
            if not isinstance(values, list) or _labels([str(own) for own in values]) != labels:
                _refuse(
                    f"node {node}{end} has the values {labels}; the property fmdp says {values}"
                )
            made.append((str(note.get("name", node)), values))
        return made


def _alike(given: Any, n_rewards: int) -> Alike | None:
    transitions, rewards = given
    if len(rewards) != n_rewards:  # a Bayesian network has no rewards
        rewards = ()
    return Alike(tuple(map(np.array, transitions)), tuple(map(np.array, rewards)))


def one_valued(model: FactoredMDP) -> list[str]:
    """The variables of one value, which pyAgrum's files cannot hold."""
    s = model.structure
    return [name for name, size in zip(s.names, s.sizes, strict=True) if size == 1]


def _refuse(what: str) -> NoReturn:
    raise InvalidModel(what)
