"""The drawings of `fmdp show`, checked by hand, and what every drawing must contain."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from fmdp.cli.network import draw


def names(n: int) -> list[str]:
    return [f"v{i}" for i in range(n)]


def test_a_ring_is_one_line_that_comes_back() -> None:
    assert draw(names(3), [(0, 2), (0, 1), (1, 2)], 80) == ["v0 → v1 → v2 → (v0)"]


def test_legs_branch_under_their_root() -> None:
    parents = [(), (0,), (0,), (0,), (1,)]
    assert draw(names(5), parents, 80) == [
        "v0 ─┬→ v1 → v4",
        "    ├→ v2",
        "    └→ v3",
    ]


def test_an_edge_both_ways_is_drawn_once() -> None:
    assert draw(names(3), [(1,), (0, 2), (1,)], 80) == ["v0 ↔ v1 ↔ v2"]


def test_a_bar_keeps_an_open_branch_in_sight() -> None:
    parents = [(), (0,), (0,), (1,), (1,)]
    assert draw(names(5), parents, 80) == [
        "v0 ─┬→ v1 ─┬→ v3",
        "    │      └→ v4",
        "    └→ v2",
    ]


def test_separate_parts_stand_on_lines_of_their_own() -> None:
    assert draw(["a", "b", "c"], [(0,), (), (0, 2)], 80) == ["a → c", "b"]


def test_a_long_chain_is_broken_at_the_width_and_needs_no_recursion() -> None:
    n = 5000
    lines = draw(names(n), [(), *((i,) for i in range(n - 1))], 60)
    assert max(map(len, lines)) <= 60
    assert sum(line.count("→") for line in lines) == n - 1


@given(st.data())
def test_every_node_is_drawn_once_and_every_edge_once(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 7))
    parents = [sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=n))) for _ in range(n)]
    text = "\n".join(draw(names(n), parents, data.draw(st.integers(10, 100))))
    assert sorted(re.findall(r"(?<!\()v\d", text)) == names(n)
    edges = {(p, c) for c, own in enumerate(parents) for p in own if p != c}
    both = sum((c, p) in edges for p, c in edges) // 2
    assert text.count("↔") == both
    assert text.count("→") == len(edges) - 2 * both
