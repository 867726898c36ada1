"""A problem drawn as a network: nodes, arrows between them, where they lie, what an action touches.

A node is a declared group of state variables, or a variable by itself; an arrow a -> b says that a
variable of a is in the transition scope of a variable of b. Nodes lie where Euclidean distances
come nearest to the distances d_ij in the graph: the stress

    sum_{i<j} (|x_i - x_j| - d_ij)^2 / d_ij^2

is lowered by majorisation (Gansner, Koren & North 2004), which never raises it, from a few fixed
starts; the best is kept, so a drawing is a function of the structure. Cost: n^2 an iteration.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fmdp.model import FactoredMDP, Structure

Points = npt.NDArray[np.float64]

ITERATIONS = 300
MOST_BY_STRESS = 300
"""Components with more nodes are put on a grid: a readable picture of them does not exist."""
IDLE = ("none", "nothing", "no-op", "noop", "leave", "stay", "wait", "idle", "skip", "rest")
"""A value of an action with such a name does nothing."""
NO_SHIFT = 1e-9
STANDS_OUT = 0.9
STANDS_AMONG_ALL = 0.5
"""Where every value shifts every factor, one stands out if it shifts a factor's rows by at least
the first share of the factor's largest shift and the second share of the largest of all."""


@dataclass(frozen=True)
class Node:
    label: str
    variables: tuple[int, ...]
    x: float
    y: float
    """Arrows are about one unit long; y points down, as on a screen."""


@dataclass(frozen=True)
class Arrow:
    source: int
    target: int
    both: bool


@dataclass(frozen=True)
class Network:
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]


def network(structure: Structure) -> Network:
    """The drawing of a structure."""
    grouped = {variable for group in structure.groups for variable in group}
    members = sorted([*structure.groups, *((i,) for i in range(structure.m) if i not in grouped)])
    node_of = {variable: node for node, own in enumerate(members) for variable in own}
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
        Node(label, own, round(float(x), 4), round(float(y), 4))
        for label, own, (x, y) in zip(labels, members, places, strict=True)
    )
    return Network(nodes, arrows)


def short_labels(names: Sequence[str], members: Sequence[tuple[int, ...]]) -> list[str]:
    """machine_0, machine_1 -> 0, 1; the group (status_0, load_0) -> 0; else the whole names."""
    ends = [{names[i].rpartition("_")[2] for i in own} for own in members]
    flat = [next(iter(end)) for end in ends]
    if all(len(end) == 1 for end in ends) and len(set(flat)) == len(flat) and all(flat):
        return flat
    return ["+".join(names[i] for i in own) for own in members]


def touched_nodes(model: FactoredMDP, drawn: Network) -> list[list[list[int]]]:
    """For each action variable and each of its values, the nodes that this value acts on.

    Value v acts on factor i if it shifts the rows of i from what is usual: if

        shift_i(v) = mean over x of the total variation of P_i(. | x, v) and usual_i(. | x)

    is not 0.

    A factor without the action variable in its scope, or whose rows do not depend on it, is never
    acted on. Usual is the law under the value that does nothing: the one whose name says so; of an
    action that chooses a node (its values stand out at different nodes), the median over all
    values; else the first value (back, left: nothing to show). Where an action that chooses shifts
    everything with every value, because every row is a number of its own, a value acts where it
    stands out: restarting machine i takes P_i from mostly down to working, whatever the dynamics.
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
    """[factors, values]: does this value of the action variable act on this factor?"""
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
    """[values]: how far each takes the rows of factor i from those under `idle`, or the median."""
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
    """Places [n, 2] of the nodes of a graph; its components stand side by side."""
    neighbours: list[list[int]] = [[] for _ in range(n)]
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    places = np.zeros((n, 2))
    boxes = []
    for component in _components(neighbours):
        own = _place(component, neighbours)
        own -= own.min(axis=0)
        places[component] = own
        boxes.append((component, own.max(axis=0)))
    _pack(places, boxes)
    centre: Points = (places.min(axis=0) + places.max(axis=0)) / 2
    return np.subtract(places, centre)


def _components(neighbours: Sequence[Sequence[int]]) -> list[list[int]]:
    seen: set[int] = set()
    found = []
    for root in range(len(neighbours)):
        if root in seen:
            continue
        seen.add(root)
        component, waiting = [], [root]
        while waiting:
            node = waiting.pop()
            component.append(node)
            for other in neighbours[node]:
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        found.append(sorted(component))
    return found


def _pack(places: Points, boxes: Sequence[tuple[list[int], Points]]) -> None:
    """Shelves from left to right, top to bottom, about as wide as they are high."""
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


def _place(component: list[int], neighbours: Sequence[Sequence[int]]) -> Points:
    n = len(component)
    if n > MOST_BY_STRESS:
        across = math.ceil(math.sqrt(n))
        return np.array([(k % across, k // across) for k in range(n)], dtype=np.float64)
    if n == 1:
        return np.zeros((1, 2))
    local = {node: k for k, node in enumerate(component)}
    links = [[local[other] for other in neighbours[node]] for node in component]
    distances = _distances(links)
    found = min((_majorise(start, distances) for start in _starts(links, distances)), key=_first)
    return _upright(found[1])


def _first(pair: tuple[float, Points]) -> float:
    return pair[0]


def _distances(links: Sequence[Sequence[int]]) -> Points:
    n = len(links)
    distances = np.full((n, n), float(n))
    for root in range(n):
        distances[root, root] = 0
        front, reached, step = [root], {root}, 0
        while front:
            step += 1
            front = sorted({b for a in front for b in links[a]} - reached)
            reached.update(front)
            distances[root, front] = step
    return distances


def _starts(links: Sequence[Sequence[int]], distances: Points) -> list[Points]:
    """A circle in the order of a depth-first walk, and the plane of distances to two far nodes."""
    n = len(links)
    walk: list[int] = []
    seen: set[int] = set()
    # From the most connected node, so that the branches of a tree lie side by side.
    waiting = [max(range(n), key=lambda k: len(set(links[k])))]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            walk.append(node)
            waiting += sorted(set(links[node]) - seen, reverse=True)
    angles = np.empty(n)
    angles[walk] = 2 * np.pi * np.arange(n) / n
    ring = np.stack([np.sin(angles), -np.cos(angles)], axis=1) * n / (2 * np.pi)
    by_index = 2 * np.pi * np.arange(n) / n
    plain_ring = np.stack([np.sin(by_index), -np.cos(by_index)], axis=1) * n / (2 * np.pi)
    one = int(distances[0].argmax())
    two = int(
        np.minimum(distances[one], distances.max() - np.abs(distances[0] - distances[one])).argmax()
    )
    # A small turn of the ring keeps nodes at equal distances apart.
    plane = np.stack([distances[one], distances[two]], axis=1) + 0.05 * ring
    return [ring, plain_ring, plane]


def _majorise(start: Points, distances: Points) -> tuple[float, Points]:
    """Stress and places after ITERATIONS Guttman transforms with weights 1 / d^2."""
    n = len(start)
    with np.errstate(divide="ignore"):
        weights = np.where(distances > 0, 1 / distances**2, 0.0)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    # One node is pinned: the stress does not see translations, which make the system singular.
    inverse = np.linalg.inv(laplacian[1:, 1:])
    places = start - start[0]
    stress = math.inf
    for _ in range(ITERATIONS):
        apart = _apart(places)
        with np.errstate(divide="ignore", invalid="ignore"):
            pull = np.where(apart > 1e-9, weights * distances / apart, 0.0)
        target = np.diag(pull.sum(axis=1)) - pull
        places = np.vstack([np.zeros((1, 2)), inverse @ (target @ places)[1:]])
        before, stress = stress, _stress(places, distances, weights)
        if before - stress < 1e-9 * n:
            break
    # Rounded, so that starts that end in the same drawing are equal and the first is kept.
    return round(stress, 6), places


def _apart(places: Points) -> Points:
    apart: Points = np.linalg.norm(places[:, None] - places[None], axis=2)
    return apart


def _stress(places: Points, distances: Points, weights: Points) -> float:
    return float((weights * (_apart(places) - distances) ** 2).sum() / 2)


def _upright(places: Points) -> Points:
    """Turned: the long side across; with no long side, the first node off the centre on top.
    Mirrored: the nodes go clockwise, or from left to right."""
    places = places - places.mean(axis=0)
    spread, axes = np.linalg.eigh(places.T @ places)
    off_centre = int((np.linalg.norm(places, axis=1) > 0.3).argmax())
    if spread[0] > 0.8 * spread[1]:
        angle = math.atan2(places[off_centre, 1], places[off_centre, 0])
        # y points down: the top is at angle -90 degrees.
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
