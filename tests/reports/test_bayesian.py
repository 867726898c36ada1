"""Bayesian regret in reports: the mean over drawn models, and the bound where the theorem holds."""

from __future__ import annotations

from pathlib import Path

import pytest

import fmdp
from fmdp.experiments.api import spec_of
from fmdp.experiments.bayesian import RegretBound, regret_bounds
from fmdp.experiments.dataset import gather
from fmdp.experiments.executors import InThisProcess
from fmdp.experiments.store import Store
from fmdp.experiments.sweep import run_sweep
from fmdp.measures import diameter, psrl_regret_bound
from fmdp.reports.report import write_report

TRUE = {"c": 1.0, "prior": 0.5, "rewards": "known", "episodes": "arithmetic"}
SEEDS = 6


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on a Dirichlet prior, PSRL with the true prior and with others, and on a family."""
    out = tmp_path_factory.mktemp("bayes")
    learners = {
        "true": fmdp.PSRL(**TRUE),
        "wrong prior": fmdp.PSRL(**TRUE | {"prior": 0.4}),
        "wrong c": fmdp.PSRL(**TRUE | {"c": 0.5}),
        "learns rewards": fmdp.PSRL(**TRUE | {"rewards": "learned"}),
        "other episodes": fmdp.PSRL(**TRUE | {"episodes": "growing"}),
    }
    problems = {"drawn": fmdp.DirichletPrior("circle:2", 0.5), "family": "random:2,seed=*"}
    spec = spec_of(problems, learners, seeds=SEEDS, steps=200)
    run_sweep(spec, out, workers=InThisProcess())
    return out


def test_the_bound_is_for_psrl_with_the_true_prior_alone(drawn: Path) -> None:
    with Store.open(drawn) as store:
        bounds = regret_bounds(store, gather(store))
    assert bounds.keys() == {"drawn"}
    bound = bounds["drawn"]
    assert bound.label == "true"
    prior = fmdp.DirichletPrior("circle:2", 0.5)
    diameters = [diameter(prior.draw(seed)) for seed in range(SEEDS)]
    largest = max(found.upper for found in diameters if found is not None)
    assert bound.diameter == largest
    structure = fmdp.problem("circle:2").structure
    expected = psrl_regret_bound(
        structure,
        largest,
        200,
        rewards_known=True,
        outside=1 / (SEEDS + 1),
        tolerance=1e-3 * structure.reward_range_total,
    )
    assert bound.at(200) == pytest.approx(expected)


def test_the_bound_says_something_from_where_it_crosses_the_reward_range() -> None:
    bound = RegretBound("PSRL", fmdp.problem("random:2,parents=1").structure, 5.0, 9, 0.0)
    useful = bound.first_useful
    assert bound.at(int(1.02 * useful)) < bound.reward_range * 1.02 * useful
    assert bound.at(int(useful / 1.02)) > bound.reward_range * useful / 1.02
    assert RegretBound("PSRL", bound.structure, 5.0, 9, bound.reward_range).first_useful == float(
        "inf"
    )


@pytest.mark.slow
def test_the_report_draws_means_and_the_bound(drawn: Path, tmp_path: Path) -> None:
    report = write_report(drawn, tmp_path / "report")
    assert {f"bayesian-regret.{kind}" for kind in ("png", "svg", "pdf")} <= {
        path.name for path in report.files
    }
    first, second = report.notes[:2]
    assert first.startswith("On drawn every seed draws its own model")
    assert "Theorem 1 of Xu & Tewari (2020) with its constants bounds true by" in first
    assert "more than the 400 that can be lost at all" in first
    assert "Theorem 1" not in second
    captions = (tmp_path / "report" / "captions.txt").read_text()
    assert "bayesian-regret: Bayesian regret on drawn, family" in captions
    assert first.split(".")[0] in (tmp_path / "report" / "index.html").read_text()
