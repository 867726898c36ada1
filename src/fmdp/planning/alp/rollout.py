"""Rollouts: other actions of a policy in a state, compared by simulated runs.

A run begins with an action and follows the policy. Its total is sum_t e_t with
e = R + P h_w - h_w, whose mean is that of the rewards plus h_w at the end, less h_w at the
beginning. The runs of all actions of a state use the same random numbers, so that the differences
between actions have little variance. Candidates are the policy's own action and the changes of one
action variable that look best one step ahead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp._base.parameters import Integer, quoted
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.model.expansion import shared_draws, without_draws
from fmdp.planning.alp.bases import Basis, collapsed, make_basis
from fmdp.planning.alp.policy_errors import Sampler, actions_at, bellman_errors, rows_at_once
from fmdp.planning.plan import Plan
from fmdp.planning.policies.policy import Policy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_HORIZON = Integer("horizon", 12, "steps of a run", low=1, high=10_000)
_RUNS = Integer("runs", 8, "runs per action", low=2, high=10_000)
_CANDIDATES = Integer("candidates", 3, "other actions that are tried", low=1, high=1000)
_SEED = Integer("seed", 0, "seed of the runs", low=0)


class Comparison:
    """Runs that compare the actions of many states at once."""

    def __init__(self, model: FactoredMDP, policy: Policy, basis: Basis, weights: Floats) -> None:
        """`model` has no drawn variables; `basis` and `weights` are those of h_w."""
        self.model, self.policy = model, policy
        self.basis, self.weights = basis, weights
        self._sampler = Sampler(model)

    def totals(
        self,
        states: Ints,
        generator: np.random.Generator,
        *,
        candidates: int,
        runs: int,
        steps: int,
        deadline: Deadline = NEVER,
    ) -> tuple[Ints, Floats]:
        """Return actions [states, actions, variables], the policy's own first, and the totals of
        their runs less those of the policy's own action [states, actions, runs].

        TimeUp is raised when the deadline passes.
        """
        m, n = self.model.structure.m, len(states)
        firsts = self._actions(states, candidates)
        per_state = firsts.shape[1]
        now = np.repeat(states, per_state * runs, axis=0)
        actions = np.repeat(firsts.reshape(n * per_state, -1), runs, axis=0)
        totals = np.zeros(len(now))
        for step in range(steps):
            deadline.check()
            if step:
                actions = actions_at(self.policy, now)
            totals += bellman_errors(self.model, self.basis, self.weights, now, actions)
            draws = np.broadcast_to(generator.random((n, 1, runs, m)), (n, per_state, runs, m))
            now = self._sampler.following(now, actions, draws.reshape(-1, m))
        shaped = totals.reshape(n, per_state, runs)
        return firsts, shaped - shaped[:, :1]

    def _actions(self, states: Ints, candidates: int) -> Ints:
        """Return the policy's action and the changes of one variable that look best one step
        ahead."""
        sizes = self.model.structure.action_sizes
        changes = [(v, step) for v, size in enumerate(sizes) for step in range(1, size)]
        chosen = actions_at(self.policy, states)
        others = np.repeat(chosen[:, None], len(changes), axis=1)  # [states, changes, variables]
        for place, (v, step) in enumerate(changes):
            others[:, place, v] = (chosen[:, v] + step) % sizes[v]
        at_once = max(rows_at_once(self.model.structure) // max(len(changes), 1), 1)
        ahead = np.concatenate(
            [
                self._one_step_ahead(states[at : at + at_once], others[at : at + at_once])
                for at in range(0, len(states), at_once)
            ]
        )
        best = np.argsort(-ahead, axis=1, kind="stable")[:, :candidates]
        kept = np.take_along_axis(others, best[:, :, None], axis=1)
        return np.concatenate([chosen[:, None], kept], axis=1)

    def _one_step_ahead(self, states: Ints, actions: Ints) -> Floats:
        """Return R + P h_w - h_w for the actions [states, actions, variables] of each state."""
        n, per_state = actions.shape[:2]
        repeated, flat = np.repeat(states, per_state, axis=0), actions.reshape(n * per_state, -1)
        errors = bellman_errors(self.model, self.basis, self.weights, repeated, flat)
        return errors.reshape(n, per_state)


class Rollout:
    """The policy of an approximate plan, improved by simulated runs in every state it is asked for.

    In each state the policy's own action and the best-looking changes of one action variable are
    compared by simulated runs with the same random numbers. Another action is taken if it is better
    by more than twice the standard error of the difference. The action is a deterministic function
    of the state and the seed. A decision takes milliseconds to tenths of a second. The policy is
    often better and carries no guarantee.

    Parameters
    ----------
    plan
        A plan of the ALP planner for a model without constraints.
    horizon
        Steps of a run, at least 1; at its end the value function of the plan counts.
    runs
        Runs per action, at least 2.
    candidates
        Changes of the policy's action that are tried, at least 1.
    seed
        Seed of the runs, at least 0.

    Raises
    ------
    InvalidParameter
        If the plan has no weights, the model has constraints, or a number is out of range.
    """

    def __init__(
        self, plan: Plan, *, horizon: int = 12, runs: int = 8, candidates: int = 3, seed: int = 0
    ) -> None:
        if not isinstance(plan, Plan):
            raise InvalidParameter(f"Rollout needs a plan of the ALP planner; got {quoted(plan)}")
        model, policy = plan.model, plan.policy
        if model is None or policy is None or "weights" not in plan.stats:
            raise InvalidParameter("Rollout needs a plan of the ALP planner with a policy")
        structure = model.structure
        if structure.constraints:
            raise InvalidParameter("Rollout needs a model without constraints on its actions")
        if shared_draws(structure):
            raise InvalidParameter("Rollout needs a model whose drawn variables have one child")
        self.naming = policy.naming  # type: ignore[attr-defined]
        self.horizon = _HORIZON.check(horizon, "Rollout")
        self.runs = _RUNS.check(runs, "Rollout")
        self.candidates = _CANDIDATES.check(candidates, "Rollout")
        self.seed = _SEED.check(seed, "Rollout")
        expansion = without_draws(structure)
        simulated = model if expansion is None else expansion.tables(model)
        scopes: Any = plan.settings.basis
        basis = collapsed(make_basis(structure, scopes), plan.stats["weights"])
        self._comparison = Comparison(simulated, policy, basis, np.ones(basis.size))

    def __call__(self, state: Any) -> Any:
        """Return the action in a state, always the same one.

        Parameters
        ----------
        state
            One position or name of a value per state variable; or a mapping or a text by name.

        Returns
        -------
        tuple[int, ...] or dict[str, str | int | float]
            One position per action variable; for a mapping or a text, values by name.
        """
        checked = self.naming.states.check(state, "state")
        generator = np.random.Generator(np.random.PCG64([self.seed, *checked]))
        actions, totals = self._comparison.totals(
            np.array([checked], dtype=np.int64),
            generator,
            candidates=self.candidates,
            runs=self.runs,
            steps=self.horizon,
        )
        means = totals[0].mean(axis=1)
        errors = totals[0].std(axis=1, ddof=1) / np.sqrt(self.runs)
        best = int((means - 2.0 * errors).argmax())  # the policy's own action has 0 and comes first
        return self.naming.answer(tuple(actions[0, best].tolist()), state)
