"""Optimism by local bonuses: a prototype, and what was tried on it (docs/default-learner.md).

Plans in the posterior-mean model (a Dirichlet prior of total weight 1 in every row) with one more
reward factor over every Z_i, in units of the factored spans sp_i of the plan without bonuses:

    b_i(x) = sp_i c (sqrt(v_i(x) / max{1, N(x)}) + d / (N(x) + 1)),    v_i half the Gini impurity.

A `boost` replaces b_i where it is larger: for all factors, for one after the other from episode to
episode (`robin`), for each with probability 1 / every (`random`), or in one episode of `every` for
the one visited row that gains most by it, in units of reward (`row`).  With g_i the mean of the
bias over the other variables, scaled to [0, 1], and mu = <p, g_i> of the posterior mean p:

    kl       the largest q with (N + 1) kl(mu, q) <= level, minus mu
    bern     sqrt(2 Var_p(g_i) level / (N + 1)) + level / (3 (N + 1)), at most 1 - mu
    moss     the same with level log(N(z) / (A N(x))) in the place of level, z the state part of x,
             N(z) its visits under all A actions of the scope
    sample   <p~ - p, g_i> with p~ drawn from Dirichlet(parameters / level)

No guarantee is claimed.  Needs the bias as a table (the exact planner), structures without alike
rows, and cannot be saved: it is here so that the figures can be made again.

    python -m benchmarks.default_suite run tuning benchmarks.local_bonuses:LocalBonuses
"""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import fmdp
from fmdp.learning.statistics import Statistics
from fmdp.model.entries import split_cells, split_reward_entries, split_transition_entries
from fmdp.planning.plan import ready
from fmdp.planning.spans import factored_spans

Floats = NDArray[np.float64]

REWARD_WIDTH = 0.15
BISECTIONS = 25
ROOM = 100.0
"""How far a bonus may go, in sums of the reward ranges."""
EARLY = 20
"""Steps during which the spans are made anew at every plan."""


class _Planning:
    """What a run keeps between its plans: two prepared planners, and the last spans."""

    def __init__(self, agent: fmdp.Agent) -> None:
        s = agent.structure
        bonuses = ((0.0, ROOM * s.reward_range_total),) * s.m
        self.wide = replace(
            s,
            reward_scopes=(*s.reward_scopes, *s.transition_scopes),
            reward_ranges=(*s.reward_ranges, *bonuses),
            reward_names=(),
        )
        assert agent.planner is not None
        self.without = ready(agent.planner, s)
        self.with_bonuses = ready(agent.planner, self.wide)
        self.factor = np.repeat(np.arange(s.m), s.transition_rows)
        contexts, actions, first = [], [], 0
        for scope in s.transition_scopes:
            n_states = int(np.prod([s.sizes[v] for v in scope if v < s.m]))
            n_actions = int(np.prod([s.sizes[v] for v in scope if v >= s.m]))
            contexts.append(first + np.repeat(np.arange(n_states), n_actions))
            actions.append(np.full(n_states * n_actions, n_actions))
            first += n_states
        self.context, self.n_actions = np.concatenate(contexts), np.concatenate(actions)
        self.bias: Floats = np.zeros(s.n_states)
        self.made = 0  # at which step
        self.spans: Floats = np.zeros(s.m)
        self.worth: Floats = np.zeros(0)  # g_i of every cell

    def renew(self, agent: fmdp.Agent, model: fmdp.FactoredMDP) -> None:
        """The spans and the worths of the plan without bonuses."""
        s = agent.structure
        plan = self.without.solve(model, describe=True)  # type: ignore[call-arg]
        agent.counters.planner_calls += 1
        self.bias = self.bias if plan.bias is None else plan.bias
        self.made = agent.steps
        self.spans = np.array(factored_spans(self.bias, s.state_sizes))
        table, worths = self.bias.reshape(s.state_sizes), []
        for i in range(s.m):
            own = table.mean(axis=tuple(j for j in range(s.m) if j != i))
            own = own - own.min()
            own = own / own.max() if own.max() > 0 else own
            worths.append(np.tile(own, s.transition_rows[i]))
        self.worth = np.concatenate(worths)


_RUNS: weakref.WeakKeyDictionary[fmdp.Agent, _Planning] = weakref.WeakKeyDictionary()


class LocalBonuses(fmdp.PlanningLearner):
    """Plans in the posterior-mean model with a bonus for what is uncertain, row by row."""

    c: float = fmdp.setting(0.15, "scale of the bonuses", low=0.0)
    d: float = fmdp.setting(1.0, "weight of their small-sample part", low=0.0)
    boost: str = fmdp.setting(
        "none", "another bonus, where larger", choices=("none", "kl", "bern", "moss", "sample")
    )
    level: float = fmdp.setting(1.0, "of the boost", low=0.0, low_open=True)
    who: str = fmdp.setting("all", "who has it", choices=("all", "robin", "random", "row"))
    every: int = fmdp.setting(
        1, "robin, row: episodes between boosts; random: 1 / probability", low=1
    )
    cap: float = fmdp.setting(1.0, "of every bonus, in spans", low=0.0)
    renewal: float = fmdp.setting(1.1, "spans are new when t has grown by this factor", low=1.0)
    episodes = "tsde"

    def tables(self, agent: fmdp.Agent) -> fmdp.FactoredMDP:
        raise NotImplementedError("it plans with a structure of its own, in decide")

    def decide(self, agent: fmdp.Agent) -> fmdp.Decision:
        planning = _RUNS.get(agent)
        if planning is None:
            planning = _RUNS[agent] = _Planning(agent)
        s, statistics = agent.structure, agent.statistics
        entries = statistics.entries
        values = np.diff(entries.first_cell)[entries.cell_entry]
        parameters = statistics.cell_counts + 1.0 / values
        rows = parameters / _by_row(statistics, parameters)[entries.cell_entry]
        transitions = split_cells(s, rows)
        rewards = split_reward_entries(s, _optimistic_rewards(statistics))
        if agent.steps < EARLY or agent.steps >= self.renewal * planning.made:
            planning.renew(agent, fmdp.FactoredMDP.trusted(s, transitions, rewards))
        bonus = self._bonus(agent, planning, parameters, rows)
        bonuses = split_transition_entries(s, bonus * planning.spans[planning.factor])
        model = fmdp.FactoredMDP.trusted(planning.wide, transitions, (*rewards, *bonuses))
        agent.counters.planner_calls += 1
        return self.episode(agent, planning.with_bonuses.solve(model).policy)

    def _bonus(
        self, agent: fmdp.Agent, planning: _Planning, parameters: Floats, rows: Floats
    ) -> Floats:
        """Of every row, in spans."""
        statistics = agent.statistics
        visits = statistics.transition_visits.astype(np.float64)
        impurity = 0.5 * (1.0 - _by_row(statistics, rows**2))
        bonus = self.c * (np.sqrt(impurity / np.maximum(1, visits)) + self.d / (visits + 1))
        if self.boost != "none":
            larger = np.maximum(bonus, self._boost(agent, planning, parameters, rows, visits))
            if self.who == "row":
                gains = np.where(visits > 0, larger - bonus, 0.0) * planning.spans[planning.factor]
                row = int(np.argmax(gains))
                if agent.episodes % self.every == 0:
                    bonus[row] = larger[row]
            else:
                bonus = np.where(self._boosted(agent)[planning.factor], larger, bonus)
        capped: Floats = np.minimum(bonus, self.cap)
        return capped

    def _boosted(self, agent: fmdp.Agent) -> NDArray[np.bool_]:
        m, k = agent.structure.m, agent.episodes
        if self.who == "all":
            return np.ones(m, dtype=bool)
        if self.who == "random":
            return agent.randomness.random(m) < 1 / self.every
        return np.arange(m) == (k // self.every % m if k % self.every == 0 else -1)

    def _boost(
        self,
        agent: fmdp.Agent,
        planning: _Planning,
        parameters: Floats,
        rows: Floats,
        visits: Floats,
    ) -> Floats:
        statistics, worth = agent.statistics, planning.worth
        mean = _by_row(statistics, rows * worth)
        if self.boost == "sample":
            gammas = agent.randomness.standard_gamma(parameters / self.level)
            drawn = (
                gammas
                / np.maximum(_by_row(statistics, gammas), 1e-300)[statistics.entries.cell_entry]
            )
            return _by_row(statistics, (drawn - rows) * worth)
        if self.boost == "kl":
            return kl_upper(mean, visits + 1, self.level) - mean
        level, count = np.full_like(visits, self.level), visits + 1
        if self.boost == "moss":
            count = np.maximum(1, visits)
            of_context = np.bincount(planning.context, weights=visits)[planning.context]
            level *= np.log(np.maximum(of_context / (planning.n_actions * count), 1.0))
        variance = np.maximum(_by_row(statistics, rows * worth**2) - mean**2, 0.0)
        width = np.sqrt(2 * variance * level / count) + level / (3 * count)
        bounded: Floats = np.minimum(width, 1.0 - mean)
        return bounded


def kl_upper(mean: Floats, count: Floats, level: float) -> Floats:
    """The largest q >= mean with count * kl(mean, q) <= level, by bisection."""
    p = np.clip(mean, 1e-12, 1 - 1e-12)
    low, high = mean.copy(), np.ones_like(mean)
    for _ in range(BISECTIONS):
        q = np.clip(0.5 * (low + high), 1e-12, 1 - 1e-12)
        inside = count * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))) <= level
        low, high = np.where(inside, q, low), np.where(inside, high, q)
    return low


def _by_row(statistics: Statistics, cells: Floats) -> Floats:
    summed: Floats = np.add.reduceat(cells, statistics.entries.first_cell[:-1])
    return summed


def _optimistic_rewards(statistics: Statistics) -> Floats:
    lo, hi, n = statistics.reward_lo, statistics.reward_hi, statistics.reward_visits
    widths = REWARD_WIDTH * np.sqrt(1 / np.maximum(1, n)) * (hi - lo)
    rewards: Floats = np.clip(np.where(n > 0, statistics.reward_means() + widths, hi), lo, hi)
    return rewards
