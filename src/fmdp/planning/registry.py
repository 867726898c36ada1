"""The registry of planners by name: those of fmdp, and those that other packages register.

    PLANNERS.find("exact") is Exact        PLANNERS.read("alp,basis=pairs") == ALP(basis="pairs")

The command line, sweep specs, saved learners and `fmdp list` look planners up here. Classes are
imported on use, because the linear planner loads a solver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmdp._base.parameters import quoted
from fmdp._base.registries import Registry
from fmdp.errors import InvalidParameter

if TYPE_CHECKING:
    from fmdp.planning.plan import Planner

PLANNERS: Registry[Planner] = Registry(
    "planner",
    "fmdp.planning.plan:Planner",
    {
        "exact": "fmdp.planning.exact.planner:Exact",
        "counts": "fmdp.planning.counts.planner:Counts",
        "alp": "fmdp.planning.alp:ALP",
        "span": "fmdp.planning.span:SpanConstrained",
        "coupled": "fmdp.planning.coupled:Coupled",
    },
)


def planner_of(given: object, owner: str) -> Planner | None:
    """Return a planner from what a user passes; None for None.

    It is an object with a method `prepare`, or a text NAME[,key=value...], as in "alp,basis=pairs"
    and "my_module:MyPlanner,depth=3". `owner` is the function that takes it, for messages.
    """
    if given is None:
        return None
    if isinstance(given, str):
        return PLANNERS.read(given)
    if isinstance(given, type) or not callable(getattr(given, "prepare", None)):
        raise InvalidParameter(
            f"the 'planner' of {owner} must be an object such as fmdp.Exact() or fmdp.ALP(), "
            f"or the name of a planner; got {quoted(given)}"
        )
    return given  # type: ignore[return-value]
