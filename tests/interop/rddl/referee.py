"""An imported model against pyRDDLGym's own simulator, which nobody here wrote.

From states of a random walk, each with a random action, the simulator is asked for the next state
again and again. How often each joint value of some of the variables that are drawn came is compared
with the model's probabilities by Pearson's statistic, cells with few expected put together: laws
and their independence are tested at once. A next state that the model rules out, or a reward that
differs, is a failure at once.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import chi2

from fmdp import FactoredMDP
from fmdp.interop.rddl import Imported, imported
from fmdp.interop.rddl.grounding import object_name
from fmdp.interop.rddl.sources import files_of, parsed
from fmdp.model.products import flatten
from fmdp.model.spaces import encode

EXPECTED = 5.0
TOGETHER = 4
"""Variables of which the joint values are counted, others in every pair."""


@dataclass(frozen=True)
class Verdict:
    """What the comparison came to; `chance` is that of a statistic as large by luck."""

    steps: int
    statistic: float
    freedom: int
    impossible: int
    wrong_rewards: int

    @property
    def chance(self) -> float:
        return float(chi2.sf(self.statistic, self.freedom)) if self.freedom else 1.0


def simulator(problem: str, seed: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyRDDLGym.core.compiler.model import RDDLLiftedModel
        from pyRDDLGym.core.simulator import RDDLSimulator

        domain, instance, _ = files_of(problem)
        made = RDDLSimulator(RDDLLiftedModel(parsed(domain, instance)))
    made.seed(seed)
    made.reset()
    return made


def plain(fluents: Mapping[str, Any]) -> dict[str, Any]:
    """Values as fmdp has them: pyRDDLGym has objects with their @."""
    return {
        name: object_name(str(value)) if isinstance(value, str) else value
        for name, value in fluents.items()
    }


def allowed_action(
    model: FactoredMDP, state: tuple[int, ...], generator: np.random.Generator
) -> tuple[int, ...]:
    sizes = model.structure.action_sizes
    while True:
        action = [int(generator.integers(size)) for size in sizes]
        if len(action) > 1:  # few at work at once, as the constraints want it
            for place in generator.permutation(len(action))[1:]:
                if generator.random() < 0.7:
                    action[place] = 0
        if model.structure.allowed(state, tuple(action)):
            return tuple(action)


def compare(
    problem: str,
    *,
    pairs: int = 12,
    draws: int = 250,
    seed: int = 0,
    model: FactoredMDP | None = None,
) -> Verdict:
    """The verdict on a problem; `model` instead of the imported one is for controls."""
    found: Imported = imported(problem)
    tested = found.model if model is None else model
    generator = np.random.default_rng(seed)
    referee = simulator(problem, seed)
    names = list(referee.rddl.state_fluents)
    statistic, freedom, impossible, wrong_rewards = 0.0, 0, 0, 0
    for pair in range(pairs):
        for attempt in range(200):
            if generator.random() < 0.2:  # or a walk would stay where it is absorbed
                referee.reset()
            now = found.state(plain(referee.state))
            action = allowed_action(tested, now, generator)
            rows = [tested.transition_row(i, now, action) for i in range(tested.structure.m)]
            # Of four pairs three have something to draw, if such are found.
            if attempt > 2 and (pair % 4 == 0 or any(row.max() < 1 for row in rows)):
                break
            referee.step(referee.prepare_actions_for_sim(found.action(action)))
        given = referee.prepare_actions_for_sim(found.action(action))
        kept = {name: np.copy(referee.subs[name]) for name in names}
        seen: Counter[tuple[int, ...]] = Counter()
        for _ in range(draws):
            referee.subs.update({name: np.copy(value) for name, value in kept.items()})
            fluents, reward, _ = referee.step(given)
            seen[found.state(plain(fluents))] += 1
            wrong_rewards += abs(reward - tested.expected_reward(now, action)) > 1e-9
        for following in seen:
            if any(row[v] == 0 for row, v in zip(rows, following, strict=True)):
                impossible += 1
        drawn = [i for i, row in enumerate(rows) if row.max() < 1]
        some = sorted(generator.permutation(drawn)[:TOGETHER].tolist())
        counted: Counter[tuple[int, ...]] = Counter()
        for following, count in seen.items():
            counted[tuple(following[i] for i in some)] += count
        own, cells = pearson(counted, [rows[i] for i in some], draws)
        statistic += own
        freedom += max(cells - 1, 0)
    return Verdict(pairs * draws, statistic, freedom, impossible, int(wrong_rewards))


def compare_jointly(
    problem: str, *, pairs: int, draws: int, seed: int = 0, model: FactoredMDP | None = None
) -> Verdict:
    """The verdict on the joint law of all next values, for small models with shared draws."""
    found: Imported = imported(problem)
    tested = found.model if model is None else model
    s = tested.structure
    transitions = flatten(tested).transitions
    generator = np.random.default_rng(seed)
    referee = simulator(problem, seed)
    names = list(referee.rddl.state_fluents)
    statistic, freedom, impossible = 0.0, 0, 0
    for _ in range(pairs):
        if generator.random() < 0.2:
            referee.reset()
        now = found.state(plain(referee.state))
        action = allowed_action(tested, now, generator)
        row = transitions[encode(action, s.action_sizes), encode(now, s.state_sizes)]
        given = referee.prepare_actions_for_sim(found.action(action))
        kept = {name: np.copy(referee.subs[name]) for name in names}
        counted: Counter[tuple[int, ...]] = Counter()
        for _ in range(draws):
            referee.subs.update({name: np.copy(value) for name, value in kept.items()})
            fluents, _, _ = referee.step(given)
            counted[(encode(found.state(plain(fluents)), s.state_sizes),)] += 1
        impossible += sum(row[index] == 0 for (index,) in counted)
        own, cells = pearson(counted, [row], draws)
        statistic += own
        freedom += max(cells - 1, 0)
    return Verdict(pairs * draws, statistic, freedom, impossible, 0)


def pearson(
    counted: Mapping[tuple[int, ...], int], rows: Sequence[Any], draws: int
) -> tuple[float, int]:
    """The statistic of independent draws from some laws, and of how many cells it is."""
    statistic, cells = 0.0, 0
    rest_seen, rest_expected = float(draws), float(draws)
    for values in itertools.product(*(range(len(row)) for row in rows)):
        expected = draws * float(np.prod([row[v] for row, v in zip(rows, values, strict=True)]))
        if expected >= EXPECTED:
            statistic += (counted.get(values, 0) - expected) ** 2 / expected
            rest_seen -= counted.get(values, 0)
            rest_expected -= expected
            cells += 1
    if rest_expected >= EXPECTED:
        statistic += (rest_seen - rest_expected) ** 2 / rest_expected
        cells += 1
    return statistic, cells


def perturbed(model: FactoredMDP, by: float = 0.4) -> FactoredMDP:
    """The model with a part of every row's chances moved to the first value that it has: what the
    comparison must reject."""
    tables = []
    for table in model.transitions:
        first = np.zeros_like(table)
        first[np.arange(len(table)), (table > 0).argmax(axis=1)] = 1.0
        tables.append((1 - by) * table + by * first)
    return FactoredMDP(
        model.structure, tables, model.rewards, model.noise, model.initial_state, model.name
    )
