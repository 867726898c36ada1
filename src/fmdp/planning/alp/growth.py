"""A basis that grows where it is wrong, until the policy is near its bound: `basis="auto"`.

Every round solves two programs over all functions of the scopes: that of the criterion, and the
average one, whose lambda is the least `gain_upper` that the scopes allow. The greedy policies of
both are judged: exactly in small models, else by simulating R + P h_w - h_w, which has the policy's
gain as its mean, whatever w, and no variance where h_w is its bias. Where both are worse by more
than the gap than what a poorer basis had, the program is solved again with a cap on the weights
(as in Petrik et al. 2010, who cap their sum). Then a parent is added to those scopes whose joint
values explain most of the variance of the same Bellman errors, on states that the policy visits and
on uniform ones (Bellman error basis functions, Parr et al. 2007, as scopes). Symmetries of the
model (`model.symmetry`) leave one weight for all functions that they send to each other.

Each bound is certified as always, and the smallest is returned; with it the policy that was judged
best, not the last one: a richer basis has a tighter bound, and often a worse policy. A judgement by
simulation is an estimate and certifies nothing. All draws have one fixed seed.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import TimeUp
from fmdp.errors import TooLarge
from fmdp.model import FactoredMDP, Structure
from fmdp.model.spaces import strides
from fmdp.model.structure import Scope
from fmdp.model.symmetry import Symmetry, symmetry_of
from fmdp.planning.alp.bases import Basis, collapsed, make_basis, tied
from fmdp.planning.alp.greedy import GreedyPolicy
from fmdp.planning.evaluate import evaluate_exactly
from fmdp.planning.plan import Plan
from fmdp.planning.policies.policy import Policy, TablePolicy
from fmdp.planning.settings import with_basis
from fmdp.planning.status import Progress, Status

if TYPE_CHECKING:
    from fmdp.planning.alp.alp import ALP, PreparedALP

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_WEIGHTS = 640
"""Functions above which no scope grows any more, and no second program is solved."""
MOST_WEIGHTS_TIED = 128
"""The same where symmetries share them: each looks at many functions."""
MOST_PAIRS = 1 << 15
"""Functions times values of the action variables above which no scope grows any more: what a
program costs grows with both. A circle of 40 comes to five neighbours in a minute, one of 100 to
two."""
MOST_FUNCTIONS = 6144
"""The same, however few weights they share: to find the largest residual looks at all of them. A
circle of 40 equal machines comes to eight neighbours in less than a minute."""
MOST_VALUES = 64
"""Joint values of a scope above which it grows no more."""
MOST_VALUES_TIED = 256
"""And where symmetries leave few weights."""
JUDGED_EXACTLY = 1 << 12
"""States up to which a policy is judged by its gain itself."""
TIGHTENING_ROUNDS = 40
"""At the end, with twice the values and functions, for a bound that nobody converges to."""
MOST_CAPPED = 64
"""Weights up to which a basis that made the policy worse is tried again with a cap on them,"""
_CAPS = (0.3, 0.1)
"""so much of the largest."""
_LIKE_THE_BEST = 0.5
"""Scopes grow together whose share of the error is at least so much of the largest."""
_CHAINS, _BURNT, _STEPS, _VISITS = 64, 100, 400, 40
"""Chains, and their steps: before they count, where they judge, and where they only visit."""
_LEADING, _LONGER = 4, 8
"""How many policies are judged again at the end, and how many times as long."""
_APART = 4
"""Of so many steps one is looked at."""
_SEED = 0
_FAILURES: dict[Status, str] = {
    Status.TIME_LIMIT: "time",
    Status.INTERRUPTED: "interrupt",
    Status.ITERATION_LIMIT: "iterations",
}
"""How a program that did not converge ends the search; else rounding did."""


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A plan, its settings, and what its policy was judged to gain."""

    plan: Plan
    settings: ALP
    worth: float


class _Growing:
    """One plan."""

    def __init__(self, settings: ALP, model: FactoredMDP, progress: Progress | None) -> None:
        self.settings = settings
        self.model = model
        self.structure: Structure = model.structure
        self.progress = progress
        self.started = time.perf_counter()
        self.best: _Candidate | None = None
        self.leading: list[_Candidate] = []
        """The best few, best first."""
        self.bound = model.structure.reward_bounds[1]
        """On the gain of any policy; no policy gains more than the largest rewards."""
        self.objective = math.inf
        self.iterations = 0
        self.failed: Status | None = None
        """How the last program ended, if not as it should."""
        self.tight: Floats | None = None
        """The last weights with the least bound."""
        self.symmetry: Symmetry | None = None
        self.steps: list[dict[str, Any]] = []

    def run(self) -> Plan:
        try:
            why = self.grow()
            if why != "interrupt":
                self.choose()
        except TooLarge:
            if self.best is None:
                raise
            why = "memory"
        except KeyboardInterrupt:
            if self.best is None:
                return self.nothing()
            why = "interrupt"
        return self.finished(why)

    def grow(self) -> str:
        """Until there is a reason to end, which is returned."""
        # Relevance of the user's own need not be the same for images.
        if self.settings.relevance is None:
            self.symmetry = symmetry_of(self.model)
        scopes = first_scopes(self.structure, self.symmetry)
        while True:
            errors = self.solve(scopes)
            if self.failed is None and errors is None and self.seconds_left() == 0.0:
                return "time"
            if self.failed is not None or errors is None:
                return _FAILURES.get(self.failed or Status.PRECISION_LIMIT, "precision")
            if self.bound - self.worth() <= self.settings.gap * abs(self.bound):
                return "gap"
            if self.seconds_left() == 0.0:
                return "time"
            grown = grown_scopes(self.structure, scopes, *errors, self.symmetry)
            if grown is None:
                in_time = self.symmetry is None or self.tighten(scopes, self.symmetry)
                return "size" if in_time else "time"
            scopes = grown

    def nothing(self) -> Plan:
        """Interrupted before the first program was there."""
        from fmdp.planning.alp.alp import without_program

        return without_program(self.settings, self.structure, KeyboardInterrupt(), self.started)

    def worth(self) -> float:
        return -math.inf if self.best is None else self.best.worth

    def seconds_left(self) -> float | None:
        if self.settings.max_seconds is None:
            return None
        return max(self.settings.max_seconds - (time.perf_counter() - self.started), 0.0)

    def check_clock(self) -> None:
        """TimeUp where it is."""
        if self.seconds_left() == 0.0:
            raise TimeUp

    def solve(self, scopes: tuple[Scope, ...]) -> tuple[Ints, Floats] | None:
        """Both programs over these scopes; states and the Bellman errors of the better policy
        there, or None where there is no policy to speak of."""
        settings = with_basis(self.settings, scopes)
        prepared = self.prepared(settings)
        started = self.started if self.best is None else None
        found = prepared.solve(self.model, describe=True, progress=self.progress, started=started)
        before, first = self.worth(), len(self.steps)
        errors = self.consider(found, settings, scopes, prepared.basis.size)
        if found.objective is not None:
            self.objective = min(self.objective, found.objective)
        if found.status is not Status.CONVERGED or settings.criterion != "discounted":
            return errors
        if prepared.basis.size <= MOST_WEIGHTS:
            tight = prepared.tightest(self.model, self.progress, self.seconds_left())
            own = replace(settings, criterion="average", weight_cap=None)
            errors = self.consider(tight, own, scopes, prepared.basis.size) or errors
            self.tight = tight.stats.get("weights")
            if tight.status is not Status.CONVERGED:
                return errors
        worths = [step["judged"] for step in self.steps[first:] if step["judged"] is not None]
        worse = max(worths, default=math.inf) < before - self.settings.gap * abs(self.bound)
        if worse and prepared.basis.size <= MOST_CAPPED and settings.weight_cap is None:
            self.cap(settings, scopes, float(np.abs(found.stats["weights"]).max()))
        return errors

    def cap(self, settings: ALP, scopes: tuple[Scope, ...], largest: float) -> None:
        """Policies of the same program with weights that are kept small: candidates, no more. How
        they end matters where the user or the clock has ended them."""
        for share in _CAPS:
            if largest == 0.0 or self.seconds_left() == 0.0:
                return
            capped = replace(settings, weight_cap=share * largest)
            prepared = self.prepared(capped)
            plan = prepared.solve(self.model, describe=True, progress=self.progress)
            self.consider(plan, capped, scopes, prepared.basis.size)
            if plan.status in (Status.INTERRUPTED, Status.TIME_LIMIT):
                return
            self.failed = None

    def tighten(self, scopes: tuple[Scope, ...], symmetry: Symmetry) -> bool:
        """Where nothing may grow any more: one parent more for every scope, for the bound alone,
        begun at the last weights and ended after some rounds. They need not have converged: what
        is certified is the residual of whatever weights there are. False if there was no time."""
        wider = symmetry.closed(
            tuple(sorted({*scope, j}))
            for scope in scopes
            for i in scope
            for j in self.structure.state_scope(i)
        )
        values = max(math.prod(self.structure.state_sizes[v] for v in scope) for scope in wider)
        if (
            self.tight is None
            or set(wider) == set(scopes)
            or values > 2 * MOST_VALUES_TIED
            or n_weights(self.structure, wider, symmetry) > 2 * MOST_WEIGHTS_TIED
            or n_functions(self.structure.state_sizes, wider) > 2 * MOST_FUNCTIONS
        ):
            return True
        basis = make_basis(self.structure, scopes)
        begin = {block.scope: self.tight[block.columns] for block in basis.blocks}
        prepared = self.prepared(with_basis(self.settings, wider))
        try:
            bound = prepared.tightened(self.model, begin, TIGHTENING_ROUNDS)
        except TimeUp:
            return False
        if bound is not None:
            self.bound = min(self.bound, bound)
            self.steps.append(
                {
                    "weights": prepared.basis.size,
                    "criterion": "average",
                    "weight_cap": None,
                    "gain_upper": bound,
                    "judged": None,
                    "judged_kind": None,
                }
            )
        return True

    def prepared(self, settings: ALP) -> PreparedALP:
        """For what is left of the time."""
        from fmdp.planning.alp.alp import PreparedALP

        left = self.seconds_left()
        if left is not None:
            settings = replace(settings, max_seconds=max(left, 1e-3))
        return PreparedALP(
            settings, self.structure, share_for=self.model, dense=True, symmetry=self.symmetry
        )

    def consider(
        self, found: Plan, settings: ALP, scopes: tuple[Scope, ...], n_weights: int
    ) -> tuple[Ints, Floats] | None:
        """Keep what a plan is better at than those before; states and its Bellman errors there."""
        self.iterations += found.iterations
        self.failed = None if found.status is Status.CONVERGED else found.status
        if found.gain_upper is not None:
            self.bound = min(self.bound, found.gain_upper)
        if found.policy is None or "weights" not in found.stats:
            if self.best is None:
                self.best = _Candidate(found, settings, -math.inf)
            return None
        judged: tuple[Ints, Floats, float] | None = None
        with suppress(TimeUp):  # any policy that was judged comes before one that was not
            judged = self.judged(found, scopes)
        worth = None if judged is None else judged[2]
        self.steps.append(
            {
                "weights": n_weights,
                "criterion": settings.criterion,
                "weight_cap": settings.weight_cap,
                "gain_upper": found.gain_upper,
                "judged": worth,
                "judged_kind": None if worth is None else self.judged_kind,
            }
        )
        mine = _Candidate(found, settings, -math.inf if worth is None else worth)
        self.leading = sorted([*self.leading, mine], key=lambda one: -one.worth)[:_LEADING]
        self.best = self.leading[0]
        return None if judged is None else judged[:2]

    @property
    def judged_kind(self) -> str:
        """Whether policies are judged by their certified gain or by a simulated estimate."""
        return "exact" if self.structure.n_states <= JUDGED_EXACTLY else "simulated"

    def choose(self) -> None:
        """Simulate the leading policies once more, for longer, where they were simulated: the best
        of many estimates is the luckiest of those that are nearly as good."""
        if self.judged_kind == "exact" or len(self.leading) < 2:
            return
        again = []
        for one in self.leading:
            assert one.plan.policy is not None
            basis, weights = self.value_of(one.plan, one.settings.basis)
            generator = np.random.Generator(np.random.PCG64(_SEED + 1))
            try:
                _, worth = simulated(
                    self.model,
                    one.plan.policy,
                    basis,
                    weights,
                    _LONGER * _STEPS,
                    generator,
                    self.check_clock,
                )
            except TimeUp:
                return
            again.append(replace(one, worth=worth))
        self.best = max(again, key=lambda one: one.worth)

    def value_of(self, found: Plan, scopes: Any) -> tuple[Basis, Floats]:
        """h_w as few functions, and their weights."""
        basis = collapsed(make_basis(self.structure, scopes), found.stats["weights"])
        return basis, np.ones(basis.size)

    def judged(self, found: Plan, scopes: tuple[Scope, ...]) -> tuple[Ints, Floats, float]:
        """States, the Bellman errors there, and what the policy gains."""
        assert found.policy is not None
        basis, weights = self.value_of(found, scopes)
        generator = np.random.Generator(np.random.PCG64(_SEED))
        few = self.judged_kind == "exact"
        steps = _VISITS if few else _STEPS
        visited, worth = simulated(
            self.model, found.policy, basis, weights, steps, generator, self.check_clock
        )
        if few:
            exact = evaluate_exactly(
                self.model, found.policy, memory_limit=self.settings.memory_limit
            ).gain_lower
            worth = worth if exact is None else exact
        sizes = np.array(self.structure.state_sizes, dtype=np.int64)
        anywhere = generator.integers(0, sizes, size=(len(visited), len(sizes)))
        states = np.concatenate([visited, anywhere])
        actions = chosen(found.policy, states)
        return states, bellman_errors(self.model, basis, weights, states, actions), worth

    def finished(self, why: str) -> Plan:
        best = self.best
        assert best is not None
        found = best.plan
        statuses = {name: status for status, name in _FAILURES.items()}
        return replace(
            found,
            status=statuses.get(why, found.status),
            gain_upper=self.bound,
            objective=self.objective if math.isfinite(self.objective) else found.objective,
            iterations=self.iterations,
            seconds=time.perf_counter() - self.started,
            model=self.model,
            settings=replace(best.settings, max_seconds=self.settings.max_seconds),
            stats={
                **found.stats,
                "basis": "auto",
                "scopes": best.settings.basis,
                "grown": tuple(self.steps),
                "grown_until": why,
            },
        )


def plan_by_growth(settings: ALP, model: FactoredMDP, progress: Progress | None) -> Plan:
    """The plan of `basis="auto"`."""
    return _Growing(settings, model, progress).run()


# -- scopes ---------------------------------------------------------------------------------------


def first_scopes(structure: Structure, symmetry: Symmetry | None = None) -> tuple[Scope, ...]:
    """Every group that the problem declares, and every variable in none; their images too."""
    grouped = {v for group in structure.groups for v in group}
    scopes = sorted([*structure.groups, *((v,) for v in range(structure.m) if v not in grouped)])
    return tuple(scopes) if symmetry is None else symmetry.closed(scopes)


def grown_scopes(
    structure: Structure,
    scopes: Sequence[Scope],
    states: Ints,
    errors: Floats,
    symmetry: Symmetry | None = None,
) -> tuple[Scope, ...] | None:
    """Some of the scopes with one more variable each, a parent of one that they have: those that
    explain most of the errors, and their images. None where none may grow."""
    sizes = structure.state_sizes
    most_values = MOST_VALUES if symmetry is None else MOST_VALUES_TIED
    scores: dict[Scope, float] = {}
    for scope in scopes:
        parents = {j for i in scope for j in structure.state_scope(i)}
        alone = _explained(sizes, scope, states, errors)
        for j in sorted(parents - set(scope)):
            wider = tuple(sorted({*scope, j}))
            if math.prod(sizes[v] for v in wider) <= most_values:
                gained = _explained(sizes, wider, states, errors) - alone
                scores[wider] = max(gained, scores.get(wider, -math.inf))
    if not scores:
        return None
    # Equal scores that rounding has told apart grow together.
    least = _LIKE_THE_BEST * max(scores.values())
    added = {scope for scope, score in scores.items() if score >= least}
    if symmetry is not None:
        added = set(symmetry.closed(added))
    kept = [scope for scope in scopes if not any(set(scope) < set(wider) for wider in added)]
    grown = tuple(sorted({*kept, *added}))
    if n_functions(sizes, grown) > MOST_FUNCTIONS:
        return None
    weights = n_weights(structure, grown, symmetry)
    decided = structure if symmetry is None else symmetry.reduced.structure
    most = MOST_WEIGHTS if symmetry is None else MOST_WEIGHTS_TIED
    too_many = weights > most or weights * sum(decided.action_sizes) > MOST_PAIRS
    return None if too_many else grown


def n_weights(structure: Structure, scopes: Sequence[Scope], symmetry: Symmetry | None) -> int:
    """Weights of the program over these scopes."""
    if symmetry is None:
        return n_functions(structure.state_sizes, scopes)
    return tied(make_basis(structure, scopes), symmetry).size


def n_functions(sizes: Sequence[int], scopes: Sequence[Scope]) -> int:
    """Functions of a basis of these scopes, those that they share counted once."""
    subsets = {
        subset
        for scope in scopes
        for length in range(1, len(scope) + 1)
        for subset in itertools.combinations(scope, length)
    }
    return sum(math.prod(sizes[v] - 1 for v in subset) for subset in subsets)


def _explained(sizes: Sequence[int], scope: Scope, states: Ints, errors: Floats) -> float:
    """The variance of the errors' means over the joint values of a scope."""
    own = [sizes[v] for v in scope]
    at = states[:, list(scope)] @ np.array(strides(own), dtype=np.int64)
    counts = np.bincount(at, minlength=math.prod(own))
    sums = np.bincount(at, errors - errors.mean(), minlength=math.prod(own))
    seen = counts > 0
    return float((sums[seen] ** 2 / counts[seen]).sum()) / len(errors)


# -- states, actions, errors ----------------------------------------------------------------------


def chosen(policy: Policy, states: Ints) -> Ints:
    """The action of every state, [states, action variables]."""
    if isinstance(policy, TablePolicy):
        steps = np.array(strides(policy.state_sizes), dtype=np.int64)
        joint = policy.actions[states @ steps]
        return np.stack(np.unravel_index(joint, policy.action_sizes), axis=1)
    assert isinstance(policy, GreedyPolicy)
    return policy.actions_of(states)


def bellman_errors(
    model: FactoredMDP, basis: Basis, weights: Floats, states: Ints, actions: Ints
) -> Floats:
    """R + P h_w - h_w at these states and actions, from the tables themselves."""
    structure = model.structure
    sizes = structure.state_sizes
    joint = np.concatenate([states, actions], axis=1)
    rows = [_rows(structure, scope, joint) for scope in structure.transition_scopes]
    total = np.zeros(len(states))
    for scope, table in zip(structure.reward_scopes, model.rewards, strict=True):
        total += table[_rows(structure, scope, joint)]
    for block in basis.blocks:
        value = block.values @ weights[block.columns]
        own = [sizes[v] for v in block.scope]
        total -= value[states[:, list(block.scope)] @ np.array(strides(own), dtype=np.int64)]
        # The expectation, one variable after the other: [states, values of those left].
        ahead = np.broadcast_to(value, (len(states), len(value)))
        for v in block.scope:
            law = model.transitions[v][rows[v]]
            ahead = np.einsum("sv,svr->sr", law, ahead.reshape(len(states), sizes[v], -1))
        total += ahead[:, 0]
    return total


def simulated(
    model: FactoredMDP,
    policy: Policy,
    basis: Basis,
    weights: Floats,
    steps: int,
    generator: np.random.Generator,
    look: Callable[[], None] = lambda: None,
) -> tuple[Ints, float]:
    """Return states that the policy visits in some chains from the initial state, and the mean of
    R + P h_w - h_w over them.

    The mean estimates the gain of the policy, to compare policies. It has no interval, and where
    chains mix slowly it describes what lies near the initial state. `look` is called at every step,
    and may raise.
    """
    structure = model.structure
    states = np.tile(np.array(model.initial_state, dtype=np.int64), (_CHAINS, 1))
    visited, taken = [], []
    variables, strides_of, first_row, until = _laws(model)
    for step in range(_BURNT + steps):
        look()
        actions = chosen(policy, states)
        if step >= _BURNT and step % _APART == 0:
            visited.append(states)
            taken.append(actions)
        joint = np.concatenate([states, actions], axis=1)
        rows = (joint[:, variables] * strides_of).sum(axis=2) + first_row
        draws = generator.random((_CHAINS, structure.m))
        states = (draws[:, :, None] >= until[rows]).sum(axis=2)
    seen = np.concatenate(visited)
    errors = bellman_errors(model, basis, weights, seen, np.concatenate(taken))
    return seen, float(errors.mean())


def _laws(model: FactoredMDP) -> tuple[Ints, Ints, Ints, Floats]:
    """The rows of all factors end to end, as sums of their first probabilities, [rows, values - 1]
    (a variable of fewer values never comes to those that it has not). Before them, how to find the
    row of each: variables and strides, [factors, longest scope], and where the factor's begin."""
    structure = model.structure
    longest = max(len(scope) for scope in structure.transition_scopes)
    variables = np.zeros((structure.m, longest), dtype=np.int64)
    steps = np.zeros((structure.m, longest), dtype=np.int64)
    for i, scope in enumerate(structure.transition_scopes):
        variables[i, : len(scope)] = scope
        steps[i, : len(scope)] = strides([structure.sizes[v] for v in scope])
    until = np.ones((sum(structure.transition_rows), max(structure.state_sizes) - 1))
    first = np.array(structure.row_starts[:-1], dtype=np.int64)
    for at, table in zip(first, model.transitions, strict=True):
        until[at : at + len(table), : table.shape[1] - 1] = np.cumsum(table, axis=1)[:, :-1]
    return variables, steps, first, until


def _rows(structure: Structure, scope: Scope, joint: Ints) -> Ints:
    """The row of a table over the scope for each (state, action)."""
    steps = np.array(strides([structure.sizes[v] for v in scope]), dtype=np.int64)
    rows: Ints = joint[:, list(scope)] @ steps
    return rows
