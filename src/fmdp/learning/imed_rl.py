"""IMED-RL (Pesquerel & Maillard 2022): the least index of empirical divergence, flat.

In a state where every action was tried, the action with the least index is played,

    N(a) K(a) + log N(a),   K(a) = inf { KL(law of a, q) : E_q[R + phi(S')] >= mu },

the law of (reward, next state) as observed, mu = max over actions of r + p phi, and phi the bias of
the empirical model on its *skeleton*: in every state only actions with N(a) >= log^2(max N) count,
because the others are known too badly to plan with. K is 0 for the best action, and by duality

    K(a) = max over 0 <= x <= 1 / (B - mu) of E log(1 - (R + phi(S') - mu) x),   B = hi + max phi.

An action that was not tried in the state is played first. The regret is asymptotically optimal in
ergodic models. Rewards are in units of the range of their sum, [0, 1], as in the public code of
StatisticalRL, from which also the following is taken: estimates have one imagined observation, a
uniform next state and the middle of the range; the bias is by value iteration from the last one, up
to changes of 1e-3 or 3,000 sweeps; mu is over all actions; ties are broken at random.

`faithful=True` takes one more thing of that code: it maximises E log(B - (R + phi(S') - mu) x) with
x <= B / (B - mu) - .01, which is K + log B. B is at least 1 and grows with the span of the bias, so
the index of an action that looks worse grows by N log B, and it is tried far less often than the
theorem asks. That is what the published figures show; the default is the formula of the theorem.

With rewards=known the law has the known mean as its only reward. Otherwise at most 64 different
rewards are told apart, and further ones are counted as the nearest of these.

Cost of a step: a few sweeps over A S^2 numbers and a maximisation for every action of the state.
Steps are taken one by one. Paper: the abstract, and the algorithm from memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.flat import joint_statistics
from fmdp.learning.learner import Learner
from fmdp.learning.statistics import Floats, Statistics
from fmdp.model import Structure
from fmdp.model.entries import Index, split_reward_entries, split_transition_entries
from fmdp.model.spaces import encode
from fmdp.planning.policies.archive import array_in
from fmdp.planning.policies.policy import TablePolicy

EPSILON = 1e-3
"""Change of the bias at which value iteration stops, in units of the reward range."""
SWEEPS = 3000
"""Most sweeps of value iteration."""
REWARDS = 64
"""Most different rewards that are told apart."""
HALVINGS = 50
"""Steps of the bisection for the maximum of the dual function."""


@njit()
def skeleton_bias(
    counts: Index, visits: Index, rewards: Floats, skeleton: NDArray[np.bool_], phi: Floats
) -> Floats:
    """Return the bias of the empirical model on a skeleton, with minimum 0: [S].

    `counts` is [S A, S], `visits` and `rewards` [S A], `skeleton` [S, A]; `phi` is the start.
    """
    states, actions = skeleton.shape
    phi = phi.copy()
    for _ in range(SWEEPS):
        new = np.empty(states)
        imagined = phi.sum() / states
        for s in range(states):
            best = -np.inf
            for a in range(actions):
                if skeleton[s, a]:
                    row = s * actions + a
                    ahead = imagined
                    for v in range(states):
                        if counts[row, v] != 0:
                            ahead += counts[row, v] * phi[v]
                    best = max(best, rewards[row] + ahead / (visits[row] + 1))
            new[s] = best
        new -= new.min()
        change = np.abs(new - phi).max()
        phi = new
        if change < EPSILON:
            break
    return phi


@njit()
def divergence_to(laws: Floats, worth: Floats, mean: float, top: float, public: bool) -> float:
    """Return max over x of E log(1 - (worth - mean) x), or what the public code has instead.

    `laws` are the probabilities of the values `worth`, all at most `top`; their expectation is
    below `mean`.
    """
    low, high = 0.0, 1.0 / (top - mean)
    if public:
        high -= 1e-2 / top
    last = high
    for _ in range(HALVINGS):
        x = 0.5 * (low + high)
        slope = 0.0
        for k in range(len(laws)):
            excess = worth[k] - mean
            slope -= laws[k] * excess / (1.0 - excess * x)
        if slope > 0.0:
            low = x
        else:
            high = x
    x = min(0.5 * (low + high), last)
    total = math.log(top) if public else 0.0
    for k in range(len(laws)):
        if laws[k] > 0.0:
            total += laws[k] * math.log(1.0 - (worth[k] - mean) * x)
    return total


@njit()
def indices(
    counts: Index,
    visits: Index,
    values: Floats,
    reward_laws: Floats,
    reward_worths: Floats,
    phi: Floats,
    public: bool,
) -> Floats:
    """Return the index of every action of a state: [A].

    `counts` [A, S] and `visits` [A] are those of the state, `values` [A] are r + p phi (-inf for
    actions that are not allowed, whose index is infinite), `reward_laws` [A, K] the law of the
    reward of every action over `reward_worths` [A, K].
    """
    actions, states = counts.shape
    mean, top = values.max(), 1.0 + phi.max()
    result = np.full(actions, np.inf)
    kinds = reward_laws.shape[1]
    laws, worth = np.empty(states * kinds), np.empty(states * kinds)
    for a in range(actions):
        if values[a] == -np.inf:
            continue
        result[a] = math.log(visits[a])
        if values[a] < mean:
            for v in range(states):
                p = (counts[a, v] + 1.0 / states) / (visits[a] + 1)
                for k in range(kinds):
                    laws[v * kinds + k] = p * reward_laws[a, k]
                    worth[v * kinds + k] = phi[v] + reward_worths[a, k]
            result[a] += visits[a] * divergence_to(laws, worth, mean, top, public)
    return result


class IMEDRL(Learner):
    """Least index of empirical divergence, by Pesquerel and Maillard: flat."""

    name = "imed-rl"

    faithful: bool = setting(
        False,
        "use the index of the public code, which explores less than that of the theorem",
        unkeyed=(False,),
    )
    rewards: str = setting(
        "learned",
        "whether the mean rewards are learned, or known from the start, as in some papers",
        choices=("learned", "known"),
        unkeyed=("learned",),
    )

    @property
    def knows_rewards(self) -> bool:  # type: ignore[override]
        """Whether it is given the mean rewards of the model."""
        return self.rewards == "known"

    def statistics_for(self, structure: Structure) -> Statistics:
        return joint_statistics(structure, self.owner())

    # ---- memory: the bias, the state, and which rewards were paid -------------------------------

    def remember(self, structure: Structure) -> dict[str, Any]:
        entries = self.statistics_for(structure).structure.n_reward_classes
        return {
            "state": -1,
            "bias": np.zeros(structure.n_states),
            "paid": np.zeros(0),
            "times": np.zeros((entries, 0), dtype=np.int64),
        }

    def check_memory(self, structure: Structure, memory: Mapping[str, Any]) -> None:
        super().check_memory(structure, memory)
        state = memory["state"]
        if type(state) is not int or not -1 <= state < structure.n_states:
            raise InvalidParameter(f"the memory of {self.owner()} is at no state; got {state!r}")
        array_in(memory, "bias", "f", (structure.n_states,))
        paid = memory["paid"]
        if paid.ndim != 1 or len(paid) > REWARDS:
            raise InvalidParameter(
                f"the memory of {self.owner()} must have at most {REWARDS} rewards; got "
                f"{list(paid.shape)}"
            )
        array_in(memory, "paid", "f", paid.shape)
        entries = self.statistics_for(structure).structure.n_reward_classes
        array_in(memory, "times", "i", (entries, len(paid)), 0)

    def watch(
        self,
        agent: Agent,
        state: Sequence[int],
        action: Sequence[int],
        rewards: Sequence[float],
        next_state: Sequence[int],
    ) -> None:
        memory, seen = agent.memory, agent.statistics
        memory["state"] = encode(next_state, agent.structure.state_sizes)
        if self.knows_rewards:
            return
        total = sum(map(float, rewards), start=0.0)
        kinds = np.flatnonzero(memory["paid"] == total)
        if not len(kinds) and len(memory["paid"]) < REWARDS:
            memory["paid"] = np.append(memory["paid"], total)
            times = memory["times"]
            memory["times"] = np.append(times, np.zeros((len(times), 1), dtype=np.int64), axis=1)
            kinds = np.array([len(memory["paid"]) - 1])
        kind = int(kinds[0]) if len(kinds) else int(np.abs(memory["paid"] - total).argmin())
        entry = seen.entries_of(state, action)[-1] - seen.entries.n_transition_entries
        memory["times"][entry, kind] += 1

    # ---- decisions ------------------------------------------------------------------------------

    def decide(self, agent: Agent) -> Decision:
        seen, state = agent.statistics, agent.memory["state"]
        s = seen.structure
        allowed = _allowed(s)
        counts, visits = seen.transition_counts(0), _visits(seen)
        rewards = self._rewards(agent)
        tried = np.where(allowed, visits, np.iinfo(np.int64).max)
        most = np.where(allowed, visits, 0).max(axis=1, keepdims=True)
        skeleton = allowed & (visits >= np.log(np.maximum(most, 1)) ** 2)
        phi = skeleton_bias(
            counts, visits.reshape(-1), rewards.reshape(-1), skeleton, agent.memory["bias"]
        )
        agent.memory["bias"] = phi
        ahead = (counts @ phi + phi.mean()).reshape(visits.shape) / (visits + 1)
        values = np.where(allowed, rewards + ahead, -np.inf)
        untried = tried.min(axis=1) == 0
        # Only the action of the present state is chosen by an index; the others are for states that
        # the agent is put into from outside.
        actions = np.where(untried, tried.argmin(axis=1), values.argmax(axis=1))
        if state >= 0 and untried[state]:
            actions[state] = _any_of(agent, np.flatnonzero(tried[state] == 0))
        elif state >= 0:
            index = self._indices(agent, state, counts, visits[state], values[state], phi)
            actions[state] = _any_of(agent, np.flatnonzero(index == index.min()))
        sizes = agent.structure
        return Decision(TablePolicy(sizes.state_sizes, sizes.action_sizes, actions), 1)

    def _rewards(self, agent: Agent) -> Floats:
        """Return the estimated rewards in units of their range: [S, A]."""
        seen = agent.statistics
        s = seen.structure
        lo, hi = s.reward_ranges[0]
        width = hi - lo if hi > lo else 1.0
        means = (split_reward_entries(s, seen.reward_means())[0] - lo) / width
        if seen.known_rewards is None:
            visits = split_reward_entries(s, seen.reward_visits)[0]
            means = (visits * means + 0.5) / (visits + 1)
        return means.reshape(s.n_states, s.n_actions)

    def _indices(
        self,
        agent: Agent,
        state: int,
        counts: Index,
        visits: Index,
        values: Floats,
        phi: Floats,
    ) -> Floats:
        """Return the index of every action in a state: [A]."""
        seen, memory = agent.statistics, agent.memory
        s = seen.structure
        rows = slice(state * s.n_actions, (state + 1) * s.n_actions)
        if seen.known_rewards is not None:
            worths = self._rewards(agent)[state][:, None]
            laws = np.ones_like(worths)
        else:
            lo, hi = s.reward_ranges[0]
            paid = (memory["paid"] - lo) / (hi - lo if hi > lo else 1.0)
            entries = split_reward_entries(s, np.arange(len(memory["times"])))[0][rows]
            times = np.append(memory["times"][entries], np.ones((s.n_actions, 1)), axis=1)
            laws = times / times.sum(axis=1, keepdims=True)
            worths = np.broadcast_to(np.append(paid, 0.5), laws.shape).copy()
        index: Floats = indices(counts[rows], visits, values, laws, worths, phi, self.faithful)
        return index


def _visits(statistics: Statistics) -> Index:
    """Return the visits of every joint state and action: [S, A]."""
    s = statistics.structure
    by_row: Index = split_transition_entries(s, statistics.transition_visits)[0]
    return by_row.reshape(s.n_states, s.n_actions)


def _any_of(agent: Agent, candidates: Index) -> int:
    """Return one of the candidates, drawn at random if there are several."""
    if len(candidates) == 1:
        return int(candidates[0])
    return int(candidates[agent.randomness.integers(len(candidates))])


@lru_cache(maxsize=8)  # used in every step
def _allowed(structure: Structure) -> NDArray[np.bool_]:
    return structure.allowed_mask()
