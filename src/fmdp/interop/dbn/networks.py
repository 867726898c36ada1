"""Conversion between factored MDPs and two-slice networks of pyAgrum.

    x_0 (now) and x_t (next) for each state variable x, and one node for each action variable:
    P(x_t | parents) = P_i(. | x[Z_i]),   parents among the nodes now and the actions

In a Bayesian network the actions are uniform roots and there are no rewards; in an influence
diagram actions are decision nodes and reward factors are utility nodes. x_0 has probability 1 at
the initial state. Names become identifiers. Properties of the model that a network cannot express
(original names, ranges and noise of rewards, constraints, alike rows, groups, effects) are stored
in the property `fmdp`.

Any network of that form can be read. Next values must be independent given the present: an arc
between nodes of the next slice is refused by name. Rows that miss 1 by rounding in pyAgrum's
writers (ROUNDED) are divided by their sum.
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
from fmdp.model.expansion import expand
from fmdp.model.factored import FactoredMDP, check_model
from fmdp.model.naming import Assignment, Value, listed_values
from fmdp.model.noise import Noise
from fmdp.model.spaces import FloatArray, shown
from fmdp.model.tables import range_of

NOW, NEXT = "_0", "_t"
PROPERTY = "fmdp"
RESERVED = frozenset(
    ("network", "variable", "probability", "property", "type", "discrete", "default", "table")
)
"""Keywords of BIF, which its reader does not accept as names."""
ROUNDED = 1e-5
"""Largest deviation of a row's sum from 1: writers of networks print six digits."""
_EXACT = 1e-9
"""Rows whose sum deviates from 1 by no more than this are not rescaled."""


def pyagrum() -> Any:
    """Return the library, or raise an error that names the extra to install."""
    try:
        import pyagrum as library
    except ImportError:
        raise FmdpError(
            "this needs pyAgrum, which is not installed; pip install 'fmdp[dbn]'"
        ) from None
    return library


# ---- writing -------------------------------------------------------------------------------------


def to_bayesian_network(model: FactoredMDP) -> Any:
    """Return the transitions of a model as a two-slice network.

    Parameters
    ----------
    model
        A model without intervals; its rewards are left out.

    Returns
    -------
    pyagrum.BayesNet
        Nodes x_0 and x_t for each state variable, and a uniform root for each action variable.

    Raises
    ------
    FmdpError
        If pyAgrum is not installed.
    InvalidParameter
        If it is not a model.
    """
    check_model(model, "to_bayesian_network")
    model = expand(model)
    network = pyagrum().BayesNet(model.name or "model")
    nodes = _Nodes(model)
    for name, labels in nodes.slices:
        network.add(_variable(name, labels))
    for name, labels in nodes.actions:
        network.add(_variable(name, labels))
        network.cpt(name).fillWith([1.0 / len(labels)] * len(labels))
    _fill(network, nodes, model)
    return network


def to_influence_diagram(model: FactoredMDP) -> Any:
    """Return a model as a two-slice influence diagram.

    Parameters
    ----------
    model
        A model without intervals.

    Returns
    -------
    pyagrum.InfluenceDiagram
        Nodes x_0 and x_t for each state variable, a decision for each action variable, a utility
        for each reward factor.

    Raises
    ------
    FmdpError, InvalidParameter
        As in `to_bayesian_network`.
    """
    check_model(model, "to_influence_diagram")
    model = expand(model)
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
        parents = [nodes.given(v) for v in scope]
        for parent in parents:
            diagram.addArc(parent, name)
        _set(diagram.utility(name), [*parents, name], means.reshape(*s.scope_sizes(scope), 1))
    return diagram


class _Nodes:
    """Names of the nodes of a model and of their values."""

    def __init__(self, model: FactoredMDP) -> None:
        s = model.structure
        # Other nodes must not look like those of a slice. A reward may have a variable's name.
        others = [
            f"{name}_" if name.endswith((NOW, NEXT)) else name
            for name in (*s.action_names, *s.reward_names)
        ]
        if len({*s.state_names, *others}) < s.m + len(others):
            others[len(s.action_names) :] = [f"reward {name}_" for name in s.reward_names]
        nodes = identifiers([*s.state_names, *others], RESERVED)
        m, n = s.m, len(s.names)
        self.m = m
        self.states = nodes[:m]
        self.rewards = nodes[n:]
        self.labels = [_labels(values) for values in s.values]
        self.actions = list(zip(nodes[m:n], self.labels[m:], strict=True))
        self.slices = [
            (f"{name}{end}", labels)
            for end in (NOW, NEXT)
            for name, labels in zip(self.states, self.labels[:m], strict=True)
        ]

    def given(self, v: int) -> str:
        """Return the node of a variable in a scope."""
        return f"{self.states[v]}{NOW}" if v < self.m else self.actions[v - self.m][0]


def _labels(values: Sequence[str]) -> list[str]:
    """Return names of values that pyAgrum's files can hold: words, or the numerals 0, 1, ...

    pyAgrum's readers would sort other numbers, but not the tables.
    """
    if all(value == str(number) for number, value in enumerate(values)):
        return list(values)
    if all(_is_number(value) for value in values):
        return identifiers([f"v_{value}" for value in values])
    if all(re.fullmatch(r"[A-Za-z0-9_]+", value) for value in values):
        return [f"{value}_" if value in RESERVED else value for value in values]
    return identifiers(values, RESERVED)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _variable(name: str, labels: Sequence[str]) -> Any:
    return pyagrum().LabelizedVariable(name, name, list(labels))


def _fill(network: Any, nodes: _Nodes, model: FactoredMDP) -> None:
    """Add the arcs and tables of both slices, and the property."""
    s = model.structure
    for i, name in enumerate(nodes.states):
        first = np.zeros(s.state_sizes[i])
        first[model.initial_state[i]] = 1.0
        _set(network.cpt(name + NOW), [name + NOW], first)
        scope = s.transition_scopes[i]
        parents = [nodes.given(v) for v in scope]
        for parent in parents:
            network.addArc(parent, name + NEXT)
        table = model.transitions[i].reshape(*s.scope_sizes(scope), s.state_sizes[i])
        _set(network.cpt(name + NEXT), [*parents, name + NEXT], table)
    network.setProperty(PROPERTY, json.dumps(_property(model, nodes)))


def _set(tensor: Any, axes: Sequence[str], table: FloatArray) -> None:
    """Fill a tensor, whose first variable varies fastest, from a table with named axes."""
    order = [axes.index(name) for name in reversed(tensor.names)]
    tensor.fillWith(table.transpose(order).reshape(-1).tolist())


def _property(model: FactoredMDP, nodes: _Nodes) -> dict[str, Any]:
    """Return what the network itself cannot express."""
    s = model.structure
    actions = [node for node, _ in nodes.actions]
    content: dict[str, Any] = {
        "name": model.name,
        "states": [
            {"node": node, "name": name, "values": list(listed_values(values))}
            for node, name, values in zip(nodes.states, s.state_names, s.state_values, strict=True)
        ],
        "actions": [
            {"node": node, "name": name, "values": list(listed_values(values))}
            for node, name, values in zip(actions, s.action_names, s.action_values, strict=True)
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
        content["groups"] = s.groups
    if s.constraints:
        content["constraints"] = [plain(constraint) for constraint in s.constraints]
    if s.alike is not None:
        content["alike"] = [
            [classes.tolist() for classes in side]
            for side in (s.alike.transitions, s.alike.rewards)
        ]
    if s.effects is not None:
        content["effects"] = effects.plain(s.effects)
    return content


# ---- reading -------------------------------------------------------------------------------------


def from_bayesian_network(
    network: Any,
    *,
    now: str = NOW,
    later: str = NEXT,
    actions: Sequence[str] | None = None,
    initial_state: Assignment | None = None,
    name: str = "",
) -> FactoredMDP:
    """Return the model of a two-slice network.

    Parameters
    ----------
    network
        A pyagrum.BayesNet or pyagrum.InfluenceDiagram with two nodes, x + now and x + later, for
        each state variable x. The other nodes are actions, which are roots; utility nodes are
        rewards.
    now, later
        Endings of the names of the nodes of the two slices.
    actions
        The nodes that are actions, in order; None: all that are neither states nor rewards.
    initial_state
        One value per state variable, as in `Structure.check_state`; needed unless the nodes of the
        present have one value with probability 1.
    name
        Name of the model if the network has none.

    Returns
    -------
    FactoredMDP
        If the network has no action, the model has one action with one value.

    Raises
    ------
    InvalidModel
        If it is not such a network; the message names the node.
    FmdpError
        If pyAgrum is not installed.
    """
    library = pyagrum()
    if not isinstance(network, library.BayesNet | library.InfluenceDiagram):
        raise InvalidModel(
            f"a network must be a pyagrum.BayesNet or InfluenceDiagram; got {shown(network)}"
        )
    return _Reader(network, now, later, actions).model(initial_state, name)


class _Reader:
    """Reads a network; the constructor checks its nodes and arcs."""

    def __init__(self, network: Any, now: str, later: str, actions: Sequence[str] | None) -> None:
        self.network = network
        self.now, self.later = now, later
        names = [network.variable(node).name() for node in sorted(network.nodes())]
        is_utility = getattr(network, "isUtilityNode", lambda _: False)
        self.rewards = [node for node in names if is_utility(network.idFromName(node))]
        rest = [node for node in names if node not in self.rewards]
        self.states = [node[: -len(now)] for node in rest if node.endswith(now) and node != now]
        for state in self.states:
            if state + later not in rest:
                _refuse(f"node {state}{now} has no node {state}{later} for its next value")
        slices = {state + end for state in self.states for end in (now, later)}
        for node in rest:
            if node.endswith(later) and node not in slices:
                _refuse(f"node {node} has no node {node[: -len(later)]}{now} for its value now")
        others = [node for node in rest if node not in slices]
        self.actions = others if actions is None else list(actions)
        for node in {*others} ^ {*self.actions}:
            _refuse(
                f"node {node} is no action; nodes must be x{now}, x{later}, actions or utilities"
            )
        if not self.states:
            _refuse(f"no node ends in {now!r}; nodes must be x{now} and x{later}")
        self.parents = [*(state + now for state in self.states), *self.actions]
        self.numbers = {node: number for number, node in enumerate(self.parents)}
        for node in self.parents:
            if network.parents(node):
                _refuse(f"node {node} has parents; states now and actions must be roots")
        self.property = self._read_property()

    def _read_property(self) -> dict[str, Any]:
        text = self.network.propertyWithDefault(PROPERTY, "")
        try:
            content = json.loads(text) if text else {}
        except (ValueError, RecursionError):
            _refuse("the property fmdp of the network is no JSON")
        if not isinstance(content, dict):
            _refuse("the property fmdp of the network is no JSON object")
        return content

    def _table(self, tensor: Any, node: str) -> tuple[list[int], FloatArray]:
        """Return the sorted scope of a node and its table [size, ..., values of the node]."""
        names = list(tensor.names)
        for name in names:
            if name != node and name not in self.numbers:
                _refuse(
                    f"node {name} is a parent of {node}; only states now and actions may be, next "
                    f"values being independent given these"
                )
        axes = list(reversed(names))  # the first varies fastest
        sizes = [self.network.variable(name).domainSize() for name in axes]
        array = np.asarray(tensor.toarray(), dtype=np.float64).reshape(sizes)
        scope = sorted(self.numbers[name] for name in names if name != node)
        order = [axes.index(self.parents[v]) for v in scope] + [axes.index(node)]
        return scope, array.transpose(order)

    def _transition(self, state: str) -> tuple[list[int], FloatArray]:
        node = state + self.later
        scope, table = self._table(self.network.cpt(node), node)
        total = table.sum(axis=-1, keepdims=True)
        if not np.isfinite(table).all() or (np.abs(total - 1.0) > ROUNDED).any():
            worst = float(total.reshape(-1)[np.abs(total - 1.0).argmax()])
            _refuse(f"a row of node {node} sums to {worst}; must be 1")
        if (np.abs(total - 1.0) > _EXACT).any():
            table = table / total
        return scope, table

    def _reward(self, node: str) -> tuple[list[int], FloatArray]:
        scope, table = self._table(self.network.utility(node), node)
        if table.shape[-1] != 1:
            _refuse("a utility node has more than one value; must have one")
        return scope, table[..., 0]

    def _initial_state(self) -> list[int]:
        """Return the value that has probability 1 in each node of the present."""
        state = []
        for name in self.states:
            law = np.asarray(self.network.cpt(name + self.now).toarray(), dtype=np.float64)
            if law.max() < 1.0 - ROUNDED:
                _refuse(
                    f"node {name}{self.now} has the law {law.round(4).tolist()}; must be sure, or "
                    f"initial_state be given"
                )
            state.append(int(law.argmax()))
        return state

    def model(self, initial_state: Assignment | None, name: str) -> FactoredMDP:
        transitions = [self._transition(state) for state in self.states]
        rewards = [self._reward(node) for node in self.rewards]
        start = self._initial_state() if initial_state is None else initial_state
        content = self.property
        try:
            states = self._named("states", self.states, self.now)
            actions = self._named("actions", self.actions, "") or [("action", ["step"])]
            notes = self._notes("rewards", self.rewards)
            model = FactoredMDP.from_factors(
                [len(values) for _, values in states],
                [len(values) for _, values in actions],
                transitions,
                rewards,
                reward_ranges=[
                    tuple(note["range"]) if note else range_of(means)
                    for (_, means), note in zip(rewards, notes, strict=True)
                ],
                state_names=[variable for variable, _ in states],
                action_names=[variable for variable, _ in actions],
                reward_names=[
                    note["name"] if note else node
                    for node, note in zip(self.rewards, notes, strict=True)
                ],
                state_values=[values for _, values in states],
                action_values=[values for _, values in actions],
                groups=content.get("groups", ()),
                noise=[Noise(*note["noise"]) if note else Noise() for note in notes],
                initial_state=start,
                name=content.get("name", name),
                constraints=[from_plain(entry) for entry in content.get("constraints", ())],
                alike=_alike(content.get("alike"), len(rewards)),
            )
            noted = content.get("effects")
            if noted is None or len(noted["rewards"]) != len(rewards):
                return model
            return with_effects(model, noted)
        except FmdpError:
            raise
        except (TypeError, KeyError, AttributeError, IndexError, ValueError) as error:
            _refuse(f"the property fmdp does not fit the network ({type(error).__name__}: {error})")

    def _notes(self, kind: str, nodes: Sequence[str]) -> list[dict[str, Any] | None]:
        """Return the entry of the property for each node, or None."""
        entries = self.property.get(kind, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            _refuse(f"the property fmdp has {kind} {shown(entries)}; must be a list of objects")
        by_node = {entry.get("node"): entry for entry in entries}
        return [by_node.get(node) for node in nodes]

    def _named(
        self, kind: str, nodes: Sequence[str], end: str
    ) -> list[tuple[str, Sequence[Value]]]:
        """Return the name and the values of each variable: as noted, else those of the node."""
        variables: list[tuple[str, Sequence[Value]]] = []
        for node, note in zip(nodes, self._notes(kind, nodes), strict=True):
            labels = [str(label) for label in self.network.variable(node + end).labels()]
            if note is None:
                variables.append((node, labels))
                continue
            values = note.get("values")
            if not isinstance(values, list) or _labels([str(value) for value in values]) != labels:
                _refuse(
                    f"node {node}{end} has the values {labels}; the property fmdp says {values}"
                )
            variables.append((str(note.get("name", node)), values))
        return variables


def _alike(noted: Any, n_rewards: int) -> Alike | None:
    if noted is None:
        return None
    transitions, rewards = noted
    if len(rewards) != n_rewards:  # a Bayesian network has no rewards
        rewards = ()
    return Alike(tuple(map(np.array, transitions)), tuple(map(np.array, rewards)))


def one_valued(model: FactoredMDP) -> list[str]:
    """Return the variables with one value, which pyAgrum's files cannot hold."""
    s = model.structure
    # Derived variables come last among the names; the files hold the expanded model.
    return [name for name, size in zip(s.names, s.sizes, strict=False) if size == 1]


def has_other_names(model: FactoredMDP) -> bool:
    """Return whether names of variables, rewards or values are not those of the nodes."""
    s, nodes = model.structure, _Nodes(model)
    names = [*nodes.states, *(name for name, _ in nodes.actions), *nodes.rewards]
    return names != [*s.names, *s.reward_names] or nodes.labels != [*map(list, s.values)]


def _refuse(what: str) -> NoReturn:
    raise InvalidModel(what)
