"""Priors: distributions over models, from which every seed of a sweep draws its own model.

The mean regret over seeds is then the Bayesian regret E[R_T] of Theorem 1 of Xu & Tewari (2020).

    FamilyPrior("random:4")          random:4,seed=SEED, a family with a `seed` setting
    DirichletPrior("circle:4")       the structure of circle:4, every row from Dirichlet(1, ..., 1)

A draw depends only on the prior and the seed, so serial, parallel and resumed sweeps meet the same
models. docs/experiments.md, "Bayesian regret".
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fmdp._base.foreign_code import place_of
from fmdp._base.parameters import Choice, Integer, Number, quoted
from fmdp.errors import FmdpError, InvalidParameter, TooLarge
from fmdp.learning.posterior import dirichlet_parameters, sample_rows
from fmdp.learning.statistics import Statistics
from fmdp.model import FactoredMDP
from fmdp.model.entries import split_cells, split_reward_entries
from fmdp.problems import problem
from fmdp.problems.family import Problem
from fmdp.problems.ids import is_path, parse_id

EVERY_SEED = "seed=*"
"""In a problem id: every run has the seed of the run."""
MOST_NUMBERS = 2**27
"""Most numbers in the tables of all models that a sweep draws: one GiB."""

CONCENTRATION = Number(
    "concentration", 1.0, "Dirichlet parameter of every value of a row", low=1e-9, high=1e9
)
REWARDS = Choice(
    "rewards",
    "fixed",
    "mean rewards of a draw: those of the problem, or uniform on their ranges",
    choices=("fixed", "uniform"),
)
_SEED = Integer("seed", 0, "", low=0)
_STREAM = 0x5052494F  # separates draws of models from the random numbers of runs of the same seed


def has_every_seed(text: str) -> bool:
    """Return whether a problem id has `seed=*` among its settings."""
    return any(part.replace(" ", "") == EVERY_SEED for part in text.split(",")[1:])


class Prior(ABC):
    """A distribution over models. A subclass defines `draw`; `str` gives its name in results."""

    @abstractmethod
    def draw(self, seed: int) -> FactoredMDP:
        """Return the model of a seed; the same model on every call.

        Parameters
        ----------
        seed
            The seed of the run, a whole number from 0.

        Returns
        -------
        FactoredMDP
            A model of any structure; one prior may draw several structures.
        """

    @property
    def identity(self) -> dict[str, Any]:
        """The identity of this prior in JSON types; runs of equal priors form one cell."""
        return {"kind": place_of(type(self)), "name": str(self)}


class FamilyPrior(Prior):
    """Models of a problem family with a `seed` setting, which is the seed of the run.

    Parameters
    ----------
    problem
        An id without a seed ("random:4", "circle:4,reward=mean") or with `seed=*`, or an object
        such as fmdp.problems.RandomModel(size=4).
    folder
        Another folder in which modules of ids are searched.

    Raises
    ------
    InvalidParameter
        If the family has no `seed` setting, or the id gives a seed.
    """

    def __init__(
        self, problem: str | Problem, *, folder: str | os.PathLike[str] | None = None
    ) -> None:
        if not isinstance(problem, str | Problem):
            raise InvalidParameter(
                f"a prior over a family must be given a problem id; got {quoted(problem)}"
            )
        text = str(problem)
        parts = [part.strip() for part in text.split(",")]
        if isinstance(problem, str) and is_path(text):
            raise InvalidParameter(
                f"a model file has no seed, so {quoted(text)} cannot be drawn; {EVERY_SEED} is for "
                f"families with a 'seed' setting"
            )
        self._parts = [part for part in parts if part.replace(" ", "") != EVERY_SEED]
        self._folder = None if folder is None else Path(folder)
        base = parse_id(",".join(self._parts), self._folder)
        if "seed" not in {parameter.name for parameter in base.parameters}:
            raise InvalidParameter(
                f"{base.owner()} has no 'seed' setting, so {quoted(text)} cannot be drawn; "
                f"a DirichletPrior draws models of any structure"
            )
        if any(part.partition("=")[0].strip() == "seed" for part in self._parts):
            raise InvalidParameter(
                f"{quoted(text)} gives a seed; a prior takes the seed of every run"
            )
        self._name = f"{base},{EVERY_SEED}"

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"FamilyPrior({str(self)!r})"

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": "family", "name": str(self)}

    def draw(self, seed: int) -> FactoredMDP:
        """Return the model of the family with this seed.

        Parameters
        ----------
        seed
            Any seed that the family accepts.
        """
        seed = _SEED.check(seed, "FamilyPrior.draw")
        return problem(parse_id(",".join([*self._parts, f"seed={seed}"]), self._folder))


class DirichletPrior(Prior):
    """Models of one structure whose transition rows have independent Dirichlet distributions.

    Rows that the structure knows to be alike are drawn once. Everything else is that of the given
    model: noise, initial state, constraints, drawn derived variables. With c=1, prior equal to the
    concentration and rewards=known (for fixed rewards), PSRL samples from the exact posterior.

    Parameters
    ----------
    problem
        The model, its id, or the path of its file. Only its transition rows (and, for uniform
        rewards, its mean rewards) are replaced.
    concentration
        Dirichlet parameter of every value: 1 is uniform on the simplex, less is more extreme.
    rewards
        "fixed" keeps the mean rewards, "uniform" draws each uniformly on the range of its factor.
    folder
        Another folder in which modules of ids are searched.

    Raises
    ------
    InvalidParameter
        If the concentration is not positive, or the model has intervals, which drawn rows would
        break.
    """

    def __init__(
        self,
        problem: str | os.PathLike[str] | Problem | FactoredMDP,
        concentration: float = 1.0,
        *,
        rewards: str = "fixed",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        owner = "a Dirichlet prior"
        self.concentration = float(CONCENTRATION.check(concentration, owner))
        self.rewards = str(REWARDS.check(rewards, owner))
        self.model = _model(problem, folder)
        base = self.model.name or "model"
        if self.model.intervals is not None:
            raise InvalidParameter(
                f"{owner} cannot be put on {base}: it has intervals, which drawn rows would break"
            )

    def __str__(self) -> str:
        drawn = ",rewards=uniform" if self.rewards == "uniform" else ""
        name = self.model.name or f"model {self.model.content_hash[:8]}"
        return f"dirichlet({name}),concentration={CONCENTRATION.show(self.concentration)}{drawn}"

    def __repr__(self) -> str:
        name = self.model.name or "a model"
        return f"DirichletPrior({name!r}, {self.concentration!r}, rewards={self.rewards!r})"

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "kind": "dirichlet",
            "model": self.model.content_hash,
            "concentration": self.concentration,
            "rewards": self.rewards,
        }

    def draw(self, seed: int) -> FactoredMDP:
        """Return a model of the structure with rows drawn by this seed.

        Parameters
        ----------
        seed
            A whole number from 0.
        """
        seed = _SEED.check(seed, "DirichletPrior.draw")
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, _STREAM))))
        structure, statistics = self.model.structure, Statistics(self.model.structure)
        parameters = dirichlet_parameters(statistics, 1.0, self.concentration)
        rows = split_cells(structure, sample_rows(parameters, statistics.entries, generator))
        means = self.model.rewards
        if self.rewards == "uniform":
            low, high = statistics.reward_lo, statistics.reward_hi
            drawn = low + (high - low) * generator.random(len(low))
            means = split_reward_entries(structure, drawn)
        return replace(self.model, transitions=rows, rewards=means, name=f"{self}, seed {seed}")


def _model(given: Any, folder: str | os.PathLike[str] | None) -> FactoredMDP:
    return given if isinstance(given, FactoredMDP) else problem(given, folder=folder)


def draws_of(prior: Prior, seeds: Sequence[int]) -> dict[int, FactoredMDP]:
    """Return the model of every seed; raise if one cannot be drawn or all are too large."""
    drawn: dict[int, FactoredMDP] = {}
    numbers = 0
    for seed in seeds:
        try:
            model = prior.draw(seed)
        except FmdpError as error:
            error.args = (f"the prior {prior} cannot draw the model of seed {seed}: {error}",)
            raise
        if not isinstance(model, FactoredMDP):
            raise InvalidParameter(
                f"draw of the prior {prior} must return a FactoredMDP; got {quoted(model)}"
            )
        drawn[seed] = model
        numbers += sum(table.size for table in (*model.transitions, *model.rewards))
        if numbers > MOST_NUMBERS:
            raise TooLarge(
                f"the models that the prior {prior} draws for {len(seeds):,} seeds have more than "
                f"{MOST_NUMBERS:,} numbers; use fewer seeds or a smaller problem",
                8 * numbers,
                8 * MOST_NUMBERS,
            )
    return drawn
