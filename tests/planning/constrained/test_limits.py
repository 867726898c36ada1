"""Plans under limits, against the linear program over occupancies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp import FactoredMDP, MixedPolicy
from fmdp.cli import main
from fmdp.errors import Infeasible, InvalidParameter, UnknownName
from fmdp.planning.constrained import mixing

from .occupancies import averages_of, best_gain


def unichain(seed: int, n_quantities: int) -> FactoredMDP:
    """A random model whose rows are all positive: every policy has one recurrent class."""
    rng = np.random.default_rng(seed)
    sizes, n_actions = [2, 3], 3
    transitions = [
        ([0, 1, 2], rng.dirichlet(np.full(size, 0.4), (2, 3, n_actions)) * 0.97 + 0.03 / size)
        for size in sizes
    ]
    quantities = {
        f"q{k}": ([[0, 2], [1, 2], [0, 1, 2]][k], rng.random([[2, 3], [3, 3], [2, 3, 3]][k]))
        for k in range(n_quantities)
    }
    return FactoredMDP.from_factors(
        sizes,
        [n_actions],
        transitions,
        [([0, 1], rng.random((2, 3))), ([1, 2], -3 * rng.random((3, 3)))],
        quantities=quantities,
    )


def least(model: FactoredMDP, name: str) -> float:
    value = best_gain(model, {}, objective=-averages_of(model)[name])
    assert value is not None
    return -value


def check(model: FactoredMDP, limits: Any, plan: fmdp.Plan) -> None:
    """The plan's numbers against the program, and its policy against its numbers."""
    best = best_gain(model, limits)
    assert best is not None
    assert plan.status is fmdp.Status.CONVERGED
    assert plan.gain_upper >= best - 1e-9
    assert plan.gain_lower <= best + 1e-9 * (1 + sum(r["price"] for r in plan.stats["limits"]))
    assert plan.gain == pytest.approx(best, abs=5e-6)
    tables = averages_of(model)
    evaluated = fmdp.evaluate(model, plan.policy)
    assert plan.gain == pytest.approx(evaluated.gain, abs=1e-6)
    chances = np.zeros_like(tables["reward"])
    s = model.structure
    for j, state in enumerate(np.ndindex(*s.state_sizes)):
        mixed = isinstance(plan.policy, MixedPolicy)
        pairs = plan.policy.distribution(state) if mixed else [(plan.policy(state), 1.0)]
        for action, chance in pairs:
            chances[np.ravel_multi_index(action, s.action_sizes), j] += chance
    chain = np.einsum("aj,ajk->jk", chances, fmdp.testing.oracles.dense(model).transitions)
    law = fmdp.testing.oracles.limiting_matrix(chain)[
        np.ravel_multi_index(model.initial_state, s.state_sizes)
    ]
    for record in plan.stats["limits"]:
        achieved = float(law @ (chances * tables[record["name"]]).sum(axis=0))
        assert record["achieved_lower"] - 1e-9 <= achieved <= record["achieved_upper"] + 1e-9
        sign = 1.0 if record["sense"] == "<=" else -1.0
        assert sign * achieved <= sign * record["value"] + 1e-8


@pytest.mark.parametrize("seed", range(12))
def test_one_limit_is_met_by_mixing_in_one_state(seed: int) -> None:
    model = unichain(seed, 1)
    free = best_gain(model, {})
    low = least(model, "q0")
    for share in (0.05, 0.4, 0.9):
        limits = {"q0": ("<=", low + share * (1.0 - low))}
        plan = fmdp.plan(model, limits=limits)
        check(model, limits, plan)
        (record,) = plan.stats["limits"]
        if isinstance(plan.policy, MixedPolicy):
            assert len(plan.policy.states) == 1
            assert record["binding"]
        else:
            assert plan.gain_upper == pytest.approx(free, abs=1e-5) or record["binding"]


@pytest.mark.parametrize("n_limits", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_several_limits(seed: int, n_limits: int) -> None:
    model = unichain(100 + seed, n_limits)
    free = fmdp.plan(model)
    tables = averages_of(model)
    limits = {}
    for k in range(n_limits):
        name = f"q{k}"
        quantity = {name: ("<=", 10.0)}
        level = fmdp.plan(model, limits=quantity).stats["limits"][0]["achieved"]
        sense = "<=" if k % 2 == 0 else ">="
        extreme = least(model, name) if sense == "<=" else best_gain(model, {}, tables[name])
        assert extreme is not None
        limits[name] = (sense, level + 0.3 * (extreme - level))
    if best_gain(model, limits) is None:
        with pytest.raises(Infeasible):
            fmdp.plan(model, limits=limits)
        return
    plan = fmdp.plan(model, limits=limits)
    check(model, limits, plan)
    assert plan.gain <= free.gain + 1e-6


def test_several_limits_without_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixing, "LP_PAIRS", 0)
    solved = 0
    for seed in range(8):
        model = unichain(200 + seed, 2)
        limits = {name: ("<=", least(model, name) + 0.12) for name in ("q0", "q1")}
        if best_gain(model, limits) is not None:
            solved += 1
            check(model, limits, fmdp.plan(model, limits=limits))
    assert solved >= 3


def test_the_price_is_the_slope_of_the_gain() -> None:
    model = unichain(0, 1)
    level = 0.5 * (
        least(model, "q0")
        + fmdp.plan(model, limits={"q0": ("<=", 9.0)}).stats["limits"][0]["achieved"]
    )
    gains = [best_gain(model, {"q0": ("<=", level + step)}) for step in (-1e-4, 1e-4)]
    plan = fmdp.plan(model, limits={"q0": ("<=", level)})
    assert plan.stats["limits"][0]["price"] == pytest.approx((gains[1] - gains[0]) / 2e-4, rel=1e-3)


def with_restarts() -> FactoredMDP:
    """SysAdmin with the number of restarts per step as a quantity."""
    model = fmdp.problem("circle:4,dynamics=ippc")
    names = model.structure.action_values[0]
    table = np.array([float(not name.startswith("no")) for name in names])
    calls = fmdp.Quantity("restarts", (4,), table)
    return FactoredMDP(
        model.structure,
        model.transitions,
        model.rewards,
        name="c4",
        quantities=[calls],
        initial_state=model.initial_state,
    )


def test_restarts_of_a_circle() -> None:
    model = with_restarts()
    free = fmdp.plan(model, limits={"restarts": ("<=", 1.0)})
    assert free.stats["limits"][0]["achieved"] == pytest.approx(0.2467, abs=1e-4)
    assert not free.stats["limits"][0]["binding"]
    for value in (0.2, 0.15, 0.05, 0.0):
        limits = {"restarts": ("<=", value)}
        check(model, limits, fmdp.plan(model, limits=limits))
    both: Any = {"restarts": ("<=", 0.15), "working_0": (">=", 0.8)}
    check(model, both, fmdp.plan(model, limits=both))


def test_infeasible_limits_are_refused_with_a_certificate() -> None:
    model = unichain(3, 2)
    low = least(model, "q0")
    with pytest.raises(Infeasible, match=f"smallest long-run average of q0 is {low:.3f}"):
        fmdp.plan(model, limits={"q0": ("<=", low - 1e-3)})
    with pytest.raises(Infeasible, match="largest long-run average"):
        fmdp.plan(model, limits={"q0": (">=", 2.0)})
    check(model, {"q0": ("<=", low + 1e-3)}, fmdp.plan(model, limits={"q0": ("<=", low + 1e-3)}))


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"limits": {"calls0": ("<=", 1.0)}}, UnknownName, "must be one of"),
        ({"limits": {"q0": ("<", 1.0)}}, InvalidParameter, "'<='"),
        ({"limits": {"q0": ("<=", float("nan"))}}, InvalidParameter, "finite"),
        ({"limits": {"q0": ("<=", "x")}}, InvalidParameter, "finite"),
        ({"limits": 3}, InvalidParameter, "limits must be"),
        ({"limits": {"q0": ("<=", 1.0)}, "planner": "alp"}, InvalidParameter, "exact planner"),
        (
            {"limits": {"q0": ("<=", 1.0)}, "planner": "exact,criterion=discounted"},
            InvalidParameter,
            "criterion=average",
        ),
    ],
)
def test_bad_limits_are_refused(arguments: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        fmdp.plan(unichain(0, 1), **arguments)


def test_a_multichain_model_reports_its_gap() -> None:
    # The first step chooses one of two absorbing states: no stationary policy averages them.
    rows = np.zeros((3, 2, 3))
    rows[0, 0, 1] = rows[0, 1, 2] = rows[1, :, 1] = rows[2, :, 2] = 1.0
    model = FactoredMDP.from_factors(
        [3],
        [2],
        [([0, 1], rows)],
        [([0], [0.0, 0.0, 1.0])],
        quantities={"cost": ([0], [0.0, 0.0, 1.0])},
    )
    plan = fmdp.plan(model, limits={"cost": ("<=", 0.5)})
    assert plan.gain_upper >= plan.gain_lower
    for record in plan.stats["limits"]:
        assert record["achieved_upper"] <= 0.5 + 1e-9
    evaluated = fmdp.evaluate(model, plan.policy)
    assert evaluated.gain == pytest.approx(plan.gain, abs=1e-6)


def test_no_time_gives_the_bounds_so_far() -> None:
    limits = {"restarts": ("<=", 0.1)}
    plan = fmdp.plan(with_restarts(), "exact,max_seconds=1e-9", limits=limits)
    assert plan.status is fmdp.Status.TIME_LIMIT
    assert plan.policy is None
    assert plan.stats["limits"][0]["achieved"] is None


def test_a_misspelt_name_is_suggested() -> None:
    with pytest.raises(UnknownName, match='did you mean "restarts"'):
        fmdp.plan(with_restarts(), limits={"restart": ("<=", 0.1)})


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = str(tmp_path / "c.json"), str(tmp_path / "p.npz")
    fmdp.save(with_restarts(), path)
    arguments = ["plan", path, "--limit", "restarts<=0.15", "--limit", "working_0 >= 0.5"]
    assert main([*arguments, "--out", out, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    first, second = printed["limits"]
    assert first["achieved"] == pytest.approx(0.15, abs=1e-7)
    assert (first["binding"], second["binding"]) == (True, False)
    assert printed["gain_upper"] - printed["gain_lower"] < 1e-5
    assert main(["evaluate", path, out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gain"] == pytest.approx(printed["gain"], abs=1e-6)
    assert main(arguments) == 0
    assert "limit restarts <= 0.15" in capsys.readouterr().out
    assert main(["plan", path, "--limit", "restarts<=-1", "--out", out, "--json"]) == 2
    caught = capsys.readouterr()
    assert json.loads(caught.out)["status"] == "infeasible"
    assert "smallest long-run average of restarts" in caught.err
    for bad in ("restarts", "restarts<=x", "restart<=0.1", "<=3"):
        assert main(["plan", path, "--limit", bad]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
