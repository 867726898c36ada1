"""The planner coupled: chosen by itself, inside learners, from the command line, interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp import Status
from fmdp.cli import main
from fmdp.errors import InvalidParameter
from fmdp.planning.choice import choose_planner
from fmdp.planning.coupled import Coupled, FleetPolicy
from fmdp.testing import check_planner

from .fleets import fleet, gast, mixed_fleet


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["best", "id"])
def test_the_contract_of_planners_on_fleets(rule: str) -> None:
    models = [fleet(3, 2, 1), fleet(3, 3, 2, levels=2, actions=3), mixed_fleet(1)]
    check_planner(Coupled(policy=rule, simulated_steps=50), models)


def test_it_is_chosen_where_exact_is_too_large_and_parts_share_budgets() -> None:
    planner, reason = choose_planner(fleet(40, 3, 5).structure)
    assert planner == Coupled()
    assert reason is not None
    assert reason.endswith("its parts share budgets only")
    independent, reason = choose_planner(fmdp.problem("riverswim:12").structure)
    assert independent.name == "coupled"
    assert reason is not None
    assert reason.endswith("its parts are independent")
    assert choose_planner(fleet(5, 3, 2).structure).planner.name == "exact"
    # Parts that depend on each other, or a factor over all parts: the linear program.
    assert choose_planner(fmdp.problem("circle:30").structure).planner.name == "alp"
    joined = fmdp.problem("maintenance:24,crew=2,k=12,penalty=0").structure
    assert choose_planner(joined).planner.name == "alp"


def test_a_plan_of_a_large_fleet(capsys: Any, tmp_path: Path) -> None:
    model = fleet(300, 7, 40, levels=4, seed=1)
    plan = fmdp.plan(model, "coupled,simulated_steps=200")
    assert plan.planner == "coupled"
    assert plan.status is Status.CONVERGED
    record = plan.stats["fleet"]
    assert (record["parts"], record["types"]) == (300, 7)
    assert [kind["copies"] for kind in record["largest_types"]] == [43] * 6 + [42]
    (budget,) = record["budgets"]
    assert budget["name"] == "crew"
    assert budget["used"] == pytest.approx(40.0, abs=1e-3)
    uses = sum(k["copies"] * k["mean_use"][0] for k in record["largest_types"])
    assert uses == pytest.approx(budget["used"])
    lower, upper = record["simulated_gain_interval"]
    assert plan.gain_upper is not None
    assert lower <= record["simulated_gain"]
    assert upper <= plan.gain_upper
    assert lower >= 0.95 * plan.gain_upper
    fmdp.save(model, tmp_path / "fleet.json")
    assert (
        main(["plan", str(tmp_path / "fleet.json"), "--planner", "coupled,simulated_steps=20"]) == 0
    )
    text = capsys.readouterr().out
    assert "budget crew" in text
    assert "one more is worth" in text
    assert "an estimate, not certified" in text
    assert "certified bound" in text


def test_a_limit_of_zero_has_no_price_in_the_text(capsys: Any, tmp_path: Path) -> None:
    fmdp.save(fleet(6, 2, 0), tmp_path / "fleet.json")
    arguments = ["plan", str(tmp_path / "fleet.json"), "--planner", "coupled,simulated_steps=0"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "at most 0; nothing that costs is allowed" in text
    assert "is worth" not in text


def test_json_has_the_fleet(capsys: Any, tmp_path: Path) -> None:
    fmdp.save(fleet(6, 2, 2), tmp_path / "fleet.json")
    arguments = ["plan", str(tmp_path / "fleet.json"), "--planner", "coupled,policy=id", "--json"]
    assert main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["fleet"]["policy"] == "id"
    assert result["fleet"]["budgets"][0]["name"] == "crew"
    assert result["gain_lower"] <= result["gain_upper"]


def test_options_that_it_does_not_have_go_to_the_linear_program(
    capsys: Any, tmp_path: Path
) -> None:
    fmdp.save(fleet(40, 3, 5), tmp_path / "fleet.json")
    file = str(tmp_path / "fleet.json")
    main(["plan", file, "--ties", "first", "--max-seconds", "0.5", "--json"])
    assert json.loads(capsys.readouterr().out)["planner"] == "alp"
    assert main(["plan", file, "--planner", "coupled", "--criterion", "finite"]) == 2
    error = capsys.readouterr().err
    assert "'criterion' parameter of planner coupled must be one of average, discounted" in error


def test_warm_starts_find_the_same_bound() -> None:
    first, second = fleet(50, 5, 7, seed=0), fleet(50, 5, 7, seed=1)
    planner = Coupled(simulated_steps=0)
    prepared = planner.prepare(first.structure)
    prepared.solve(first)
    warm = prepared.solve(second)
    cold = planner.prepare(first.structure).solve(second)
    assert warm.gain_upper == pytest.approx(cold.gain_upper, abs=1e-5)
    assert isinstance(warm.policy, FleetPolicy)
    assert warm.policy.rule == "priority"
    assert warm.stats["fleet"]["simulated_gain"] is None


def test_optimistic_tables_are_refused() -> None:
    model = fleet(4, 2, 1)
    prepared = Coupled().prepare(model.structure)
    with pytest.raises(InvalidParameter, match="planner coupled plans for models"):
        prepared.solve(fmdp.OptimisticTables.from_model(model))


def test_limits_on_time_and_rounds_end_with_a_bound_and_a_policy() -> None:
    model = fleet(40, 40, 6, seed=2)
    best = Coupled(simulated_steps=0).plan(model).gain_upper
    early = Coupled(max_iterations=2, simulated_steps=20).plan(model)
    assert early.status is Status.ITERATION_LIMIT
    assert early.policy is not None
    assert best is not None
    assert early.gain_upper is not None
    assert early.gain_upper >= best - 1e-9
    late = Coupled(max_seconds=1e-9).plan(model)
    assert late.status is Status.TIME_LIMIT


def test_ctrl_c_ends_with_the_bound_so_far() -> None:
    def stop(report: Any) -> None:
        raise KeyboardInterrupt

    plan = Coupled().plan(fleet(40, 40, 6), progress=stop)
    assert plan.status is Status.INTERRUPTED
    assert plan.gain_upper is not None
    assert plan.policy is not None


def test_posterior_sampling_learns_a_fleet() -> None:
    """With `alike` types, in a fleet whose states cannot be listed."""
    model = fleet(60, 2, 8, seed=4)
    classes = np.arange(6)
    alike = fmdp.Alike(
        tuple(classes + 6 * (i % 2) for i in range(60)),
        tuple(classes + 6 * (i % 2) for i in range(60)),
    )
    old = model.structure
    structure = fmdp.Structure(
        old.state_sizes,
        old.action_sizes,
        old.transition_scopes,
        old.reward_scopes,
        alike=alike,
        constraints=old.constraints,
    )
    model = fmdp.FactoredMDP(structure, model.transitions, model.rewards)
    for learner in (fmdp.PSRL(), fmdp.Default()):
        agent = learner.start(structure, np.random.default_rng(0))
        assert isinstance(agent.planner, Coupled)
        run = fmdp.simulate(model, agent, 150)
        assert run.gain_kind == "upper_bound"
        assert run.gain is not None
        assert run.total_reward >= 0.9 * 150 * run.gain


@pytest.mark.slow
def test_ten_thousand_different_parts() -> None:
    model = fleet(10_000, 10_000, 1_428, levels=4, seed=1)
    plan = Coupled(policy="priority", simulated_steps=16).plan(model)
    assert plan.stats["fleet"]["types"] == 10_000
    assert plan.gain_upper is not None
    assert plan.stats["fleet"]["simulated_gain"] >= 0.98 * plan.gain_upper


def test_gaps_shrink_with_the_number_of_parts() -> None:
    """The ID policy on the published example, where priorities alone stay 7 % below."""
    gaps = []
    for n in (50, 1000):
        plan = Coupled(policy="id", simulated_steps=400).plan(gast(n))
        assert plan.gain_upper is not None
        gaps.append(1.0 - plan.stats["fleet"]["simulated_gain"] / plan.gain_upper)
    assert gaps[1] < 0.5 * gaps[0]
