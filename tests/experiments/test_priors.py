"""Priors: a model per seed, the same in every sweep, and one cell per learner in results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fmdp
from fmdp.errors import FmdpError
from fmdp.experiments.api import spec_of
from fmdp.experiments.executors import InThisProcess, Processes
from fmdp.experiments.measures import repeatable
from fmdp.experiments.priors import draws_of
from fmdp.experiments.spec import parse_spec
from fmdp.experiments.store import Store
from fmdp.experiments.sweep import run_sweep

SPEC = """
name = "bayes"
steps = 60
seeds = 3
problems = ["random:2,seed=*", { prior = "circle:2", concentration = 0.5, label = "circles" }]

[[learners]]
name = "psrl"
set = { c = 1.0, prior = 0.5, rewards = "known", episodes = "arithmetic" }

[[learners]]
name = "random"
"""


def test_a_family_prior_draws_the_family_with_the_seed_of_the_run() -> None:
    prior = fmdp.FamilyPrior("random:3,parents=1")
    assert str(prior) == "random:3,parents=1,seed=*"
    assert str(fmdp.FamilyPrior("random:3 , seed=*,parents=1")) == str(prior)
    for seed in (0, 7):
        expected = fmdp.problem(f"random:3,parents=1,seed={seed}")
        assert prior.draw(seed).content_hash == expected.content_hash


def test_dirichlet_rows_have_the_moments_of_their_distribution() -> None:
    prior = fmdp.DirichletPrior("random:1,values=3,actions=2", 2.0)
    drawn = np.array([prior.draw(seed).transitions[0] for seed in range(400)])  # [n, rows, 3]
    rows = drawn.reshape(-1, 3)
    # Dirichlet(2, 2, 2): mean 1/3, variance (1/3)(2/3)/7; the standard error is below 0.005.
    assert rows.mean(axis=0) == pytest.approx(1 / 3, abs=0.02)
    assert rows.var(axis=0) == pytest.approx(2 / 63, abs=0.006)
    # Rows are independent of each other.
    assert abs(np.corrcoef(drawn[:, 0, 0], drawn[:, 1, 0])[0, 1]) < 0.2
    base = fmdp.problem("random:1,values=3,actions=2")
    assert prior.draw(3).structure == base.structure
    assert all(map(np.array_equal, prior.draw(3).rewards, base.rewards))


def test_draws_repeat_and_uniform_rewards_stay_in_their_ranges() -> None:
    prior = fmdp.DirichletPrior("circle:3", rewards="uniform")
    one, same, other = prior.draw(1), prior.draw(1), prior.draw(2)
    assert one.content_hash == same.content_hash != other.content_hash
    for means, (low, high) in zip(one.rewards, one.structure.reward_ranges, strict=True):
        assert ((low <= means) & (means <= high)).all()
    assert not np.array_equal(one.rewards[0], other.rewards[0])


@pytest.mark.parametrize("problem", ["circle:4,dynamics=guestrin,alike=machines", "maintenance:2"])
def test_rows_that_are_alike_are_drawn_once(problem: str) -> None:
    structure = fmdp.problem(problem).structure
    drawn = fmdp.DirichletPrior(problem).draw(0)
    rows: dict[int, np.ndarray] = {}
    for i in range(structure.m):
        numbers = structure.transition_classes_of(i)
        for number, row in zip(numbers.tolist(), drawn.transitions[i], strict=True):
            assert np.array_equal(rows.setdefault(number, row), row)
    assert len(rows) == structure.n_transition_classes


def test_the_same_spec_gives_the_same_models_and_keys_in_toml_and_python() -> None:
    spec = parse_spec(SPEC)
    again = spec_of(
        {"random:2,seed=*": "random:2,seed=*", "circles": fmdp.DirichletPrior("circle:2", 0.5)},
        [
            fmdp.PSRL(c=1.0, prior=0.5, rewards="known", episodes="arithmetic"),
            "random",
        ],
        seeds=3,
        steps=60,
    )
    assert [run.key for run in spec.runs()] == [run.key for run in again.runs()]
    # The store keeps a spec that makes the same runs.
    written = parse_spec(again.text)
    assert [run.key for run in written.runs()] == [run.key for run in again.runs()]
    assert [problem.id for problem in written.problems] == ["random:2,seed=*", "circles"]
    assert len({run.model.content_hash for run in spec.runs()}) == 6
    # More seeds keep the models of the first.
    more = parse_spec(SPEC.replace("seeds = 3", "seeds = 5"))
    keys = {run.key for run in more.runs()}
    assert {run.key for run in spec.runs()} < keys


def test_a_drawn_model_is_not_the_run_of_the_same_model_alone() -> None:
    drawn = spec_of("random:2,seed=*", "random", seeds=[4], steps=5)
    alone = spec_of("random:2,seed=4", "random", seeds=[4], steps=5)
    (one,), (other,) = drawn.runs(), alone.runs()
    assert one.model.content_hash == other.model.content_hash
    assert one.key != other.key


@pytest.mark.slow
def test_serial_parallel_and_resumed_sweeps_agree(tmp_path: Path) -> None:
    spec = parse_spec(SPEC)
    run_sweep(spec, tmp_path / "serial", workers=InThisProcess())
    run_sweep(spec, tmp_path / "parallel", workers=Processes(2))
    run_sweep(parse_spec(SPEC.replace("seeds = 3", "seeds = 1")), tmp_path / "resumed")
    summary = run_sweep(spec, tmp_path / "resumed", workers=InThisProcess())
    assert summary.already == 4
    with Store.open(tmp_path / "serial") as store:
        expected = {run.key: repeatable(run.measures) for run in store.runs()}
    for name in ("parallel", "resumed"):
        with Store.open(tmp_path / name) as store:
            assert {run.key: repeatable(run.measures) for run in store.runs()} == expected


def test_results_have_one_cell_per_learner_and_prior(tmp_path: Path) -> None:
    run_sweep(parse_spec(SPEC), tmp_path, workers=InThisProcess())
    with fmdp.load_results(tmp_path) as results:
        summary = results.summary_table("regret")
        assert summary["runs"].tolist() == [3] * 4
        assert [*dict.fromkeys(summary["problem"].tolist())] == ["random:2,seed=*", "circles"]
        runs = results.runs_table()
        assert all("dirichlet" in text for text in runs["prior"][runs["problem"] == "circles"])
        # Every seed has a gain of its own.
        assert len(set(runs["gain"].tolist())) == 6


class Two(fmdp.Prior):
    """One of two models."""

    def __str__(self) -> str:
        return "two"

    def draw(self, seed: int) -> fmdp.FactoredMDP:
        return fmdp.problem("circle:2" if seed % 2 else "circle:3")


def test_a_prior_of_a_user_may_draw_several_structures() -> None:
    spec = spec_of(Two(), ["psrl", "random"], seeds=2, steps=5)
    assert [run.model.structure.m for run in spec.runs()] == [3, 3, 2, 2]
    assert {run.cell.problem.id for run in spec.runs()} == {"two"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('"jao:2,seed=*"', "jao has no 'seed' setting, so 'jao:2,seed=*' cannot be drawn"),
        ('"random:2,seed=1,seed=*"', "gives a seed; a prior takes the seed of every run"),
        ('{ prior = "circle:2", concentration = 0 }', "'concentration' parameter of a Dirichlet"),
        ('{ prior = "circle:2", rewards = "normal" }', "must be one of fixed, uniform"),
        ('{ prior = "random:2,seed=*" }', "'prior' takes one model"),
        ('{ problem = "circle:2", concentration = 1.0 }', "'concentration' is for a 'prior'"),
        ('{ label = "x" }', "a problem needs 'problem' or 'prior', one of the two; got neither"),
        ('{ prior = "circle:2", weight = 1 }', "a problem has no key 'weight'"),
        ('{ prior = "nothing:2" }', "unknown problem 'nothing'"),
    ],
)
def test_a_prior_that_does_not_fit_is_refused_in_one_line(entry: str, message: str) -> None:
    text = f'steps = 5\nseeds = 2\nproblems = [{entry}]\nlearners = ["random"]\n'
    with pytest.raises(FmdpError) as error:
        parse_spec(text, "a.toml")
    assert message in str(error.value)
    assert str(error.value).startswith("a.toml: problems[0]: ")
    assert "\n" not in str(error.value)


def test_seeds_and_sizes_that_cannot_be_drawn_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FmdpError, match="cannot draw the model of seed 4294967296"):
        spec_of("random:2,seed=*", "random", seeds=[2**32], steps=5)
    monkeypatch.setattr("fmdp.experiments.priors.MOST_NUMBERS", 100)
    with pytest.raises(FmdpError, match="for 9 seeds have more than 100 numbers"):
        draws_of(fmdp.FamilyPrior("random:2"), range(9))
    model = fmdp.problem("circle:2")
    narrow = fmdp.Intervals(
        tuple(0.9 * table for table in model.transitions),
        tuple(np.minimum(1.0, 1.1 * table) for table in model.transitions),
        model.rewards,
        model.rewards,
    )
    with pytest.raises(FmdpError, match="it has intervals, which drawn rows would break"):
        fmdp.DirichletPrior(replace(model, intervals=narrow))
