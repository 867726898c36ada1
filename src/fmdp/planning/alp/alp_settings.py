"""The settings of the approximate linear program."""

from __future__ import annotations

from fmdp._base.settings import setting
from fmdp.planning.plan import Planner
from fmdp.planning.settings import (
    GAP,
    SEARCHED,
    Distributions,
    Limited,
    TieBreaking,
    basis_setting,
    criterion_setting,
    discount_setting,
    targets_setting,
    tolerance_setting,
)

NamedScope = tuple[int | str, ...]


class ALPSettings(Limited, TieBreaking, Planner):
    """The settings of planner alp, without its algorithms."""

    basis: str | tuple[NamedScope, ...] = basis_setting(SEARCHED)
    gap: float = setting(
        GAP,
        "share of the bound that the policy may miss before the basis stops growing",
        low=0.0,
        only_with=("basis", (SEARCHED,)),
        unkeyed=(0.01,),
    )
    method: str = setting(
        "cuts",
        "constraint generation, or the factored linear program",
        choices=("cuts", "factored"),
    )
    weight_cap: float | None = setting(
        None,
        "upper bound on the absolute value of every weight of a basis function, in units of the "
        "reward: a program with small weights may have a better policy, and a larger objective",
        low=0.0,
        low_open=True,
        unkeyed=(None,),
    )
    criterion: str = criterion_setting("discounted")
    discount: float = discount_setting()
    tolerance: float | None = tolerance_setting(
        "how far the objective may be above the optimum; by default 1e-6 times the largest range "
        "of a reward factor (the factored program is solved to the solver's own precision, and "
        "its status says if that is worse)"
    )
    relevance: tuple[tuple[float, ...], ...] | None = setting(
        None, "alpha, one distribution per state variable; uniform", kind=Distributions
    )
    targets: str = targets_setting("joint", ("joint", "split"))
