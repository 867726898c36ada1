"""The report of `fmdp plan`: the keys of its JSON object, its lines for people, its exit status."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmdp._base.memory import describe_bytes, describe_count
from fmdp.cli.output import (
    columns,
    interval_text,
    known_number,
    numbers_text,
    print_people,
    rounded_number,
    seconds_text,
    upper_text,
)
from fmdp.errors import TooLarge

if TYPE_CHECKING:
    from fmdp.planning.plan import Plan
    from fmdp.planning.status import Status

PLAN_KEYS = (
    "gain",
    "gain_lower",
    "gain_upper",
    "span",
    "factored_spans",
    "factored_span_sum",
    "objective",
    "policy_gain",
    "iterations",
    "ties",
)
"""Keys of the JSON object that are attributes of the plan."""
STATISTICS_KEYS = (
    "budgets",
    "truncated_states",
    "attained",
    "gain_from_initial_state",
    "gain_from_initial_state_bounds",
    "horizon",
    "objective_bounds",
    "intervals",
    "span_error",
    "limits",
    "fleet",
    "counts",
    "memory_bytes",
    "disk_bytes",
    "mpi",
)
"""Keys of the JSON object that some planners and criteria put into the plan's statistics."""
KEYS = (
    "problem",
    "planner",
    "planner_reason",
    "status",
    *PLAN_KEYS,
    "seconds",
    "states",
    "actions",
    "seconds_startup",
    "seconds_evaluation",
    "peak_memory_bytes",
    *STATISTICS_KEYS,
    "settled",
    "remarks",
)
NOTE_ON_ENDS = (
    "the policy reaches states where nothing is left to decide: the gain is the reward per step "
    "there and does not value the way to them; --criterion finite --horizon H does"
)

_CASES = {"robust": ", worst case", "optimistic": ", best case"}


def refusal(error: TooLarge) -> dict[str, Any]:
    """Return the entries of the result of a plan that was refused."""
    needed, most = error.needed_bytes, error.limit_bytes
    return {"status": "too_large", "needed_bytes": needed, "memory_limit_bytes": most}


def with_horizon_of_problem(problem: str, settings: dict[str, object]) -> dict[str, object]:
    """Return the settings with the problem's own horizon, if one is needed and none is given."""
    from fmdp.problems.foreign import format_of

    foreign = format_of(problem)
    needed = settings.get("criterion") == "finite" and settings.get("horizon") is None
    horizon = foreign.horizon(problem) if needed and foreign is not None else None
    return settings if horizon is None else {**settings, "horizon": horizon}


def exit_status(status: Status) -> int:
    """Return 0 for a finished or simulated result, 130 for an interrupted one, else 1."""
    return {"converged": 0, "simulated": 0, "interrupted": 130}.get(status.value, 1)


def peak_memory() -> int | None:
    """Return the peak memory of this process in bytes, or None if the system does not report it."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def print_plan(result: Mapping[str, Any], solution: Plan, out: Path | None, saved: bool) -> None:
    """Print the plan for people; `saved` is whether there was a policy to save in `out`."""
    message = solution.status.message
    rows = [("problem", result["problem"])]
    if result["states"] is None:
        message = "stopped before there was a model"
    else:
        states, actions = (describe_count(result[key]) for key in ("states", "actions"))
        rows.append(("size", f"{states} states, {actions} actions"))
    rows += [("remark", remark) for remark in result.get("remarks") or ()]  # runs have none
    rows += [("planner", planner_text(result)), ("status", f"{result['status']}: {message}")]
    rows += [*gain_rows(result, solution), *value_rows(result, solution)]
    if result["policy_gain"] is not None:
        bounds = solution.stats.get("policy_gain_bounds", (None, None))
        where = "" if result["intervals"] is None else " in the model as it is"
        rows.append((f"gain of the policy{where}", known_number(result["policy_gain"], *bounds)))
    if "growth" in solution.stats:
        growth = solution.stats["growth"]
        known = growth["loose"] != "unknown"
        loose = f"; loose, by estimate: {growth['loose']}" if known else ""
        rows.append(("basis", f"{growth['message']}{loose}"))
    if result["settled"]:
        rows.append(("note", NOTE_ON_ENDS))
    rows += limit_rows(result["limits"] or ())
    rows += fleet_rows(result["fleet"], result["gain_upper"])
    rows += mpi_rows(result["mpi"])
    rows += span_rows(result, solution.stats.get("span_error"))
    rows.append(("iterations", f"{result['iterations']:,}"))
    startup = seconds_text(result["seconds_startup"])
    evaluation = seconds_text(result["seconds_evaluation"])
    others = f"besides: start-up {startup}, evaluation {evaluation}"
    rows.append(("time", f"{seconds_text(result['seconds'])} ({others})"))
    if result["peak_memory_bytes"] is not None:
        rows.append(("memory", f"{describe_bytes(result['peak_memory_bytes'])} at the peak"))
    if out is not None:
        rows.append(("policy", f"saved in {out}" if saved else "none to save"))
    print_people(columns(rows))


def gain_rows(result: Mapping[str, Any], solution: Plan) -> Iterator[tuple[str, str]]:
    """Yield the gain, with the digits that are known, and its certified bounds."""
    lower, upper = result["gain_lower"], result["gain_upper"]
    budgets, case = result["budgets"], _CASES.get(result["intervals"], "")
    if result["gain_from_initial_state"] is not None:
        bounds = solution.stats["gain_from_initial_state_bounds"]
        from_start = known_number(result["gain_from_initial_state"], *bounds)
        yield "gain", f"{from_start} from the initial state; it depends on the state"
    elif result["gain"] is not None and result["status"] in ("converged", "precision_limit"):
        name = "gain" if budgets is None else "gain under the budgets"
        # The gain of an approximate plan is that of its policy.
        of_policy = result["gain"] == result["policy_gain"]
        bounds = solution.stats["policy_gain_bounds"] if of_policy else (lower, upper)
        yield name + case, known_number(result["gain"], *bounds)
    if lower is not None and upper is not None:
        yield f"certified bounds{case}", f"{interval_text(lower, upper)} (gap {upper - lower:.2g})"
    elif upper is not None:
        yield "certified bound", f"at most {upper_text(upper)}"


def limit_rows(limits: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the name of each limit with the value that the policy achieves and its price."""
    for limit in limits:
        text = "no policy yet"
        if limit["achieved"] is not None:
            ends = limit["achieved_lower"], limit["achieved_upper"]
            text = f"achieved {known_number(limit['achieved'], *ends)}"
        price = f"binds, price {limit['price']:.6g}" if limit["binding"] else "does not bind"
        yield f"limit {limit['name']} {limit['sense']} {limit['value']:g}", f"{text}; {price}"


def fleet_rows(
    fleet: Mapping[str, Any] | None, gain_upper: float | None
) -> Iterator[tuple[str, str]]:
    """Yield the parts of a fleet, the prices of its budgets, and the estimate of its policy."""
    if fleet is None:
        return
    types = "one type" if fleet["types"] == 1 else f"{fleet['types']:,} types"
    yield "parts", f"{fleet['parts']:,} of {types}"
    for budget in fleet["budgets"]:
        # Every price that is large enough is best for a limit of 0, so its price is no slope.
        price = f"one more is worth {budget['price']:.4g}" if budget["price"] else "does not bind"
        price = price if budget["limit"] else "nothing that costs is allowed"
        name = budget["name"]
        label = name if "budget" in name else f"budget {name}"
        yield label, f"at most {budget['limit']:g}; {price}"
    estimate, interval = fleet["simulated_gain"], fleet["simulated_gain_interval"]
    if estimate is None:
        return
    confidence = f"{100 * fleet['simulated_confidence']:g} % interval"
    within = f"{confidence} {interval_text(*interval)}"
    yield (
        "simulated gain" if gain_upper is not None else "simulated value",
        f"{estimate:.7g} ({within}; an estimate, not certified)",
    )
    yield "policy rule", _rule_text(fleet)
    if gain_upper is not None:
        gap = gain_upper - estimate
        if gap <= 0.0:
            yield "below the bound", "by less than the noise of this estimate"
            return
        share = f" ({100 * gap / abs(gain_upper):.2g} %)" if abs(gain_upper) > abs(gap) else ""
        yield "below the bound", f"by {gap:.2g}{share}, by this estimate"


def mpi_rows(mpi: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield the number of MPI ranks, and what each of them held and sent."""
    if mpi is None:
        return
    resumed = "; resumed from a checkpoint" if mpi["resumed"] else ""
    yield "MPI ranks", f"{mpi['ranks']}, each with {describe_bytes(mpi['bytes_per_rank'])}{resumed}"
    sent, predicted = (
        describe_bytes(mpi[f"bytes_sent_{key}"]) for key in ("per_rank", "predicted")
    )
    if mpi["checkpoints"]:
        yield "checkpoint", f"{mpi['checkpoints']} written to {mpi['checkpoint']}"
    seconds = seconds_text(mpi["seconds_communicating"])
    yield "communication", f"{sent} sent by each rank (predicted {predicted}), {seconds}"


def _rule_text(fleet: Mapping[str, Any]) -> str:
    others = [f"{name} {gain:.6g}" for name, gain in fleet["compared"].items()]
    return f"{fleet['policy']} (compared: {', '.join(others)})" if others else str(fleet["policy"])


def value_rows(result: Mapping[str, Any], solution: Plan) -> Iterator[tuple[str, str]]:
    """Yield the objective or the value over a horizon, with the digits that are known."""
    objective, bounds, horizon = (
        result[key] for key in ("objective", "objective_bounds", "horizon")
    )
    if objective is not None:
        value = known_number(objective, *(bounds or (None, None)))
        if horizon is None:
            mean = ", the mean over all states" if result["planner"] == "exact" else ""
            yield "objective", value + mean
        else:
            yield "value", f"{value} over {horizon:,} steps from the initial state"
    elif horizon is not None:
        planned = f"the last {solution.stats['steps_planned']:,} of {horizon:,} steps"
        yield "planned", f"{planned}; no policy"
    elif bounds is not None:
        yield "objective", f"certified {interval_text(*bounds)}"


def span_rows(result: Mapping[str, Any], error: float | None) -> Iterator[tuple[str, str]]:
    """Yield the spans with the digits that are known, and the budgets.

    `error` is that of the span if the bias is not unique.
    """
    if result["span"] is not None:
        yield "span", rounded_number(result["span"], error, 9)
    spans = result["factored_spans"]
    if spans is not None:
        error_of_sum = None if error is None else error * len(spans)
        yield "factored spans", numbers_text(spans, error=error)
        yield "their sum (Q)", rounded_number(result["factored_span_sum"], error_of_sum, 9)
    if result["budgets"] is not None:
        yield "budgets", numbers_text(result["budgets"])
        yield "truncated", truncated_text(result["truncated_states"], result["attained"])


def planner_text(result: Mapping[str, Any]) -> str:
    """Return the planner, and why it is not the exact one or on how many counts it planned."""
    reason, counts = result["planner_reason"], result.get("counts")  # runs have no counts
    if reason is None and counts is not None:
        states = describe_count(result["states"])
        reason = f"{states} states as {describe_count(counts)} counts"
    return (result["planner"] or "none") + ("" if reason is None else f" ({reason})")


def truncated_text(states: int, attained: bool) -> str:
    if states == 0:
        return "no state: the budgets do not bind"
    mixture = "a mixture" if attained else "no mixture"
    return f"{states:,} states; {mixture} of actions attains the gain"
