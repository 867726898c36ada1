"""Drawing of a problem as a network: nodes, arrows, their places, and what an action acts on.

A node is a declared group of state variables, or a single variable; an arrow a -> b says that a
variable of a is in the transition scope of a variable of b. Nodes lie where Euclidean distances are
closest to the distances d_ij in the graph: the stress

    sum_{i<j} (|x_i - x_j| - d_ij)^2 / d_ij^2

is lowered by majorisation (Gansner, Koren & North 2004), which never raises it, from three fixed
starts; the best is kept, so a drawing is a function of the structure. Cost: n^2 per iteration.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, shortest_path

from fmdp.model import FactoredMDP, Structure

Points = npt.NDArray[np.float64]

ITERATIONS = 300
"""Most iterations per start; fewer if the stress stops falling."""
MOST_BY_STRESS = 300
"""Components with more nodes are put on a grid, because no layout of them is readable."""
IDLE = ("none", "nothing", "no-op", "noop", "leave", "stay", "wait", "idle", "skip", "rest")
"""Names of action values that do nothing."""
NO_SHIFT = 1e-9
"""Largest total variation that counts as rounding."""
STANDS_OUT = 0.9
STANDS_AMONG_ALL = 0.5
"""If every value shifts every factor, a value acts on a factor if its shift is at least the first
share of the factor's largest shift and the second share of the largest shift of all factors."""


@dataclass(frozen=True)
class Node:
    """A node and its place."""

    label: str
    variables: tuple[int, ...]
    x: float
    y: float
    """Arrows are about one unit long; y points down, as on a screen."""


@dataclass(frozen=True)
class Arrow:
    """An arrow between two nodes, or in both directions."""

    source: int
    target: int
    both: bool


@dataclass(frozen=True)
class Network:
    """A drawing of a structure."""

    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]


def network(structure: Structure) -> Network:
    """Return the drawing of a structure."""
    grouped = {variable for group in structure.groups for variable in group}
    members = sorted([*structure.groups, *((i,) for i in range(structure.m) if i not in grouped)])
    node_of = {variable: node for node, group in enumerate(members) for variable in group}
    edges = {
        (node_of[parent], node_of[i])
        for i in range(structure.m)
        for parent in structure.state_scope(i)
        if node_of[parent] != node_of[i]
    }
    arrows = tuple(
        Arrow(a, b, both=(b, a) in edges)
        for a, b in sorted(edges)
        if not ((b, a) in edges and b < a)
    )
    places = layout(len(members), [(arrow.source, arrow.target) for arrow in arrows])
    labels = short_labels(structure.state_names, members)
    nodes = tuple(
        Node(label, group, round(float(x), 4), round(float(y), 4))
        for label, group, (x, y) in zip(labels, members, places, strict=True)
    )
    return Network(nodes, arrows)


def short_labels(names: Sequence[str], members: Sequence[tuple[int, ...]]) -> list[str]:
    """Return common endings (machine_0, machine_1: 0, 1; status_0 + load_0: 0) or full names.

    Full names if only some names have an ending: beside "weather", "1" would not say what it is.
    """
    if len({"_" in names[i] for group in members for i in group}) > 1:
        return ["+".join(names[i] for i in group) for group in members]
    ends = [{names[i].rpartition("_")[2] for i in group} for group in members]
    flat = [next(iter(end)) for end in ends]
    if all(len(end) == 1 for end in ends) and len(set(flat)) == len(flat) and all(flat):
        return flat
    return ["+".join(names[i] for i in group) for group in members]


def touched_nodes(model: FactoredMDP, drawn: Network) -> list[list[list[int]]]:
    """Return the nodes that each value of each action variable acts on.

    Value v acts on factor i if it shifts the rows of i from the usual distribution:

        shift_i(v) = mean over x of the total variation of P_i(. | x, v) and usual_i(. | x) > 0.

    Usual is the distribution under the value that does nothing: the one whose name says so; the
    median over all values for an action that chooses a node (its values stand out at different
    nodes); else the first value. If an action that chooses shifts every factor with every value,
    a value acts on the factors where it stands out: restarting machine i moves P_i from mostly down
    to working, whatever the dynamics.
    """
    structure = model.structure
    node_of = {v: number for number, node in enumerate(drawn.nodes) for v in node.variables}
    touched: list[list[list[int]]] = []
    for action, values in enumerate(structure.action_values):
        variable = structure.m + action
        factors = [i for i in range(structure.m) if variable in structure.transition_scopes[i]]
        acts = _acts(model, variable, values, [node_of[i] for i in factors], factors)
        touched.append(
            [
                sorted({node_of[i] for i, does in zip(factors, column, strict=True) if does})
                for column in acts.T
            ]
        )
    return touched


def _acts(
    model: FactoredMDP,
    variable: int,
    values: Sequence[str],
    nodes: Sequence[int],
    factors: Sequence[int],
) -> npt.NDArray[np.bool_]:
    """Return [factors, values]: whether a value of the action variable acts on a factor."""
    if not factors:
        return np.zeros((0, len(values)), dtype=np.bool_)
    odd = np.array([_shifts(model, i, variable, None) for i in factors])
    stands_out = odd >= np.maximum(STANDS_OUT * odd.max(axis=1, keepdims=True), NO_SHIFT)
    chooses = any(
        nodes[a] != nodes[b] and not (stands_out[a] & stands_out[b]).any()
        for a, b in itertools.combinations(np.flatnonzero(odd.max(axis=1) > NO_SHIFT).tolist(), 2)
    )
    named = [value for value, name in enumerate(values) if name.lower() in IDLE]
    idle = named[0] if named else None if chooses else 0
    shifts = np.array([_shifts(model, i, variable, idle) for i in factors])
    acts = shifts > NO_SHIFT
    others = [value for value in range(len(values)) if value != idle]
    if chooses and acts[acts.any(axis=1)][:, others].all():
        acts = stands_out & (odd >= STANDS_AMONG_ALL * odd.max())
        if idle is not None:
            acts[:, idle] = False
    return acts


def _shifts(model: FactoredMDP, i: int, variable: int, idle: int | None) -> Points:
    """Return [values]: shifts of the rows of factor i from those under `idle`, or the median."""
    structure = model.structure
    scope = structure.transition_scopes[i]
    axis = scope.index(variable)
    table = model.transitions[i].reshape(*structure.scope_sizes(scope), -1)
    if idle is None:
        usual = np.median(table, axis=axis, keepdims=True)
    else:
        usual = np.take(table, [idle], axis=axis)
    far = np.abs(table - usual).sum(axis=-1) / 2  # [scope]
    others = tuple(k for k in range(len(scope)) if k != axis)
    shifts: Points = far.mean(axis=others)
    return shifts


def layout(n: int, edges: Sequence[tuple[int, int]]) -> Points:
    """Return places [n, 2] of the nodes of a graph, its components side by side."""
    sources, targets = np.array(edges, dtype=np.intp).reshape(-1, 2).T
    graph = csr_array((np.ones(len(sources)), (sources, targets)), shape=(n, n))
    _, component_of = connected_components(graph, directed=False)
    places = np.zeros((n, 2))
    boxes = []
    for number in range(component_of.max(initial=-1) + 1):
        component = np.flatnonzero(component_of == number)
        corner_based = _place(graph[component][:, component])
        corner_based -= corner_based.min(axis=0)
        places[component] = corner_based
        boxes.append((component, corner_based.max(axis=0)))
    _pack(places, boxes)
    centre: Points = (places.min(axis=0) + places.max(axis=0)) / 2
    return np.subtract(places, centre)


def _pack(places: Points, boxes: Sequence[tuple[npt.NDArray[np.intp], Points]]) -> None:
    """Move the components to shelves, left to right and top to bottom, in about a square."""
    gap = 1.0
    area = sum((size[0] + gap) * (size[1] + gap) for _, size in boxes)
    width = max([math.sqrt(3 * area), *(size[0] + gap for _, size in boxes)])
    x = y = shelf = 0.0
    for component, size in boxes:
        if x > 0 and x + size[0] + gap > width + 1e-9:
            x, y, shelf = 0.0, y + shelf, 0.0
        places[component] += (x, y)
        x += size[0] + gap
        shelf = max(shelf, size[1] + gap)


def _place(graph: csr_array) -> Points:
    """Return places of a connected graph: the start with the lowest stress, turned upright."""
    n = graph.shape[0]
    if n > MOST_BY_STRESS:
        across = math.ceil(math.sqrt(n))
        return np.array([(k % across, k // across) for k in range(n)], dtype=np.float64)
    if n == 1:
        return np.zeros((1, 2))
    distances = shortest_path(graph, directed=False, unweighted=True)
    starts = _starts(distances == 1, distances)
    solutions = (_majorise(start, distances) for start in starts)
    return _upright(min(solutions, key=lambda solution: solution[0])[1])


def _starts(linked: npt.NDArray[np.bool_], distances: Points) -> list[Points]:
    """Return circles in depth-first order and by number, and distances to two far nodes."""
    n = len(linked)
    # From the most connected node, so that the branches of a tree are adjacent.
    walk: list[int] = []
    waiting = [int(linked.sum(axis=1).argmax())]
    while waiting:
        node = waiting.pop()
        if node not in walk:
            walk.append(node)
            waiting += [k for k in np.flatnonzero(linked[node])[::-1].tolist() if k not in walk]
    ring, plain_ring = _circle(walk), _circle(range(n))
    one = int(distances[0].argmax())
    two = int(
        np.minimum(distances[one], distances.max() - np.abs(distances[0] - distances[one])).argmax()
    )
    # A little of the ring separates nodes at equal distances.
    plane = np.stack([distances[one], distances[two]], axis=1) + 0.05 * ring
    return [ring, plain_ring, plane]


def _circle(order: Sequence[int]) -> Points:
    n = len(order)
    angles = np.empty(n)
    angles[order] = 2 * np.pi * np.arange(n) / n
    circle: Points = np.stack([np.sin(angles), -np.cos(angles)], axis=1) * n / (2 * np.pi)
    return circle


def _majorise(start: Points, distances: Points) -> tuple[float, Points]:
    """Return stress and places after at most ITERATIONS Guttman transforms, weights 1 / d^2."""
    n = len(start)
    with np.errstate(divide="ignore"):
        weights = np.where(distances > 0, 1 / distances**2, 0.0)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    # One node is fixed, because translations do not change the stress.
    inverse = np.linalg.inv(laplacian[1:, 1:])
    places = start - start[0]
    stress = math.inf
    for _ in range(ITERATIONS):
        apart = _apart(places)
        with np.errstate(divide="ignore", invalid="ignore"):
            pull = np.where(apart > 1e-9, weights * distances / apart, 0.0)
        target = np.diag(pull.sum(axis=1)) - pull
        places = np.vstack([np.zeros((1, 2)), inverse @ (target @ places)[1:]])
        before = stress
        stress = float((weights * (_apart(places) - distances) ** 2).sum() / 2)
        if before - stress < 1e-9 * n:
            break
    # Rounded, so that the first of several starts with the same drawing is kept.
    return round(stress, 6), places


def _apart(places: Points) -> Points:
    apart: Points = np.linalg.norm(places[:, None] - places[None], axis=2)
    return apart


def _upright(places: Points) -> Points:
    """Turn the long side across, or the first node off the centre to the top if there is none;
    mirror the drawing so that nodes go clockwise, or from left to right."""
    places = places - places.mean(axis=0)
    spread, axes = np.linalg.eigh(places.T @ places)
    off_centre = int((np.linalg.norm(places, axis=1) > 0.3).argmax())
    if spread[0] > 0.8 * spread[1]:
        angle = math.atan2(places[off_centre, 1], places[off_centre, 0])
        # y points down, so the top is at angle -90 degrees.
        places = _turned(places, -math.pi / 2 - angle)
        after = places[off_centre + 1 :, 0]
        if after.size and after[int((np.abs(after) > 0.1).argmax())] < 0:
            places = places * (-1, 1)
        return places
    places = places @ axes[:, ::-1]
    order = np.arange(len(places)) - (len(places) - 1) / 2
    signs = [1.0 if order @ places[:, axis] >= 0 else -1.0 for axis in range(2)]
    flipped: Points = places * signs
    return flipped


def _turned(places: Points, angle: float) -> Points:
    c, s = math.cos(angle), math.sin(angle)
    turned: Points = places @ np.array([[c, s], [-s, c]])
    return turned
