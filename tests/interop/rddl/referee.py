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
from fmdp.interop.rddl.expressions import atoms_of, is_random
from fmdp.interop.rddl.grounding import object_name
from fmdp.interop.rddl.sources import files_of, parsed
from fmdp.interop.rddl.world import World
from fmdp.model.spaces import encode

EXPECTED = 5.0
MOST_ATTEMPTS = 30
"""Most steps to a state and an action after which something is drawn."""
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


Branch = tuple[float, tuple[int, ...]]
"""The probability of values of the derived variables, and x = (state, action, derived)."""


def branches(model: FactoredMDP, state: Sequence[int], action: Sequence[int]) -> list[Branch]:
    """Return what may be drawn inside a step, with its probability."""
    made: list[Branch] = [(1.0, (*state, *action))]
    for variable in model.structure.derived:
        longer: list[Branch] = []
        for weight, x in made:
            entry = variable.table[_row(model, variable.scope, x)]
            if variable.deterministic:
                longer.append((weight, (*x, int(entry))))
            else:
                drawn = np.flatnonzero(entry).tolist()
                longer += [(weight * float(entry[v]), (*x, v)) for v in drawn]
        made = longer
    return made


def _row(model: FactoredMDP, scope: Sequence[int], x: Sequence[int]) -> int:
    return encode([x[v] for v in scope], [model.structure.all_sizes[v] for v in scope])


class Step:
    """The law of the next state under a model, given a state and an action."""

    def __init__(self, model: FactoredMDP, state: Sequence[int], action: Sequence[int]) -> None:
        self.weights, self.rows = [], []
        self.reward = 0.0
        """The expected reward."""
        for weight, x in branches(model, state, action):
            self.weights.append(weight)
            for means, scope in zip(model.rewards, model.structure.reward_scopes, strict=True):
                self.reward += weight * float(means.reshape(-1)[_row(model, scope, x)])
            self.rows.append(
                [
                    table.reshape(-1, size)[_row(model, scope, x)]
                    for table, size, scope in zip(
                        model.transitions,
                        model.structure.state_sizes,
                        model.structure.transition_scopes,
                        strict=True,
                    )
                ]
            )

    def chance(self, values: Mapping[int, int]) -> float:
        """Return the probability that some variables have these values next."""
        return sum(
            weight * float(np.prod([rows[i][v] for i, v in values.items()]))
            for weight, rows in zip(self.weights, self.rows, strict=True)
        )

    def support(self, variable: int) -> list[int]:
        return np.flatnonzero(np.sum([rows[variable] for rows in self.rows], axis=0)).tolist()


def compare(
    problem: str,
    *,
    pairs: int = 12,
    draws: int = 250,
    seed: int = 0,
    model: FactoredMDP | None = None,
) -> Verdict:
    """Return the verdict on a problem; `model` instead of the imported one is for controls."""
    found: Imported = imported(problem)
    tested = found.model if model is None else model
    generator = np.random.default_rng(seed)
    referee = simulator(problem, seed)
    names = list(referee.rddl.state_fluents)
    certain = _has_certain_rewards(found)
    spread = sum(float(np.ptp(means)) for means in tested.rewards)
    statistic, freedom, impossible, wrong_rewards = 0.0, 0, 0, 0
    action = allowed_action(tested, found.state(plain(referee.state)), generator)
    for pair in range(pairs):
        for attempt in range(MOST_ATTEMPTS):
            referee.step(referee.prepare_actions_for_sim(found.action(action)))
            # A walk would stay where it is absorbed; after an end nothing is said.
            if generator.random() < 0.2 or referee.check_terminal_states():
                referee.reset()
            now = found.state(plain(referee.state))
            action = allowed_action(tested, now, generator)
            step = Step(tested, now, action)
            drawn = [i for i in range(tested.structure.m) if len(step.support(i)) > 1]
            # Of four pairs three have something to draw, if such are found.
            if attempt > 2 and (pair % 4 == 0 or drawn):
                break
        given = referee.prepare_actions_for_sim(found.action(action))
        kept = {name: np.copy(referee.subs[name]) for name in names}
        seen: Counter[tuple[int, ...]] = Counter()
        rewards = []
        for _ in range(draws):
            referee.subs.update({name: np.copy(value) for name, value in kept.items()})
            fluents, reward, _ = referee.step(given)
            seen[found.state(plain(fluents))] += 1
            rewards.append(float(reward))
        wrong_rewards += _wrong(rewards, step.reward, certain, spread)
        impossible += sum(step.chance(dict(enumerate(following))) == 0 for following in seen)
        some = sorted(generator.permutation(drawn)[:TOGETHER].tolist())
        counted: Counter[tuple[int, ...]] = Counter()
        for following, count in seen.items():
            counted[tuple(following[i] for i in some)] += count
        own, cells = pearson(counted, step, some, draws)
        statistic += own
        freedom += max(cells - 1, 0)
    return Verdict(pairs * draws, statistic, freedom, impossible, int(wrong_rewards))


def _has_certain_rewards(found: Imported) -> bool:
    """Return whether the reward follows from the state and the action."""
    reward = World(found.instance).reward
    known = found.instance.states.keys() | found.instance.actions.keys()
    return atoms_of(reward) <= known and not is_random(reward)


def _wrong(rewards: Sequence[float], expected: float, certain: bool, spread: float) -> int:
    """Return how many rewards are wrong, or 1 if the mean of random ones is.

    Rewards that are drawn may differ by five standard errors, and by what ten draws of rare values
    among them can change.
    """
    if certain:
        return sum(abs(reward - expected) > 1e-9 for reward in rewards)
    allowed = 5 * np.std(rewards) / np.sqrt(len(rewards)) + 10 * spread / len(rewards)
    return int(abs(np.mean(rewards) - expected) > allowed + 1e-9)


def pearson(
    counted: Mapping[tuple[int, ...], int], step: Step, variables: Sequence[int], draws: int
) -> tuple[float, int]:
    """Return Pearson's statistic of draws of some variables, and its number of cells."""
    statistic, cells = 0.0, 0
    rest_seen, rest_expected = float(draws), float(draws)
    for values in itertools.product(*(step.support(i) for i in variables)):
        expected = draws * step.chance(dict(zip(variables, values, strict=True)))
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
