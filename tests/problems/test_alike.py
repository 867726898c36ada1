"""`alike` of the problem families: the same model, known better, where a rule allows it."""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter

RULES = ("guestrin", "talebi", "ippc")
TOPOLOGIES = ("circle:5", "three-leg:7", "star:4", "bi-ring:5", "grid:7", "tree:6", "circle:1")


@pytest.mark.parametrize("dynamics", RULES)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_classes_follow_the_rule(topology: str, dynamics: str) -> None:
    """Rows are of one class exactly if the rule reads the same: whether there is a restart, whether
    the machine works, and how many of its parents do (for two rules, whether all do)."""
    for alike in ("rows", "machines"):
        model = fmdp.problem(f"{topology},dynamics={dynamics},alike={alike}")
        s = model.structure
        read: dict[object, int] = {}
        for i, scope in enumerate(s.transition_scopes):
            known = s.transition_classes_of(i)
            sizes = s.scope_sizes(scope)
            for row, assignment in enumerate(np.ndindex(*sizes)):
                values = dict(zip(scope, assignment, strict=True))
                works = values[i]
                parents = [values[v] for v in scope if v not in (i, s.m)]
                key: object
                if values[s.m] == i:
                    key = "restarted"
                elif dynamics == "guestrin":
                    key = (works, all(parents))
                elif dynamics == "talebi":
                    key = (works, all(parents)) if works else "down"
                else:
                    key = (len(parents), sum(parents)) if works else "down"
                whose = (i, key) if alike == "rows" else key
                assert read.setdefault(whose, int(known[row])) == known[row]
        assert len(set(read.values())) == len(read) == s.n_transition_classes


@pytest.mark.parametrize("alike", ["rows", "machines"])
@pytest.mark.parametrize(
    "name",
    [*(f"grid:7,dynamics={rule},server=2" for rule in RULES), "machines:4,topology=grid"],
)
def test_the_tables_are_those_without_it(name: str, alike: str) -> None:
    told, untold = fmdp.problem(f"{name},alike={alike}"), fmdp.problem(name)
    for one, other in zip(
        told.transitions + told.rewards, untold.transitions + untold.rewards, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-15)
    assert fmdp.problem(f"{name},alike=none") == untold
    assert told != untold
    assert told.name == f"{untold.name},alike={alike}"


def test_rewards_of_machines_are_alike_where_they_pay_the_same() -> None:
    def classes(name: str) -> list[list[int]]:
        s = fmdp.problem(name).structure
        return [s.reward_classes_of(k).tolist() for k in range(s.l)]

    assert classes("circle:3,dynamics=guestrin,alike=machines") == [[0, 1]] * 3
    assert classes("circle:3,dynamics=guestrin,server=2,alike=machines") == [[0, 1], [2, 3], [2, 3]]
    assert classes("circle:2,dynamics=ippc,alike=machines") == [[0, 1], [0, 1], [2, 2, 3]]
    assert classes("circle:2,dynamics=ippc,alike=rows") == [[0, 1], [2, 3], [4, 4, 5]]


@pytest.mark.parametrize("topology", ["circle", "bi-ring", "star", "grid"])
def test_agents_share_what_the_rules_read(topology: str) -> None:
    """By the rule in words: rebooted; dead; else the own status and the neighbours' burden."""
    model = fmdp.problem(f"machines:4,topology={topology},alike=machines")
    s = model.structure
    read: dict[object, int] = {}
    for i, scope in enumerate(s.transition_scopes):
        known = s.transition_classes_of(i)
        machine = i // 2
        for row, assignment in enumerate(np.ndindex(*s.scope_sizes(scope))):
            values = dict(zip(scope, assignment, strict=True))
            status, action = values[2 * machine], values[s.m + machine]
            key: object
            if i % 2 == 0:
                others = [values[v] for v in scope if v < s.m and v != i]
                key = ("status", status, len(others), sum(others))
                key = "dead" if status == 2 else key
                key = "rebooted" if action else key
            else:
                load = values[i]
                key = ("load", load, (status == 2) if load == 0 else status)
                key = "done" if load == 2 else key
                key = "restarted" if action else key
            assert read.setdefault(key, int(known[row])) == known[row]
    assert len(set(read.values())) == len(read) == s.n_transition_classes


@pytest.mark.parametrize("name", ["jao:3", "riverswim:2", "jao:3,actions=4,reward=mean"])
def test_copies_are_alike(name: str) -> None:
    s = fmdp.problem(f"{name},alike=copies").structure
    assert s.n_transition_classes == s.transition_rows[0]
    assert s.n_reward_classes == s.reward_rows[0]
    assert fmdp.problem("jao:1,alike=copies").structure.alike is None


@pytest.mark.parametrize("name", ["circle:3,alike=rows", "star:4,dynamics=xu,alike=machines"])
def test_random_tables_have_no_alike_rows(name: str) -> None:
    with pytest.raises(InvalidParameter, match=r"'alike' parameter of .* is used with dynamics="):
        fmdp.problem(name)
