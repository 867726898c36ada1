"""Imported models against pyRDDLGym's simulator: thousands of its steps, with controls that must
fail (referee.py says how)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fmdp.interop.rddl import imported, write
from fmdp.model import FactoredMDP
from fmdp.problems import problem

from . import referee

pytest.importorskip("pyRDDLGym")
pytest.importorskip("rddlrepository")


# The chance to fail a right model: there are about forty comparisons, seeds are fixed.
LUCK = 1e-4
CERTAIN = 1e-9

QUICK = (
    "rddl:SysAdmin_MDP_ippc2011:1",
    "rddl:Elevators_MDP_ippc2011:2",  # several actions at once, constraints
    "rddl:Navigation_MDP_ippc2011:1",  # a group, and a place that is nowhere
    "rddl:CrossingTraffic_MDP_ippc2011:1",  # a group with other parents; fluents that never change
    "rddl:TriangleTireworld_MDP_ippc2014:1",
    "rddl:EarthObservation_ippc2018:1",  # Discrete, preconditions
    "rddl:Blackjack_arcade:0",  # termination, next values that others read, joint states listed
    "rddl:Intruders_Discrete:0",  # groups that share a draw
)
SLOW = (
    *(f"rddl:SysAdmin_MDP_ippc2011:{number}" for number in (2, 4, 10)),
    *(f"rddl:GameOfLife_MDP_ippc2011:{number}" for number in (1, 4, 10)),
    *(f"rddl:Elevators_MDP_ippc2011:{number}" for number in (1, 5, 9)),
    *(f"rddl:SkillTeaching_MDP_ippc2011:{number}" for number in (1, 3, 8)),
    *(f"rddl:Navigation_MDP_ippc2011:{number}" for number in (5, 10)),
    *(f"rddl:CrossingTraffic_MDP_ippc2011:{number}" for number in (3, 5, 10)),
    *(f"rddl:CooperativeRecon_MDP_ippc2011:{number}" for number in (1, 5)),
    *(f"rddl:Traffic_CTM_MDP_ippc2011:{number}" for number in (1, 10)),
    *(f"rddl:Wildfire_MDP_ippc2014:{number}" for number in (1, 6)),
    *(f"rddl:AcademicAdvising_MDP_ippc2014:{number}" for number in (1, 2, 5)),
    *(f"rddl:TriangleTireworld_MDP_ippc2014:{number}" for number in (3,)),
    *(f"rddl:Tamarisk_MDP_ippc2014:{number}" for number in (1, 4)),
    "rddl:AcademicAdvising_ippc2018:1",
    "rddl:CooperativeRecon_ippc2018:1",  # one action variable for each agent
    "rddl:WildlifePreserve_ippc2018:2",  # rewards that are drawn
    "rddl:Knapsack_or:0",
    "rddl:Manufacturer_ippc2018:1",
    "rddl:RedFinnedBlueEye_ippc2018:1",
)
CERTAINLY = (
    "rddl:TSP_or:0",
    "rddl:Eight_arcade:0",
    "rddl:TowerOfHanoi_arcade:0",
    "rddl:Sidewalk_rddlsim:0",
    pytest.param("rddl:Sokoban_arcade:0", marks=pytest.mark.slow),
)
"""Problems without chance."""


def _accepted(name: str, **sizes: int) -> None:
    verdict = referee.compare(name, **sizes)
    assert verdict.impossible == 0
    assert verdict.wrong_rewards == 0
    assert verdict.freedom > 0
    assert verdict.chance > LUCK, verdict


@pytest.mark.parametrize("name", QUICK)
def test_the_simulator_draws_what_the_model_says(name: str) -> None:
    _accepted(name, pairs=6, draws=150)


@pytest.mark.parametrize("name", CERTAINLY)
def test_the_simulator_goes_where_the_model_goes(name: str) -> None:
    verdict = referee.compare(name, pairs=20, draws=2)
    assert (verdict.impossible, verdict.wrong_rewards, verdict.freedom) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_the_simulator_draws_what_the_model_says_at_length(name: str) -> None:
    _accepted(name, pairs=16, draws=300)


def test_shared_draws_have_the_joint_law_of_the_simulator() -> None:
    """A die decides which values have been seen; its faces exclude each other."""
    name = "rddl:PushYourLuck_ippc2018:1"
    model = imported(name).model
    assert not all(variable.deterministic for variable in model.structure.derived)
    verdict = referee.compare(name, pairs=16, draws=200)
    assert verdict.impossible == 0
    assert verdict.freedom > 0
    assert verdict.chance > LUCK, verdict
    (die,) = model.structure.derived
    loaded = replace(die, table=0.5 * die.table + 0.5 * np.eye(die.size)[:1])
    wrong = FactoredMDP(
        replace(model.structure, derived=(loaded,)),
        model.transitions,
        model.rewards,
        initial_state=model.initial_state,
    )
    assert referee.compare(name, pairs=16, draws=200, model=wrong).chance < CERTAIN


@pytest.mark.parametrize("name", [QUICK[0], QUICK[5]])
def test_a_model_with_other_chances_is_rejected(name: str) -> None:
    wrong = referee.perturbed(imported(name).model)
    verdict = referee.compare(name, pairs=6, draws=150, model=wrong)
    assert verdict.chance < CERTAIN, verdict


def test_a_model_that_rules_out_what_happens_is_rejected() -> None:
    name = QUICK[0]
    wrong = referee.perturbed(imported(name).model, by=1.0)
    assert referee.compare(name, pairs=4, draws=50, model=wrong).impossible > 0


def test_a_model_with_other_rewards_is_rejected() -> None:
    name = QUICK[2]
    found = imported(name).model
    wrong = type(found)(
        found.structure,
        found.transitions,
        [means * (1 - 1e-6) for means in found.rewards],
        found.noise,
        found.initial_state,
        found.name,
    )
    assert referee.compare(name, pairs=2, draws=20, model=wrong).wrong_rewards > 0


@pytest.mark.parametrize("name", ["circle:3,dynamics=guestrin", "riverswim:2"])
def test_the_simulator_runs_what_was_written(name: str, tmp_path: Path) -> None:
    paths = [tmp_path / "domain.rddl", tmp_path / "instance.rddl"]
    write(problem(name), paths)
    _accepted("+".join(map(str, paths)), pairs=4, draws=150, seed=1)
