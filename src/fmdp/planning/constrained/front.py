"""The front of two long-run averages: what can be had of one for how much of the other.

The pairs of averages that randomised policies attain in a unichain model are a polygon. A plan for
the weighted sum of the two averages finds a vertex in the direction of the weights, and its
certified upper bound a line that no policy crosses. Between two known vertices the weights are
normal to the segment: either the plan finds a vertex beyond it, and both halves are searched, or
the segment is an edge of the front, up to the tolerance.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline
from fmdp._base.parameters import quoted
from fmdp._base.progress import reporting
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.model.factored import check_model
from fmdp.planning.constrained.averages import Averages
from fmdp.planning.constrained.planner import refuse_other_planners
from fmdp.planning.exact.planner import Exact
from fmdp.planning.limits import TOLERANCE
from fmdp.planning.policies.archive import StoredPolicy
from fmdp.planning.policies.policy import Policy
from fmdp.planning.registry import planner_of
from fmdp.planning.status import Progress, Status

Floats = NDArray[np.float64]

_MOST_VERTICES = 1000


@dataclass(frozen=True, eq=False)
class Vertex:
    """A policy on the front.

    Attributes
    ----------
    values
        Its two averages from the initial state.
    bounds
        Certified bounds on each.
    policy
        The policy.
    """

    values: tuple[float, float]
    bounds: tuple[tuple[float, float], tuple[float, float]]
    policy: Policy


@dataclass(frozen=True, eq=False)
class Front:
    """The front of two long-run averages.

    Attributes
    ----------
    names
        The names of the two averages.
    minimised
        Whether each is minimised instead of maximised.
    vertices
        The vertices, from the best first average to the best second one.
    gap
        How far a policy can lie beyond the edges of the front, in shares of the ranges of the
        averages: certified for every edge that was tested. Edges shorter than the tolerance are
        not, and neither are the two ends of the front. Infinite if the search was stopped.
    status
        `converged` if the gap is within the tolerance.
    """

    names: tuple[str, str]
    minimised: tuple[bool, bool]
    vertices: tuple[Vertex, ...]
    gap: float
    status: Status

    def to_csv(self) -> str:
        """Return a table with one row per vertex: the averages and their certified bounds."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        ends = [f"{name} {end}" for name in self.names for end in ("lower", "upper")]
        writer.writerow([*self.names, *ends])
        for vertex in self.vertices:
            writer.writerow([*vertex.values, *vertex.bounds[0], *vertex.bounds[1]])
        return text.getvalue()

    def __repr__(self) -> str:
        points = ", ".join(f"({a:.6g}, {b:.6g})" for a, b in (v.values for v in self.vertices))
        return f"Front of {' and '.join(self.names)}: {self.status.value}, {points}"


def pareto(
    model: FactoredMDP,
    of: Sequence[str],
    planner: Exact | str | None = None,
    *,
    progress: bool | Progress | None = None,
) -> Front:
    """Return the front of two long-run averages: its vertices, each with its policy.

    Parameters
    ----------
    model
        The model.
    of
        Two names, of reward factors or quantities, or "reward" for the total reward. Each average
        is maximised; a name with ":min" at its end, as in "callouts:min", is minimised.
    planner
        The exact planner, with other settings than the defaults; its tolerance is the gap of the
        front, in shares of the ranges of the averages, 1e-6 by default.
    progress
        As in `plan`.

    Returns
    -------
    Front
        The vertices, the certified gap, and a status.

    Raises
    ------
    InvalidParameter
        If `of` is not two different names, or the planner is not the exact one.
    UnknownName
        If no reward factor or quantity has the name.
    """
    check_model(model, "pareto")
    chosen = planner_of(planner, "pareto")
    exact = refuse_other_planners(Exact() if chosen is None else chosen, "fronts need")
    listed = isinstance(of, list | tuple) and len(of) == 2
    if not listed or not all(isinstance(name, str) for name in of):
        raise InvalidParameter(f"a front is of two names; got {quoted(of)}")
    names = tuple(name.removesuffix(":min") for name in of)
    if names[0] == names[1]:
        raise InvalidParameter(f"a front is of two different averages; got {names[0]!r} twice")
    minimised = tuple(name.endswith(":min") for name in of)
    with reporting(progress, f"searching the front of {model.name}".rstrip(), "pareto") as report:
        search = _Search(Averages(model, names), names, minimised, exact, report)
        status = search.run()
    vertices = search.vertices()
    for vertex in vertices:
        policy: Any = vertex.policy
        if isinstance(policy, StoredPolicy):
            policy.take_names(model.structure.naming)
            policy.take_constraints(model.structure.constraints)
    first, second = names
    gap = search.gap if status in (Status.CONVERGED, Status.RELAXATION_LIMIT) else np.inf
    return Front((first, second), (minimised[0], minimised[1]), vertices, gap, status)


@dataclass(frozen=True, eq=False)
class _Point:
    """A vertex; `at` has both averages in units of their ranges, to be maximised."""

    at: Floats
    vertex: Vertex


class _Search:
    def __init__(
        self,
        averages: Averages,
        names: Sequence[str],
        minimised: Sequence[bool],
        planner: Exact,
        progress: Progress | None,
    ) -> None:
        self._averages = averages
        self._weights = [averages.weights(name) for name in names]
        self._signs = np.array([-1.0 if low else 1.0 for low in minimised])
        self._units = np.array([averages.unit(weights) for weights in self._weights])
        self._tolerance = TOLERANCE if planner.tolerance is None else planner.tolerance
        self._planner = planner
        self._deadline = Deadline.after(planner.max_seconds)
        self._progress = progress
        self._points: list[_Point] = []
        self.gap = 0.0

    def run(self) -> Status:
        try:
            first, _ = self._plan(np.array([1.0, 0.0]))
            second, _ = self._plan(np.array([0.0, 1.0]))
            self._points += [first, second]
            ahead = [(first, second)]
            while ahead and len(self._points) < _MOST_VERTICES:
                ahead += self._between(*ahead.pop())
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        except TimeoutError:
            return Status.TIME_LIMIT
        if ahead:
            return Status.ITERATION_LIMIT
        return Status.CONVERGED if self.gap <= self._tolerance else Status.RELAXATION_LIMIT

    def _between(self, left: _Point, right: _Point) -> list[tuple[_Point, _Point]]:
        """Return the two halves of a segment with a vertex beyond it; none if it is an edge."""
        normal = np.array([right.at[1] - left.at[1], left.at[0] - right.at[0]])
        size = float(np.abs(normal).sum())
        if size <= self._tolerance or normal.min() < 0.0:
            return []
        normal /= size
        point, upper = self._plan(normal)
        known = max(float(normal @ left.at), float(normal @ right.at))
        if float(normal @ point.at) <= known + 0.5 * self._tolerance:
            self.gap = max(self.gap, upper - known)
            return []
        self._points.append(point)
        return [(left, point), (point, right)]

    def _plan(self, direction: Floats) -> tuple[_Point, float]:
        """Return the vertex in a direction, and a certified bound on all policies there."""
        remaining = self._deadline.remaining()
        if remaining == 0.0:
            raise TimeoutError
        factors = direction * self._signs / self._units
        weights = factors[0] * self._weights[0] + factors[1] * self._weights[1]
        planner = replace(self._planner, tolerance=0.25 * self._tolerance, max_seconds=remaining)
        plan = planner.plan(self._averages.weighted(weights), progress=self._progress)
        plan.status.raise_if_interrupted()
        within = plan.stats.get("gain_from_initial_state_bounds") or plan.gain_bounds
        if plan.policy is None or plan.status is Status.TIME_LIMIT or within[1] is None:
            raise TimeoutError
        averages = [
            self._averages.of_policy(
                plan.policy, w, 0.1 * self._tolerance * u, self._deadline, planner.memory_limit
            )
            for w, u in zip(self._weights, self._units, strict=True)
        ]
        first, second = averages
        vertex = Vertex(
            (first.middle, second.middle),
            ((first.lower, first.upper), (second.lower, second.upper)),
            plan.policy,
        )
        return _Point(self._signs * vertex.values / self._units, vertex), float(within[1])

    def vertices(self) -> tuple[Vertex, ...]:
        """Return the vertices that no other one dominates, in order."""
        kept: list[_Point] = []
        order = sorted(self._points, key=lambda point: (-point.at[0], -point.at[1]))
        for point in order:
            if not kept or point.at[1] > kept[-1].at[1] + self._tolerance:
                if kept and kept[-1].at[0] - point.at[0] <= self._tolerance:
                    kept.pop()
                kept.append(point)
        return tuple(point.vertex for point in kept)
