"""The planner alp: approximate linear programming with a given basis, or with one that grows."""

from __future__ import annotations

import time
from dataclasses import replace

from fmdp.elimination.ties import Ties
from fmdp.model import FactoredMDP, Structure
from fmdp.model.expansion import shared_draws
from fmdp.model.factored import check_model
from fmdp.planning.alp.alp_settings import ALPSettings
from fmdp.planning.alp.basis_trial import Outcome, larger_basis
from fmdp.planning.alp.gain_bound import least_gain_upper
from fmdp.planning.alp.growth import plan_by_growth
from fmdp.planning.alp.prepared_alp import PreparedALP, without_program
from fmdp.planning.plan import Plan, of_model
from fmdp.planning.settings import SEARCHED
from fmdp.planning.status import Progress


class ALP(ALPSettings):
    """Approximate linear programming, with a certified upper bound on the gain.

    For state spaces of any size. docs/approximate.md explains the method, its cost and its losses.
    """

    summary = "approximate linear programming; certified upper bound, for state spaces of any size"
    gives_marginals = True
    takes_derived = True
    takes_ties = True

    def prepare(self, structure: Structure) -> PreparedALP:
        return PreparedALP(self, structure)

    def least_gain_upper(self, model: FactoredMDP, progress: Progress | None = None) -> float:
        return least_gain_upper(type(self)(), model, progress)

    def larger_basis(
        self,
        model: FactoredMDP,
        plan: Plan,
        *,
        difference: float,
        seconds: float,
        plan_seconds: float,
        ties: Ties | None = None,
    ) -> Outcome:
        """Try larger bases on one model, for callers that plan again and again.

        Larger bases grow where the Bellman error is largest, and their policies are compared with
        that of `plan` by simulation. Times are predicted and not measured, so the same arguments
        give the same result on any machine.

        Parameters
        ----------
        model
            The model of the last plan.
        plan
            That plan, made with these settings.
        difference
            The least increase of the gain that makes a larger basis worth its time.
        seconds
            Most predicted seconds of the trial.
        plan_seconds
            Most predicted seconds of a plan with a larger basis.
        ties
            How ties are broken in the plans of the trial.

        Returns
        -------
        Outcome
            The scopes of the better basis, () for that of single variables, or None if this one
            stays; predicted seconds of a plan with it, and of the trial; the number of larger bases
            that were compared.
        """
        return larger_basis(
            self,
            model,
            plan,
            difference=difference,
            seconds=seconds,
            plan_seconds=plan_seconds,
            ties=ties,
        )

    def plan(self, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
        check_model(model, "plan")
        if self.basis == SEARCHED:
            if shared_draws(model.structure):  # a larger function could not be projected
                return replace(self, basis="indicators").plan(model, progress=progress)
            return plan_by_growth(self, model, progress)
        started = time.perf_counter()
        try:
            prepared = PreparedALP(self, model.structure, share_for=model)
        except KeyboardInterrupt as error:
            return without_program(self, model.structure, error, started)
        plan = prepared.solve(model, describe=True, progress=progress, started=started)
        return of_model(plan, model, self)
