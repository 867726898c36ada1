"""The referee's own arithmetic, against numbers made by hand, and its independence."""

from __future__ import annotations

import ast
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from referee import programs, recipes, replay, truth
from referee.recipes import flat


def test_a_corridor_is_worth_its_better_end_from_everywhere() -> None:
    found = truth.best(truth.flatten(recipes.corridor(4, 0.99, 1.0)))
    assert found.gain == [1, 1, 1, 1]
    assert found.one_gain
    assert [h - found.bias[0] for h in found.bias] == [0, 1, 2, 3]


def test_riverswim_is_what_the_documentation_says() -> None:
    found = truth.best(truth.flatten(recipes.riverswim(6, 0.005)))
    assert float(found.lowest) == pytest.approx(0.428622434, abs=1e-9)
    assert found.bias_size == pytest.approx(6.310324, abs=1e-6)


def test_the_diameter_is_what_the_documentation_says() -> None:
    assert truth.diameter(truth.flatten(recipes.corridor(7, 0.5, 1.0))) == 6
    assert float(truth.diameter(truth.flatten(recipes.riverswim(6, 0.005)))) == pytest.approx(
        14.7223, abs=1e-4
    )
    assert not truth.diameter(truth.flatten(recipes.circles((4, 4)))).is_finite()


def test_rooms_differ_and_a_hall_takes_what_it_can_reach() -> None:
    found = truth.best(truth.flatten(recipes.rooms((0.25, 0.75), 0, True)))
    assert found.gain == [Fraction(1, 4)] * 2 + [Fraction(3, 4)] * 2 + [Fraction(1, 2)]
    assert not found.one_gain
    assert truth.best(truth.flatten(recipes.rooms((0.3, 0.3), 0, True))).one_gain


@pytest.mark.parametrize("leak", [1e-3, 1e-9, 1e-12, 2.0**-60])
def test_a_leak_is_a_leak_however_small(leak: float) -> None:
    # Two states, one action: out of 0 with the leak, back with half of it; paid 1 in state 0.
    moves = np.array([[[1 - leak, leak]], [[leak / 2, 1 - leak / 2]]])
    flattened = truth.flatten(flat("leak", "leak", moves, np.array([[1.0], [0.0]])))
    found = truth.policy_value(flattened, (0, 0))
    assert float(found.gain[0]) == pytest.approx(1 / 3, rel=1e-14)
    assert found.gain[0] == found.gain[1]
    assert found.classes == 1


def test_fractions_and_decimals_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for recipe in (*recipes.base(short=True), recipes.islands(1e-12, "forced", 3)):
        if recipe.n_states > truth.FRACTIONS_UP_TO:
            continue
        exact = truth.best(truth.flatten(recipe))
        with monkeypatch.context() as context:
            context.setattr(truth, "FRACTIONS_UP_TO", 0)
            rounded = truth.best(truth.flatten(recipe))
        assert rounded.one_gain == exact.one_gain
        for one, other in zip(exact.gain, rounded.gain, strict=True):
            assert abs(one - Fraction(other)) <= Fraction(1, 10**60)


def test_the_best_policy_is_the_best_of_all() -> None:
    recipe = recipes.islands(1e-5, "chosen", 7)
    flattened = truth.flatten(recipe)
    found = truth.best(flattened)
    every = [truth.policy_value(flattened, actions) for actions in truth.assignments((2,) * 4)]
    for s in range(4):
        assert found.gain[s] == max(value.gain[s] for value in every)


def test_programs_with_all_functions_give_the_discounted_value() -> None:
    recipe = recipes.riverswim(6, 0.005)
    flattened = truth.flatten(recipe)
    functions = programs.basis_functions(recipe, "indicators")
    found = programs.objective(flattened, functions, "discounted", 0.9)
    assert found == pytest.approx(truth.discounted_value(flattened, 0.9).mean(), abs=1e-9)
    gain = programs.objective(flattened, functions, "average", 0.9)
    assert gain == pytest.approx(0.428622434, abs=1e-8)


def test_a_replay_draws_what_the_streams_hold() -> None:
    class Still:
        def act(self, state: tuple[int, ...]) -> tuple[int, ...]:
            return (1,)

        def observe(self, *transition: object) -> None:
            pass

    recipe = recipes.riverswim(3, 0.0)
    lived = replay.live(recipe, lambda generator: Still(), 50, seed=4)
    luck = np.random.Generator(np.random.PCG64(np.random.SeedSequence(4).spawn(2)[0]))
    state = 0
    for seen, uniforms in zip(lived.states, luck.random((50, 2)), strict=True):
        assert seen == state
        row = recipe.transitions[0][1][2 * state + 1]
        state = int(np.searchsorted(np.cumsum(row), uniforms[0], side="right"))


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
    return {name for name in found if name.partition(".")[0] == "fmdp"}


def test_the_referee_shares_nothing_with_the_engine() -> None:
    here = Path(__file__).parent
    for name in ("truth", "programs", "replay", "ledger", "report_truth"):
        assert _imports(here / f"{name}.py") == set(), name
    for name in ("recipes", "claims"):
        assert _imports(here / f"{name}.py") == {"fmdp"}, name
    assert _imports(here / "game.py") == {"fmdp", "fmdp.measures"}
    assert _imports(here / "simulated_intervals.py") == {"fmdp", "fmdp.simulation"}
