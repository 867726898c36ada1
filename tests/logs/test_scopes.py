"""Structure from a log: scores by hand, and scopes that are found where there is enough to see."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.learning.unknown.scores import bdeu, log_likelihood, subsets
from fmdp.logs.scopes import best_scopes, normal_bic, squared_error


def test_bdeu_by_hand() -> None:
    """One row, two values, counts (1, 2): the product of the predictive probabilities under
    Dirichlet(1/2, 1/2), 1/2 * 1/4 * 3/6."""
    assert bdeu(np.array([[1, 2]]), 1) == pytest.approx(math.log(1 / 2 * (1 / 2) / 2 * (3 / 2) / 3))
    # Two rows of which one was visited: a row that was not visited adds nothing.
    assert bdeu(np.array([[1, 0]]), 2) == pytest.approx(math.log(1 / 2))


def test_bic_by_hand() -> None:
    """Two rows with rewards (0, 2) and (5, 5): RSS = 2 of n = 4, two means."""
    found = normal_bic(np.array([2.0, 2.0]), np.array([2.0, 10.0]), np.array([4.0, 50.0]), 1e-9)
    assert found == pytest.approx(-2 * math.log(0.5) - math.log(4))


def test_all_sets_small_ones_first() -> None:
    assert list(subsets(3, 2)) == [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    assert len(list(subsets(3, 9))) == 8


def played(model: fmdp.FactoredMDP, steps: int, seed: int) -> Any:
    run = fmdp.simulate(model, "random", steps, seed=seed, record=True)
    assert run.trajectory is not None
    return run.trajectory.to_frame()


def found(model: fmdp.FactoredMDP, steps: int, seed: int, most: int) -> fmdp.Structure:
    s = model.structure
    fitted = fmdp.fit(
        played(model, steps, seed),
        "learn",
        actions=s.action_names,
        rewards=[f"reward.{name}" for name in s.reward_names],
        max_parents=most,
        ignore=["t", "reward"],
    )
    return fitted.model.structure


@pytest.mark.parametrize("seed", [0, 1])
def test_scopes_are_found_with_enough_data_and_not_with_too_little(seed: int) -> None:
    """circle: the machine, the one before it and the restart; rewards: the machine."""
    pytest.importorskip("pandas")
    model = fmdp.problem("circle:4,dynamics=guestrin")
    s = model.structure
    right = found(model, 6000, seed, 3)
    assert right.transition_scopes == s.transition_scopes
    assert right.reward_scopes == s.reward_scopes
    assert right.reward_ranges == s.reward_ranges
    little = found(model, 25, seed, 3)
    assert little.transition_scopes != s.transition_scopes
    assert sum(map(len, little.transition_scopes)) < sum(map(len, s.transition_scopes))


def test_random_models_are_found() -> None:
    rng = np.random.default_rng(5)
    for _ in range(5):
        sizes = rng.integers(2, 4, 4).tolist()
        scopes = [tuple(sorted(rng.choice(5, 2, replace=False).tolist())) for _ in range(4)]
        joint = np.stack([rng.integers(0, size, 40_000) for size in [*sizes, 3]], axis=1)
        following = np.empty((len(joint), 4), dtype=np.int64)
        for i, (one, other) in enumerate(scopes):
            laws = rng.dirichlet(np.ones(sizes[i]), (5, 5)).cumsum(axis=-1)
            draws = rng.random(len(joint))[:, None]
            following[:, i] = (laws[joint[:, one], joint[:, other]][:, :-1] < draws).sum(axis=1)
        means = rng.random((5, 5))
        rewards = means[joint[:, 1], joint[:, 4]] + rng.normal(0, 0.5, len(joint))
        best = best_scopes(joint, (*sizes, 3), following, rewards[:, None], 3)
        assert best == (*scopes, (1, 4))


def test_variables_and_values_are_found(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rng = np.random.default_rng(1)
    lines = ["level,mood,act,pay"]
    level = 10
    for _ in range(500):
        act = rng.choice(["up", "down"])
        mood = rng.choice(["b", "A", "c"])
        lines.append(f"{level},{mood},{act},{float(level)}")
        level = min(30, level + 10) if act == "up" else max(-5, level - 15)
        level = {25: 20, 15: 10, 5: 10, 0: -5}.get(level, level)
    path.write_text("\n".join(lines))
    fitted = fmdp.fit(path, "learn", actions="act", rewards="pay")
    s = fitted.model.structure
    assert s.state_names == ("level", "mood")
    assert list(s.state_values[0]) == sorted(s.state_values[0], key=float)
    assert s.state_values[1] == ("A", "b", "c")
    assert s.action_values == (("down", "up"),)
    assert s.transition_scopes == ((0, 2), ())
    assert s.reward_scopes == ((0,),)
    assert fitted.model.initial_state == (
        s.state_values[0].index("10"),
        fitted.model.initial_state[1],
    )
    assert fitted.notes[0].startswith("scopes of at most 2 variables were chosen by their scores")
    assert fitted.notes[1].startswith("the range of reward 'pay' is what the log shows, [-5, 30]")
    assert fitted.runs == 1


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("s,a\n1,2\n1,2\n", {}, "say which columns are actions"),
        ("s,a\n1,2\n1,2\n", {"actions": "b"}, "no column 'b' for actions"),
        ("s,a\n1,2\n1,2\n", {"actions": "a", "rewards": "a"}, "is action and reward"),
        ("a\n1\n1\n", {"actions": "a"}, "no column left that could be a state variable"),
        ("s,a\n1,2\n", {"actions": "a"}, "has no step"),
        ("s,a\n1,2\n,2\n", {"actions": "a"}, "line 3, column 's': is empty"),
        ("s,a,r\n1,2,x\n1,2,1\n", {"actions": "a", "rewards": "r"}, "line 2, column 'r': a reward"),
        (
            "s,a\n" + "".join(f"{i / 7},0\n" for i in range(2000)),
            {"actions": "a"},
            "line 1002, column 's': has more than 1,000 different values.*put it into bins",
        ),
    ],
)
def test_refusals(text: str, options: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(InvalidParameter, match=said):
        fmdp.fit(path, "learn", **options)


def test_too_many_sets_are_refused_beforehand(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    names = [f"v{i}" for i in range(60)]
    rows = [",".join(map(str, np.random.default_rng(i).integers(0, 2, 60))) for i in range(200)]
    path.write_text("\n".join([",".join(names), *rows]))
    with pytest.raises(InvalidParameter, match=r"sets of at most 10 of 60 variables .* hours"):
        fmdp.fit(path, "learn", actions="v0", max_parents=10)


# ---- sets that explain nothing more --------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[int], Any, Any, Any]:
    """Sizes, joint values, following values and rewards of a log of independent draws."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=3, max_size=4))
    steps = draw(st.integers(1, 3000))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    joint = np.stack([rng.integers(0, size, steps) for size in sizes], axis=1)
    following = np.stack([rng.integers(0, size, steps) for size in sizes[:-1]], axis=1)
    rewards = rng.choice(rng.random(3), (steps, 2))
    return sizes, joint, following, rewards


@settings(deadline=None, max_examples=60)
@given(logs(), st.integers(1, 3))
def test_what_is_constant_in_a_log_has_no_parents(log: Any, most: int) -> None:
    """Whether it has one value, or takes one of its values all the time."""
    sizes, joint, following, rewards = log
    following[:, 0] = sizes[0] - 1
    rewards[:, 0] = 0.7
    found = best_scopes(joint, sizes, following, rewards, most)
    one_valued = [i for i in range(following.shape[1]) if sizes[i] == 1]
    assert all(found[i] == () for i in [0, *one_valued, following.shape[1]])


@settings(deadline=None, max_examples=60)
@given(logs(), st.integers(1, 3))
def test_a_set_is_more_likely_than_each_of_its_subsets(log: Any, most: int) -> None:
    """By brute force over all subsets, with the likelihood in fractions: of a set that explains no
    more than a subset of it the smaller one is taken."""
    sizes, joint, following, rewards = log
    found = best_scopes(joint, sizes, following, rewards, most)
    for i, scope in enumerate(found[: following.shape[1]]):
        for k in range(len(scope)):
            subset = (*scope[:k], *scope[k + 1 :])
            assert not same_laws(joint, following[:, i], scope, subset)


def same_laws(joint: Any, column: Any, scope: tuple[int, ...], subset: tuple[int, ...]) -> bool:
    """Whether each row of the scope has exactly the frequencies of its row of the subset: then, and
    only then, the larger set has the same likelihood."""

    def frequencies(variables: tuple[int, ...]) -> list[dict[int, Fraction]]:
        rows: dict[tuple[int, ...], Counter[int]] = {}
        keys = [tuple(row) for row in joint[:, list(variables)].tolist()]
        for key, value in zip(keys, column.tolist(), strict=True):
            rows.setdefault(key, Counter())[value] += 1
        laws = {
            key: {value: Fraction(n, own.total()) for value, n in own.items()}
            for key, own in rows.items()
        }
        return [laws[key] for key in keys]

    return frequencies(scope) == frequencies(subset)


@settings(deadline=None, max_examples=40)
@given(logs(), st.integers(0, 2**32 - 1))
def test_copies_are_not_taken_together_and_the_order_of_steps_does_not_matter(
    log: Any, seed: int
) -> None:
    """The last variable is a copy of the first, and so is what follows."""
    sizes, joint, following, rewards = log
    sizes[-1] = sizes[0]
    joint[:, -1] = joint[:, 0]
    following[:, 0] = joint[:, 0]
    rewards[:, 1] = 0.1 * joint[:, 0]
    found = best_scopes(joint, sizes, following, rewards, 3)
    last = len(sizes) - 1
    assert not any({0, last} <= set(scope) for scope in found)
    # Of two that say the same the first is taken.
    assert last not in {v for scope in found for v in scope}
    shuffled = np.random.default_rng(seed).permutation(len(joint))
    again = best_scopes(joint[shuffled], sizes, following[shuffled], rewards[shuffled], 3)
    assert again == found


def test_likelihoods_by_hand() -> None:
    """Counts (1, 2): 1/3 * (2/3)^2. Rewards (0, 2) and (5, 5) about their means: 2 in 4."""
    assert log_likelihood(np.array([[1, 2], [0, 5]])) == pytest.approx(math.log(4 / 27))
    found = squared_error(np.array([2.0, 2.0]), np.array([2.0, 10.0]), np.array([4.0, 50.0]))
    assert found == 0.5
    for rows in (1, 7, 2**40):
        assert bdeu(np.array([[1], [17], [400]]), rows) == 0.0  # exactly
