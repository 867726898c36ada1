"""Arrows are the scopes, known graphs look as they should, actions find their nodes."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmdp.model import FactoredMDP, Structure
from fmdp.problems import problem
from fmdp.reports.network import layout, network, touched_nodes
from fmdp.testing.strategies import structures

EXAMPLES = (
    "circle:7",
    "three-leg:7",
    "star:9",
    "bi-ring:8",
    "grid:12",
    "tree:15",
    "machines:4",
    "machines:9,topology=grid",
    "jao:5",
    "random:8,seed=3",
)


@given(structures())
def test_arrows_are_the_scopes(structure: Structure) -> None:
    drawn = network(structure)
    node_of = {v: k for k, node in enumerate(drawn.nodes) for v in node.variables}
    assert sorted(node_of) == list(range(structure.m))
    expected = {
        (node_of[parent], node_of[i])
        for i in range(structure.m)
        for parent in structure.state_scope(i)
    }
    shown = {(a.source, a.target) for a in drawn.arrows}
    shown |= {(a.target, a.source) for a in drawn.arrows if a.both}
    assert shown == {(a, b) for a, b in expected if a != b}


@pytest.mark.parametrize("name", EXAMPLES)
def test_nodes_keep_apart_and_the_drawing_is_repeatable(name: str) -> None:
    structure = problem(name).structure
    drawn = network(structure)
    places = np.array([(node.x, node.y) for node in drawn.nodes])
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    assert apart[~np.eye(len(places), dtype=bool)].min() > 0.55
    assert drawn == network(structure)


def test_a_circle_is_a_circle_clockwise_from_the_top() -> None:
    places = np.array([(n.x, n.y) for n in network(problem("circle:6").structure).nodes])
    radius = np.linalg.norm(places - places.mean(axis=0), axis=1)
    np.testing.assert_allclose(radius, radius[0], rtol=1e-2)
    angles = np.degrees(np.arctan2(places[:, 0], -places[:, 1])) % 360
    np.testing.assert_allclose(angles, 60 * np.arange(6), atol=1.0)


def test_a_star_has_its_hub_in_the_middle() -> None:
    places = np.array([(n.x, n.y) for n in network(problem("star:7").structure).nodes])
    distances = np.linalg.norm(places[1:] - places[0], axis=1)
    np.testing.assert_allclose(distances, distances[0], rtol=2e-2)


@given(st.integers(1, 9), st.data())
def test_any_graph_gets_finite_places(n: int, data: st.DataObject) -> None:
    node = st.integers(0, n - 1)
    edges = data.draw(st.lists(st.tuples(node, node).filter(lambda e: e[0] != e[1]), max_size=12))
    assert np.isfinite(layout(n, edges)).all()


@pytest.mark.parametrize("dynamics", ["xu", "guestrin", "talebi", "ippc"])
@pytest.mark.parametrize("name", ["circle:5", "three-leg:7", "grid:9"])
def test_restarting_a_machine_touches_that_machine(name: str, dynamics: str) -> None:
    model = problem(f"{name},dynamics={dynamics}")
    n = model.structure.m
    assert touched_nodes(model, network(model.structure)) == [[*([i] for i in range(n)), []]]


def test_an_action_of_one_machine_touches_its_node() -> None:
    model = problem("machines:3")
    touched = touched_nodes(model, network(model.structure))
    assert touched == [[[], [0]], [[], [1]], [[], [2]]]


@pytest.mark.parametrize("dynamics", ["xu", "guestrin", "talebi", "ippc"])
@pytest.mark.parametrize("seen_by_all", [False, True])
@pytest.mark.parametrize("name", ["circle:2", "circle:5", "three-leg:7"])
def test_a_price_that_goes_its_own_way_changes_nothing(
    made: ModuleType, name: str, dynamics: str, seen_by_all: bool
) -> None:
    model = problem(f"{name},dynamics={dynamics}")
    n = model.structure.m
    priced = made.with_price(model, seen_by_all=seen_by_all)
    assert touched_nodes(priced, network(priced.structure)) == [[*([i] for i in range(n)), []]]


def test_doing_nothing_is_known_by_its_name() -> None:
    """One machine, restart or none: the tables cannot say which of the two does nothing."""
    model = problem("circle:1")
    assert touched_nodes(model, network(model.structure)) == [[[0], []]]


def test_an_action_acts_where_it_changes_the_law_however_little() -> None:
    """By hand: a sturdy machine next to a frail one, each with (wait, repair, replace). The first
    action changes both a little, the second its own machine alone; a third machine has no action
    in its scope."""
    frail = [[0.5, 0.5], [0.1, 0.9], [0.0, 1.0]]
    sturdy = [[0.01, 0.99], [0.005, 0.995], [0.005, 0.995]]
    both = [[0.01, 0.99]] * 3 + [[0.005, 0.995]] * 3 + [[0.005, 0.995]] * 3
    names = ("wait", "repair", "replace")
    model = FactoredMDP.from_factors(
        [2, 2, 2],
        [3, 3],
        [((3,), frail), ((3, 4), both), ((2,), [[0.5, 0.5], [0.1, 0.9]])],
        [((0,), [0, 1])],
        action_values=(names, names),
    )
    assert touched_nodes(model, network(model.structure)) == [[[], [0, 1], [0, 1]], [[], [], []]]
    own = FactoredMDP.from_factors(
        [2, 2],
        [3, 3],
        [((2,), frail), ((3,), sturdy)],
        [((0,), [0, 1])],
    )
    assert touched_nodes(own, network(own.structure)) == [[[], [0], [0]], [[], [1], [1]]]


def test_labels_are_short_where_that_is_clear() -> None:
    assert [n.label for n in network(problem("machines:3").structure).nodes] == ["0", "1", "2"]
    assert [n.label for n in network(problem("jao:2").structure).nodes] == ["s0", "s1"]
