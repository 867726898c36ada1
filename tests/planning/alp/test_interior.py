"""Interior points: the optimum of the program over all pairs, limits, and what cannot be solved."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import average_lp, basis_matrix, discounted_lp

from fmdp._base.deadlines import Deadline
from fmdp.planning.alp import ALP, PreparedALP
from fmdp.planning.alp.bases import chains
from fmdp.planning.alp.constraints import BellmanConstraints
from fmdp.planning.alp.cuts import CuttingPlanes
from fmdp.planning.alp.interior import InteriorCuttingPlanes, fits
from fmdp.planning.alp.program import Monitor
from fmdp.planning.plan import Status
from fmdp.problems import problem

PROBLEMS = (
    ("circle:5", "singles"),
    ("circle:5", "pairs"),
    ("circle:4,dynamics=guestrin,reward=mean", ((0, 1, 2), (1, 2, 3))),
    ("three-leg:5,dynamics=talebi", "pairs"),
    ("random:4,values=3,seed=2", "indicators"),
    ("machines:2", "local"),
)


def program_of(name: str, basis, criterion: str = "discounted"):
    model = problem(name)
    prepared = PreparedALP(ALP(basis=basis, criterion=criterion), model.structure, share_for=model)
    staged = prepared.program_for("plain")
    staged.residual.load(model)
    return model, staged


@pytest.mark.parametrize(("name", "basis"), PROBLEMS)
def test_reaches_the_optimum_over_all_pairs(name: str, basis) -> None:
    model, staged = program_of(name, basis)
    n = staged.residual.basis.size
    own = BellmanConstraints(staged.residual, 0.95, rhs=n, coefficient=0.05, first_column=n + 1)
    program = staged.program(staged._value_cost, False, own)
    assert fits(program)
    solution = InteriorCuttingPlanes().solve(program, Monitor())
    assert solution.status is Status.CONVERGED
    phi = basis_matrix(model.structure, basis)
    best, _ = discounted_lp(model, phi, 0.95)
    unit = staged.residual.unit
    found = staged.discounted_solution(solution).objective * unit
    assert found == pytest.approx(best, abs=2e-6 * unit)
    assert found >= best - 1e-9 * abs(best)
    assert own.violation(solution.x) <= program.accuracy


@pytest.mark.parametrize(("name", "basis"), PROBLEMS)
def test_reaches_the_least_gain_over_all_pairs(name: str, basis) -> None:
    model, staged = program_of(name, basis, "average")
    n = staged.residual.basis.size
    own = BellmanConstraints(staged.residual, 1.0, rhs=n, first_column=n + 1)
    program = staged.program(staged._gain_cost, False, own)
    solution = InteriorCuttingPlanes().solve(program, Monitor())
    assert solution.status is Status.CONVERGED
    best = average_lp(model, basis_matrix(model.structure, basis))
    unit = staged.residual.unit
    found = (solution.objective + staged.residual.origin) * unit
    assert found == pytest.approx(best, abs=2e-6 * unit)


def test_agrees_with_simplex_where_a_plan_uses_it() -> None:
    """Of 70 machines without shared tables; and the same solution to the bit on the second try."""
    model = problem("circle:70")
    by_points = ALP(basis="singles").plan(model)
    assert by_points.status is Status.CONVERGED
    assert by_points.stats["rows_from"] == "separation"
    _, staged = program_of("circle:70", "singles")
    program = staged.program(staged._value_cost, False, staged.discounted)
    by_simplex = staged.discounted_solution(CuttingPlanes().solve(program, Monitor()))
    assert by_points.objective == pytest.approx(by_simplex.objective, abs=2e-6)
    again = ALP(basis="singles").plan(model)
    assert again.objective == by_points.objective
    assert np.array_equal(again.stats["weights"], by_points.stats["weights"])


def test_plans_inside_learners_stay_with_simplex(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a hurried plan")

    monkeypatch.setattr(InteriorCuttingPlanes, "solve", refuse)
    model = problem("circle:70")
    prepared = ALP(basis="singles").prepare(model.structure)
    assert prepared.solve(model).policy is not None
    with pytest.raises(AssertionError, match="hurried"):
        ALP(basis="singles").plan(model)


def test_limits_leave_a_bound() -> None:
    neighbours = chains(problem("circle:12").structure, 3)
    _, staged = program_of("circle:12,dynamics=guestrin", neighbours)
    program = staged.program(staged._value_cost, False, staged.discounted)
    best = InteriorCuttingPlanes().solve(program, Monitor()).objective
    for monitor, status in (
        (Monitor(iterations=2), Status.ITERATION_LIMIT),
        (Monitor(deadline=Deadline.after(-1.0)), Status.TIME_LIMIT),
    ):
        short = InteriorCuttingPlanes().solve(program, monitor)
        assert short.status is status
        assert short.objective > best + program.tolerance
        assert staged.discounted.violation(short.x) <= program.accuracy


def test_interrupted_with_the_best_point(monkeypatch: pytest.MonkeyPatch) -> None:
    from fmdp.planning.alp import interior

    _, staged = program_of("circle:20", "singles")
    program = staged.program(staged._value_cost, False, staged.discounted)

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(interior._InteriorSearch, "round", interrupt)
    solution = InteriorCuttingPlanes().solve(program, Monitor())
    assert solution.status is Status.INTERRUPTED
    assert staged.discounted.violation(solution.x) <= program.accuracy


def test_what_rounding_stops_simplex_finishes(monkeypatch: pytest.MonkeyPatch) -> None:
    from fmdp.planning.alp import interior

    model = problem("circle:70")
    best = ALP(basis="singles").plan(model)

    def lost(*_: object) -> bool:
        raise interior.LinAlgError("lost")

    monkeypatch.setattr(interior._InteriorSearch, "round", lost)
    found = ALP(basis="singles").plan(model)
    assert found.status is Status.CONVERGED
    assert found.objective == pytest.approx(best.objective, abs=2e-6)


def test_components_and_second_stages_do_not_fit() -> None:
    _, staged = program_of("jao:3", "singles")
    assert not fits(staged.program(staged._value_cost, False, staged.discounted))
    _, staged = program_of("circle:4", "singles", "average")
    assert not fits(staged.program(staged._value_cost, False, staged.discounted, staged.pinned))
