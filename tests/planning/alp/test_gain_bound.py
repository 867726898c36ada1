"""The cheap bound on the gain: a bound, as good as its programs, and a limit on what they cost."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

import fmdp
from fmdp import FactoredMDP
from fmdp.model.symmetry import symmetry_of
from fmdp.planning.alp import gain_bound
from fmdp.planning.alp.basis_scopes import first_scopes, widened_scopes
from fmdp.planning.alp.interior import InteriorCuttingPlanes
from fmdp.planning.alp.prepared_alp import PreparedALP
from fmdp.planning.alp.program import ProgramSolution
from fmdp.planning.status import Status
from fmdp.testing import strategies


def coins(parents: tuple[tuple[int, ...], ...]) -> FactoredMDP:
    """Two fair coins, whatever their parents show; 1 is paid where both show 1."""
    factors = [(scope, np.full((2 ** len(scope), 2), 0.5)) for scope in parents]
    return FactoredMDP.from_factors([2, 2], [2], factors, [((0, 1), [0.0, 0.0, 0.0, 1.0])])


@settings(max_examples=60, deadline=None)
@given(model=strategies.models())
def test_no_policy_gains_more(model: FactoredMDP) -> None:
    best = fmdp.plan(model).gain_lower
    assert best is not None
    assert fmdp.ALP().least_gain_upper(model) >= best


def test_a_pair_of_coins_by_hand() -> None:
    """With h = -a x0 - b x1 the largest of R + P h - h is max((a + b) / 2, 1 - (a + b) / 2, ...),
    at least 1/2; with a function of both it is the gain, 1/4."""
    assert fmdp.ALP().least_gain_upper(coins(((1,), (0,)))) == pytest.approx(0.25, abs=1e-6)
    alone = coins(((), ()))
    assert widened_scopes(alone.structure, [(0,), (1,)], None) is None
    assert fmdp.ALP().least_gain_upper(alone) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("name", ["circle:30,dynamics=guestrin", "circle:30", "star:26"])
def test_it_is_no_looser_than_the_program_of_single_variables(name: str) -> None:
    model = fmdp.problem(name)
    singles = fmdp.ALP(basis="singles", criterion="average").plan(model)
    assert singles.status is Status.CONVERGED
    assert singles.gain_upper is not None
    assert fmdp.ALP().least_gain_upper(model) <= singles.gain_upper * (1.0 + 1e-4)


def test_it_is_near_the_gain_where_single_variables_are_far() -> None:
    model = fmdp.problem("circle:10,dynamics=guestrin")
    exact = fmdp.plan(model)
    singles = fmdp.ALP(basis="singles").plan(model)
    assert exact.gain_lower is not None
    assert exact.gain_upper is not None
    assert singles.gain_upper is not None
    assert singles.gain_upper > 1.3 * exact.gain_upper
    assert exact.gain_lower <= fmdp.ALP().least_gain_upper(model) <= 1.05 * exact.gain_upper


def test_tied_and_free_weights_give_one_optimum() -> None:
    model = fmdp.problem("circle:24,dynamics=guestrin")
    symmetry = symmetry_of(model)
    assert symmetry is not None
    pairs = fmdp.ALP(basis=fmdp.chains(model.structure, 2))
    tied, free = (
        PreparedALP(pairs, model.structure, share_for=model, dense=True, symmetry=own)
        for own in (symmetry, None)
    )
    assert (tied.basis.size, free.basis.size) == (2, 48)
    assert tied.bound(model, 40) == pytest.approx(free.bound(model, 40), rel=1e-5)


def test_programs_that_take_too_long_are_not_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fmdp.problem("grid:16")
    solved: list[int] = []
    bound = PreparedALP.bound

    def counted(self: PreparedALP, *arguments: object) -> float:
        solved.append(self.basis.size)
        assert self.predicted_seconds() <= gain_bound.SECONDS
        return bound(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(PreparedALP, "bound", counted)
    fmdp.ALP().least_gain_upper(model)
    assert solved[0] == 16
    assert len(solved) > 1
    solved.clear()
    monkeypatch.setattr(gain_bound, "SECONDS", 1e-9)
    assert fmdp.ALP().least_gain_upper(model) == math.inf
    assert not solved


def test_a_network_that_is_too_large_ends_it() -> None:
    """Pairs on this model need a table of 2^31 entries; the bound of single variables stays."""
    model = fmdp.problem("random:60")
    assert 38.0 < fmdp.ALP().least_gain_upper(model) < 40.0


def test_an_interruption_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: InteriorCuttingPlanes, program: object, monitor: object) -> object:
        x = np.zeros(program.n_columns)  # type: ignore[attr-defined]
        return ProgramSolution(Status.INTERRUPTED, x, 0.0, 0.0, 0, 0)

    monkeypatch.setattr(InteriorCuttingPlanes, "solve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fmdp.ALP().least_gain_upper(fmdp.problem("circle:20"))


def test_scopes_widen_by_every_parent() -> None:
    structure = fmdp.problem("circle:5").structure
    pairs = widened_scopes(structure, first_scopes(structure), None)
    assert pairs is not None
    assert {scope for scope in pairs if len(scope) == 2} == set(fmdp.chains(structure, 2))
