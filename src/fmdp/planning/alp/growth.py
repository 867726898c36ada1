"""`basis="auto"`: a basis that grows where its errors are largest, until the policy is near its
bound.

Every round solves two programs over all functions of the scopes: that of the criterion, and the
average one, whose lambda is the least `gain_upper` that the scopes allow. The greedy policies of
both are judged: exactly in small models, otherwise by simulating R + P h_w - h_w, whose mean is the
policy's gain for any w, and whose variance vanishes if h_w is its bias. If both are worse, by more
than the gap, than the policy of a smaller basis, the program is solved again with a cap on the
weights (as in Petrik et al. 2010, who cap their sum). Then a parent is added to those scopes whose
joint values explain most of the variance of the same Bellman errors, on states that the policy
visits and on uniform ones (Bellman error basis functions, Parr et al. 2007, as scopes). Functions
that are images of each other under symmetries of the model (`model.symmetry`) share one weight. The
search ends when the gap is small, has stalled, or would need too large a basis. In the last two
cases it is estimated which of bound and policy is loose (looseness.py).

Each bound is certified as always, and the smallest is returned, with the policy that was judged
best, not the last one: a richer basis has a tighter bound, and often a worse policy. A judgement by
simulation is an estimate and certifies nothing. All draws have one fixed seed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline, TimeUp
from fmdp._base.memory import available_memory
from fmdp.errors import TooLarge
from fmdp.model import FactoredMDP, Structure
from fmdp.model.expansion import without_draws
from fmdp.model.structure import Scope
from fmdp.model.symmetry import Symmetry, symmetry_of
from fmdp.planning.alp.alp_settings import ALPSettings
from fmdp.planning.alp.bases import Basis, collapsed, make_basis
from fmdp.planning.alp.basis_scopes import (
    MOST_WEIGHTS,
    first_scopes,
    grown_scopes,
    n_weights,
    widened_scopes,
    within_limits,
)
from fmdp.planning.alp.looseness import Rise, estimated_rise, loose_part
from fmdp.planning.alp.policy_errors import errors_to_explain, simulated_gain
from fmdp.planning.alp.prepared_alp import PreparedALP, without_program
from fmdp.planning.evaluate import evaluate_exactly
from fmdp.planning.limits import tolerance_of
from fmdp.planning.plan import Plan
from fmdp.planning.policies.policy import MOST_NUMBERED
from fmdp.planning.settings import with_basis
from fmdp.planning.status import Progress, Status

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

JUDGED_EXACTLY = 1 << 12
"""States up to which a policy is judged by its exact gain: more take longer than a simulation."""
TIGHTENING_ROUNDS = 40
"""Rounds of the final program, which tightens the bound without converging: more are slower."""
MOST_CAPPED = 64
"""Weights up to which a program is solved again with a cap if its policy is worse than before:
larger ones take too long."""
_PRECISION = 0.2
"""Precision, relative to `gap`, of a program that is too large to grow: a more precise solution
takes several times as long, and moves the bound by less than a fifth of the gap that is asked
for."""
_CAPS = (0.3, 0.1)
"""Caps that are tried, as shares of the largest weight: each costs one program."""
_STEPS, _VISITS = 400, 40
"""Steps of a simulation that judges a policy, and of one that only visits states: more reduce
variance and cost time."""
_LEADING, _LONGER = 4, 8
"""Number of policies that are judged again at the end, and how many times as long: more guard
better against lucky estimates, and cost time."""
_GROWN_BYTES, _TIGHTENED_BYTES = 1 << 28, 700 << 20
"""Memory of the network of a basis that has grown, and of the one that tightens the bound in a few
rounds: a pass over 256 MB takes a fifth of a second, and a program needs hundreds of passes."""
_STALLED = 0.9
"""A gap that has not shrunk below this share of itself has stalled. The gaps of circles that are
worth growing shrink to .8 or less in every round."""
_PATIENCE, _SHORT_PATIENCE, _LARGE = 2, 1, 128
"""Rounds over which a stall is judged, those before a program of more weights than `_LARGE`, and
that number: such a program takes a minute. Rounds count, not seconds, because the same model must
give the same plan on any machine."""
_LARGEST_SHARE = 10.0
"""Gaps that are a larger multiple of the bound are printed as numbers: the bound is near 0."""
_SEED = 0
_FAILURES: dict[Status, str] = {
    Status.TIME_LIMIT: "time",
    Status.INTERRUPTED: "interrupt",
    Status.ITERATION_LIMIT: "iterations",
}
"""Reasons to stop when a program has not converged; any other status is "precision"."""

_MESSAGES = {
    "gap": "stopped: the gap of {gap} is small enough",
    "stall": "stopped: the gap of {gap} shrank by less than {share} in the last {rounds}",
    "size": "stopped with a gap of {gap}: a larger basis would exceed the limits",
    "memory": "stopped with a gap of {gap}: a larger basis does not fit into memory",
    "time": "stopped with a gap of {gap} at the time limit",
    "interrupt": "stopped by hand with a gap of {gap}",
    "iterations": "stopped with a gap of {gap} at the iteration limit",
    "precision": "stopped with a gap of {gap}: rounding kept a program from its optimum",
}
"""What `stats["growth"]` says for each reason."""


def stalled_rounds(gaps: Sequence[float], n_weights: int) -> int | None:
    """Return the number of last rounds in which the gap has hardly shrunk; None if it has shrunk.

    `gaps` are those after each round, and `n_weights` the size of the next program.
    """
    patience = _SHORT_PATIENCE if n_weights > _LARGE else _PATIENCE
    if len(gaps) <= patience or gaps[-1] <= _STALLED * gaps[-1 - patience]:
        return None
    return patience


def _gap_text(gap: float, bound: float) -> str:
    """Return the gap as a share of the bound, or as a number where the bound is near 0.

    A simulated gain may lie above the bound, which is no gap.
    """
    gap = max(gap, 0.0)
    return (
        f"{gap / abs(bound):.1%}" if gap <= _LARGEST_SHARE * abs(bound) and bound else f"{gap:.3g}"
    )


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A plan, its settings, and the judged gain of its policy."""

    plan: Plan
    settings: ALPSettings
    gain: float


class _BasisGrowth:
    """The search of one plan."""

    def __init__(
        self, settings: ALPSettings, model: FactoredMDP, progress: Progress | None
    ) -> None:
        self.settings = settings
        self.model = model
        self.structure: Structure = model.structure
        expansion = without_draws(model.structure)
        self.simulated = model if expansion is None else expansion.tables(model)
        """The model without drawn variables, in which Bellman errors are computed."""
        self.progress = progress
        self.started = time.perf_counter()
        self.deadline = Deadline.after(settings.max_seconds)
        least = tolerance_of(settings.tolerance, model.structure)
        self.least_gap = least if settings.gap > 0.0 else 0.0
        """A gap of at most this ends the search: a share of a bound near 0 would be no limit."""
        self.best: _Candidate | None = None
        self.leading: list[_Candidate] = []
        """The best few candidates, best first."""
        self.bound = model.structure.reward_bounds[1]
        """Upper bound on the gain of any policy, at first the sum of the largest rewards."""
        self.objective = math.inf
        self.iterations = 0
        self.failed: Status | None = None
        """The status of the last program if it has not converged."""
        self.tight: Floats | None = None
        """The weights of the last average program."""
        self.symmetry: Symmetry | None = None
        self.steps: list[dict[str, Any]] = []
        self.gaps: list[float] = []
        """The bound less the judged gain after every round."""
        self.rounds_stalled = 0
        self.rise: Rise | None = None

    def run(self) -> Plan:
        try:
            reason = self.grow()
            if reason != "interrupt":
                self.choose()
            if reason in ("size", "stall", "memory"):
                with suppress(TimeUp):
                    self.rise = self.estimated_rise()
        except TooLarge:
            if self.best is None:
                raise
            reason = "memory"
        except (TimeUp, KeyboardInterrupt) as error:
            if self.best is None:
                return without_program(self.settings, self.structure, error, self.started)
            reason = "time" if isinstance(error, TimeUp) else "interrupt"
        return self.finished(reason)

    def grow(self) -> str:
        """Grow the basis until there is a reason to stop, and return the reason."""
        # The user's relevance may differ between images.
        if self.settings.relevance is None:
            self.symmetry = symmetry_of(self.model, self.deadline)
        scopes = first_scopes(self.structure, self.symmetry)
        while True:
            try:
                errors = self.solve(scopes)
            except TooLarge as error:
                if self.best is None:
                    raise
                return "size" if error.limit_bytes == _GROWN_BYTES else "memory"
            reason = self.reason_after_solving(errors is not None)
            if reason is not None or errors is None:
                return reason or "precision"
            grown = None
            if self.may_grow(scopes):
                grown = grown_scopes(self.structure, scopes, *errors, self.symmetry)
            if grown is None:
                in_time = self.symmetry is None or self.tighten(scopes, self.symmetry)
                return "size" if in_time else "time"
            stalled = stalled_rounds(self.gaps, n_weights(self.structure, grown, self.symmetry))
            if stalled is not None and self.settings.gap > 0.0:
                self.rounds_stalled = stalled
                return "stall"
            scopes = grown

    def reason_after_solving(self, judged: bool) -> str | None:
        """Return the reason to stop after a program was solved; None if the basis may grow.

        `judged` is whether a policy was judged; then the gap is noted.
        """
        if self.failed is None and not judged and self.deadline.expired():
            return "time"
        if self.failed is not None or not judged:
            return _FAILURES.get(self.failed or Status.PRECISION_LIMIT, "precision")
        self.gaps.append(self.bound - self.best_gain())
        if self.gaps[-1] <= max(self.settings.gap * abs(self.bound), self.least_gap):
            return "gap"
        return "time" if self.deadline.expired() else None

    def reporter(self, what: str) -> Progress | None:
        """Return a progress callback that adds the bound so far and a description of the work."""
        progress = self.progress
        if progress is None:
            return None
        return lambda state: progress(
            {**state, "what": what, "gain_upper": self.bound, "rounds": state.get("iteration")}
        )

    def announce(self, what: str) -> None:
        """Report a description of the work that begins now."""
        report = self.reporter(what)
        if report is not None:
            report({})

    def best_gain(self) -> float:
        return -math.inf if self.best is None else self.best.gain

    def solve(self, scopes: tuple[Scope, ...]) -> tuple[Ints, Floats] | None:
        """Solve both programs over these scopes.

        Return states and the Bellman errors of the last judged policy there, or None if no policy
        was judged.
        """
        settings = with_basis(self.settings, scopes)
        prepared = self.prepared(settings, scopes)
        started = self.started if self.best is None else None
        report = self.reporter(f"{prepared.basis.size:,} weights")
        plan = prepared.solve(self.model, describe=True, progress=report, started=started)
        before, first = self.best_gain(), len(self.steps)
        errors = self.consider(plan, settings, scopes, prepared.basis.size)
        if plan.objective is not None:
            self.objective = min(self.objective, plan.objective)
        if plan.status is not Status.CONVERGED or settings.criterion != "discounted":
            return errors
        if prepared.basis.size <= MOST_WEIGHTS:
            tight = prepared.tightest(report, self.deadline)
            average = replace(settings, criterion="average", weight_cap=None)
            errors = self.consider(tight, average, scopes, prepared.basis.size) or errors
            self.tight = tight.stats.get("weights")
            if tight.status is not Status.CONVERGED:
                return errors
        gains = [step["judged"] for step in self.steps[first:] if step["judged"] is not None]
        worse = max(gains, default=math.inf) < before - self.settings.gap * abs(self.bound)
        if worse and prepared.basis.size <= MOST_CAPPED and settings.weight_cap is None:
            self.cap(settings, scopes, float(np.abs(plan.stats["weights"]).max()))
        return errors

    def cap(self, settings: ALPSettings, scopes: tuple[Scope, ...], largest: float) -> None:
        """Add candidates from the same program with caps on the weights. Their failures count only
        if the user or the clock has stopped them."""
        for share in _CAPS:
            if largest == 0.0 or self.deadline.expired():
                return
            capped = replace(settings, weight_cap=share * largest)
            prepared = self.prepared(capped, scopes)
            report = self.reporter(f"{prepared.basis.size:,} weights with a cap")
            plan = prepared.solve(self.model, describe=True, progress=report)
            self.consider(plan, capped, scopes, prepared.basis.size)
            if plan.status in (Status.INTERRUPTED, Status.TIME_LIMIT):
                return
            self.failed = None

    def tighten(self, scopes: tuple[Scope, ...], symmetry: Symmetry) -> bool:
        """Tighten the bound with one more parent for every scope, and return False if there was no
        time.

        It starts at the last weights and stops after some rounds. They need not converge, because
        the residual of any weights certifies a bound.
        """
        wider = None if self.tight is None else widened_scopes(self.structure, scopes, symmetry)
        if self.tight is None or wider is None:
            return True
        basis = make_basis(self.structure, scopes)
        begin = {block.scope: self.tight[block.columns] for block in basis.blocks}
        prepared = self.prepared(with_basis(self.settings, wider), scopes, _TIGHTENED_BYTES)
        try:
            bound = prepared.tightened(self.model, begin, TIGHTENING_ROUNDS)
        except TimeUp:
            return False
        except TooLarge:
            return True
        if bound is not None:
            self.bound = min(self.bound, bound)
            self.record(prepared.basis.size, "average", None, bound, None)
        return True

    def relative_precision(self, scopes: tuple[Scope, ...]) -> float:
        """Return the relative precision of the program over these scopes, 0 for the tolerance."""
        if self.settings.tolerance is not None or self.may_grow(scopes):
            return 0.0
        return _PRECISION * self.settings.gap

    def may_grow(self, scopes: tuple[Scope, ...]) -> bool:
        return within_limits(self.structure, scopes, self.symmetry)

    def prepared(
        self, settings: ALPSettings, scopes: tuple[Scope, ...], most_bytes: int = _GROWN_BYTES
    ) -> PreparedALP:
        """Prepare a program over these scopes for the remaining time.

        The first basis may use all memory, a larger one `most_bytes`.
        """
        left = self.deadline.remaining()
        if left is not None:
            settings = replace(settings, max_seconds=max(left, 1e-3))
        if self.best is not None:
            limit = settings.memory_limit or available_memory() // 2
            settings = replace(settings, memory_limit=min(limit, most_bytes))
        return PreparedALP(
            settings,
            self.structure,
            share_for=self.model,
            dense=True,
            relative=self.relative_precision(scopes),
            symmetry=self.symmetry,
        )

    def consider(
        self, plan: Plan, settings: ALPSettings, scopes: tuple[Scope, ...], n_weights: int
    ) -> tuple[Ints, Floats] | None:
        """Keep the plan's bound and policy if they are better; return states and its Bellman errors
        there."""
        self.iterations += plan.iterations
        self.failed = None if plan.status is Status.CONVERGED else plan.status
        if plan.gain_upper is not None:
            self.bound = min(self.bound, plan.gain_upper)
        if plan.policy is None or "weights" not in plan.stats:
            if self.best is None:
                self.best = _Candidate(plan, settings, -math.inf)
            return None
        judged: tuple[Ints, Floats, float] | None = None
        # After Ctrl-C there is no time for the simulation, which may take minutes.
        if plan.status is not Status.INTERRUPTED:
            with suppress(TimeUp):  # a policy that was not judged comes after all others
                judged = self.judged(plan, scopes)
        gain = None if judged is None else judged[2]
        self.record(n_weights, settings.criterion, settings.weight_cap, plan.gain_upper, gain)
        candidate = _Candidate(plan, settings, -math.inf if gain is None else gain)
        self.leading = sorted([*self.leading, candidate], key=lambda c: -c.gain)[:_LEADING]
        self.best = self.leading[0]
        return None if judged is None else judged[:2]

    def record(
        self,
        n_weights: int,
        criterion: str,
        weight_cap: float | None,
        gain_upper: float | None,
        gain: float | None,
    ) -> None:
        self.steps.append(
            {
                "weights": n_weights,
                "criterion": criterion,
                "weight_cap": weight_cap,
                "gain_upper": gain_upper,
                "judged": gain,
                "judged_kind": None if gain is None else self.judged_kind,
            }
        )

    @property
    def judged_kind(self) -> str:
        """Return "exact" if policies are judged by their certified gain, else "simulated"."""
        s = self.structure
        exact = s.n_states <= JUDGED_EXACTLY and s.n_actions < MOST_NUMBERED
        return "exact" if exact else "simulated"

    def choose(self) -> None:
        """Simulate the leading policies again, for longer, if they were simulated: the best of many
        estimates may only be the luckiest."""
        if self.judged_kind == "exact" or len(self.leading) < 2:
            return
        again = []
        for number, candidate in enumerate(self.leading, 1):
            self.announce(f"evaluating policy {number} of {len(self.leading)} for longer")
            plan = candidate.plan
            assert plan.policy is not None
            basis, weights = self.value_of(plan, candidate.settings.basis)
            generator = np.random.Generator(np.random.PCG64(_SEED + 1))
            steps = _LONGER * _STEPS
            try:
                _, gain = simulated_gain(
                    self.simulated, plan.policy, basis, weights, steps, generator, self.deadline
                )
            except TimeUp:
                return
            again.append(replace(candidate, gain=gain))
        self.best = max(again, key=lambda candidate: candidate.gain)

    def estimated_rise(self) -> Rise | None:
        """Estimate how much the gain of the best policy would rise by better actions."""
        best = self.best
        if best is None or best.plan.policy is None or not math.isfinite(best.gain):
            return None
        self.announce("comparing other actions with the policy's")
        basis, weights = self.value_of(best.plan, best.settings.basis)
        generator = np.random.Generator(np.random.PCG64(_SEED + 2))
        policy, deadline = best.plan.policy, self.deadline
        visited, _ = simulated_gain(
            self.simulated, policy, basis, weights, _VISITS, generator, deadline
        )
        return estimated_rise(self.simulated, policy, basis, weights, visited, generator, deadline)

    def outcome(self, reason: str) -> dict[str, Any]:
        """Return what is known about the gap at the end, for `stats`."""
        gain = self.best_gain()
        if not math.isfinite(gain):
            return {"message": "stopped before a policy was judged", "loose": "unknown"}
        gap = self.bound - gain
        rounds = f"{self.rounds_stalled} rounds" if self.rounds_stalled > 1 else "round"
        return {
            "message": _MESSAGES[reason].format(
                gap=_gap_text(gap, self.bound), share=f"{1.0 - _STALLED:.0%}", rounds=rounds
            ),
            "loose": loose_part(gap, self.rise),
            "gain_upper": self.bound,
            "judged": gain,
            "judged_kind": self.judged_kind,
            "estimated_rise": None if self.rise is None else self.rise.mean,
            "estimated_rise_error": None if self.rise is None else self.rise.error,
        }

    def value_of(self, plan: Plan, scopes: Any) -> tuple[Basis, Floats]:
        """Return h_w as a basis of few functions, and their weights."""
        basis = collapsed(make_basis(self.structure, scopes), plan.stats["weights"])
        return basis, np.ones(basis.size)

    def judged(self, plan: Plan, scopes: tuple[Scope, ...]) -> tuple[Ints, Floats, float]:
        """Return states, the Bellman errors there, and the gain of the policy.

        There are no states if the scopes cannot grow.
        """
        assert plan.policy is not None
        self.announce("evaluating the policy")
        basis, weights = self.value_of(plan, scopes)
        generator = np.random.Generator(np.random.PCG64(_SEED))
        exactly = self.judged_kind == "exact"
        steps = _VISITS if exactly else _STEPS
        visited, gain = simulated_gain(
            self.simulated, plan.policy, basis, weights, steps, generator, self.deadline
        )
        if exactly:
            exact = evaluate_exactly(
                self.model,
                plan.policy,
                max_seconds=self.deadline.remaining(),
                memory_limit=self.settings.memory_limit,
            )
            exact.status.raise_if_interrupted()
            gain = gain if exact.gain_lower is None else exact.gain_lower
        if not self.may_grow(scopes):
            return visited[:0], np.zeros(0), gain
        policy = plan.policy
        explained = errors_to_explain(self.simulated, policy, basis, weights, visited, generator)
        return *explained, gain

    def finished(self, reason: str) -> Plan:
        best = self.best
        assert best is not None
        statuses = {name: status for status, name in _FAILURES.items()}
        return replace(
            best.plan,
            status=statuses.get(reason, best.plan.status),
            gain_upper=self.bound,
            objective=self.objective if math.isfinite(self.objective) else best.plan.objective,
            iterations=self.iterations,
            seconds=time.perf_counter() - self.started,
            model=self.model,
            settings=replace(best.settings, max_seconds=self.settings.max_seconds),
            stats={
                **best.plan.stats,
                "basis": "auto",
                "scopes": best.settings.basis,
                "grown": tuple(self.steps),
                "grown_until": reason,
                "growth": self.outcome(reason),
            },
        )


def plan_by_growth(settings: ALPSettings, model: FactoredMDP, progress: Progress | None) -> Plan:
    """Return the plan of `basis="auto"`."""
    return _BasisGrowth(settings, model, progress).run()
