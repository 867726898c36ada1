"""Long-run averages by name: reward factors, quantities, and weighted sums of them.

All plans and evaluations under limits are of one model whose rewards are changed: the mean of
factor k is weight_k times the mean of the reward factor, or of the quantity, that it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.errors import InvalidModel, InvalidParameter, UnknownName, did_you_mean
from fmdp.model import FactoredMDP, Structure
from fmdp.model.expansion import expand, shared_draws
from fmdp.model.naming import listed
from fmdp.model.quantities import TOTAL
from fmdp.model.spaces import project
from fmdp.planning.evaluate import Evaluation, evaluate_exactly
from fmdp.planning.policies.mixed import MixedPolicy
from fmdp.planning.policies.policy import Policy

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Average:
    """The certified long-run average of a policy from the initial state."""

    lower: float
    upper: float

    @property
    def middle(self) -> float:
        return 0.5 * (self.lower + self.upper)


def _if_variable(model: FactoredMDP, name: object) -> str:
    """Return advice for the name of a variable, whose average is that of a quantity."""
    s = model.structure
    kinds = {
        "a derived variable": [variable.name for variable in s.derived],
        "a state variable": s.state_names,
        "an action variable": s.action_names,
    }
    kind = next((kind for kind, names in kinds.items() if name in names), None)
    return "" if kind is None else f" ({name} is {kind}: define a quantity of it)"


class Averages:
    """The factors of a model that plans under limits and fronts are about."""

    def __init__(self, model: FactoredMDP, names: Sequence[str]) -> None:
        if shared_draws(model.structure):
            raise InvalidParameter(
                "limits and fronts are not available for models in which several state variables "
                "depend on one drawn variable"
            )
        self.given = model
        self.model = model = expand(model)
        s = model.structure
        known = (TOTAL, *s.reward_names, *(q.name for q in model.quantities))
        for name in names:
            if name not in known:
                advice = _if_variable(self.given, name)
                raise UnknownName(
                    f"no reward factor or quantity is called {name!r}{advice}; "
                    f"must be one of {listed(known)}{did_you_mean(str(name), known)}"
                )
        used = [q for q in model.quantities if q.name in names]
        self._scopes = (*s.reward_scopes, *(q.scope for q in used))
        self._tables = (*model.rewards, *(q.table for q in used))
        self._names = (*s.reward_names, *(q.name for q in used))
        self._base = _with_scopes(s, self._scopes, self._names)

    def weights(self, name: str) -> Weights:
        """Return the weight of each factor in an average, by name; "reward" is the total reward."""
        n_rewards = self.model.structure.l
        if name == TOTAL:
            return (np.arange(len(self._names)) < n_rewards).astype(np.float64)
        return np.array([float(factor == name) for factor in self._names])

    def unit(self, weights: Weights) -> float:
        """Return the range of a weighted sum, at most; 1 if it is constant."""
        pairs = zip(weights, self._tables, strict=True)
        return float(sum(abs(w) * np.ptp(table) for w, table in pairs)) or 1.0

    def weighted(self, weights: Weights) -> FactoredMDP:
        """Return the model whose reward is the weighted sum of the factors."""
        means = [
            np.array(float(w) * table) + 0.0 for w, table in zip(weights, self._tables, strict=True)
        ]
        ranges = tuple((float(t.min()), float(t.max())) for t in means)
        return FactoredMDP.trusted(
            replace(self._base, reward_ranges=ranges),
            self.model.transitions,
            means,
            self.model.initial_state,
        )

    def pairs(self, weights: Weights) -> NDArray[np.float64]:
        """Return the weighted sum for every state and action: [S, A]."""
        s = self._base
        total = np.zeros(s.n_states * s.n_actions)
        for w, scope, table in zip(weights, self._scopes, self._tables, strict=True):
            if w:
                total += w * table[project(s.sizes, scope)]
        return total.reshape(s.n_states, s.n_actions)

    def of_policy(
        self,
        policy: Policy | MixedPolicy,
        weights: Weights,
        tolerance: float,
        deadline: Deadline = NEVER,
        memory_limit: int | None = None,
    ) -> Average:
        """Return certified bounds on a policy's average; raise KeyboardInterrupt on Ctrl-C."""
        if not weights.any():
            return Average(0.0, 0.0)
        evaluation = evaluate_exactly(
            self.weighted(weights),
            policy,
            tolerance=tolerance,
            max_seconds=deadline.remaining(),
            memory_limit=memory_limit,
        )
        evaluation.status.raise_if_interrupted()
        return _average(evaluation)


def _average(evaluation: Evaluation) -> Average:
    lower, upper = evaluation.gain_bounds or (evaluation.gain_lower, evaluation.gain_upper)
    assert lower is not None
    assert upper is not None
    return Average(lower, upper)


def _with_scopes(
    s: Structure, scopes: Sequence[tuple[int, ...]], names: Sequence[str]
) -> Structure:
    """Return the structure with these reward factors; those behind its own are quantities."""
    added = scopes[s.l :]
    # Ranges are replaced together with the tables.
    changed = {
        "reward_scopes": tuple(scopes),
        "reward_names": tuple(names),
        "reward_ranges": ((0.0, 1.0),) * len(scopes),
        "alike": None,
    }
    if s.effects is None:
        return replace(s, **changed)  # type: ignore[arg-type]
    kinds = ["cost" if any(v >= s.m for v in scope) else "before" for scope in added]
    effects = replace(
        s.effects,
        rewards=(*s.effects.rewards, *kinds),  # type: ignore[arg-type]
        after_reward_scopes=(*s.effects.after_reward_scopes, *((),) * len(added)),
    )
    try:
        return replace(s, effects=effects, **changed)  # type: ignore[arg-type]
    except InvalidModel:  # a quantity spans several components
        return replace(s, effects=None, **changed)  # type: ignore[arg-type]
