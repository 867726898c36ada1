"""`fmdp plan`: plan for a problem; gain, certified bounds, spans, time and memory.

The clock: `seconds` is building the model, preparing and solving. Imports, and compiling or loading
compiled code, are `seconds_startup`. The evaluation of the policy is `seconds_evaluation`.
"""

from __future__ import annotations

import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from fmdp._base.interrupts import held
from fmdp._base.memory import describe_bytes, describe_count
from fmdp.cli import options
from fmdp.cli.output import (
    columns,
    interval_text,
    known_number,
    numbers_text,
    print_json,
    print_people,
    rounded_number,
    seconds_text,
    upper_text,
)
from fmdp.cli.progress import progress
from fmdp.errors import FileProblem, TooLarge

if TYPE_CHECKING:
    from fmdp.planning.plan import Plan
    from fmdp.planning.status import Status

# Keys of the JSON object; the plan has the first lot under the same names.
OF_THE_PLAN = (
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
# Of --planner span: the budget of every state variable, and whether a policy attains the gain. Of
# --criterion finite and discounted: certified bounds on the objective. Where the bias is not
# unique: an estimate of the error of the span.
OF_THE_STATS = (
    "budgets",
    "truncated_states",
    "attained",
    "gain_from_initial_state",
    "gain_from_initial_state_bounds",
    "horizon",
    "objective_bounds",
    "intervals",
    "span_error",
)
NOTE_ON_ENDS = (
    "the policy ends where nothing is left to decide: the gain is what is paid there for ever and "
    "says nothing of the way, which --criterion finite --horizon H values"
)
KEYS = (
    "problem",
    "planner",
    "planner_reason",
    "status",
    *OF_THE_PLAN,
    "seconds",
    "states",
    "actions",
    "seconds_startup",
    "seconds_evaluation",
    "peak_memory_bytes",
    *OF_THE_STATS,
    "settled",
)

_LEAST_SECONDS = 1e-3
_CASES = {"robust": ", worst case", "optimistic": ", best case"}
_SECONDS_BETWEEN_RINGS = 0.2


def plan(
    problem: options.Problem,
    planner: options.Planner = None,
    span_budget: options.SpanBudget = None,
    span_split: options.SpanSplit = None,
    basis: options.Basis = None,
    method: options.Method = None,
    criterion: options.Criterion = None,
    horizon: options.Horizon = None,
    discount: options.Discount = None,
    tolerance: options.Tolerance = None,
    max_iterations: options.MaxIterations = None,
    max_seconds: options.MaxSeconds = None,
    memory_limit: options.MemoryLimit = None,
    ties: options.Ties = None,
    tie_seed: options.TieSeed = None,
    robust: options.Robust = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="POLICY", help="Save the policy here (asked by `fmdp evaluate`)."),
    ] = None,
    json: options.Json = False,
) -> int:
    """Plan; gain, its certified bounds, spans, time, memory."""
    given = options.planner_settings(locals())
    if out is not None:
        refuse_unwritable(out)
    result: dict[str, Any] = dict.fromkeys(KEYS) | {"problem": problem}
    try:
        found = run(result, planner, given)
    except TooLarge as error:
        if json:
            # Every key is there, and the predicted need beside them.
            needed, limit = error.needed_bytes, error.limit_bytes
            refused = {"status": "too_large", "needed_bytes": needed, "memory_limit_bytes": limit}
            print_json(result | refused)
        raise
    if out is not None and found.policy is not None:
        with held():  # what was found is saved, even if another Ctrl-C comes
            found.policy.save(out)
    if json:
        print_json(result)
    else:
        print_plan(result, found, out)
    return exit_status(found.status)


def run(result: dict[str, Any], planner: str | None, given: Mapping[str, object]) -> Plan:
    """Plan for result["problem"], with the clocks; fills the result, key by key as it is known."""
    clock = time.perf_counter
    started = clock()
    from fmdp._base.compiled import seconds_loading
    from fmdp.elimination.backup import TimeUp
    from fmdp.planning.absorption import ends_settled
    from fmdp.planning.choice import choose_planner
    from fmdp.planning.choice import plan as plan_for
    from fmdp.problems import problem as problem_of
    from fmdp.problems.ids import import_family

    kind, settings = options.asked_planner(planner, given)
    result["planner"] = None if kind is None else kind.name
    problem = result["problem"]
    import_family(problem)
    imported = clock()
    settings = with_own_horizon(problem, settings)
    limit = seconds_of(settings)
    with progress(f"planning {problem}") as report:
        try:
            with alarm(limit):
                model = problem_of(problem)
        except TimeUp:
            return stopped(result, started, imported)
        built = clock()
        structure = model.structure
        result["states"], result["actions"] = structure.n_states, structure.n_actions
        loaded = seconds_loading()
        if kind is None:
            memory: Any = settings.get("memory_limit")
            deadline = None if limit is None else time.monotonic() + limit - (built - imported)
            try:
                default, result["planner_reason"] = choose_planner(
                    structure, memory_limit=memory, deadline=deadline
                )
            except TimeUp:
                return stopped(result, started, imported)
            kind = type(default)
        if limit is not None:
            # What building has taken is gone; a planner is given a moment to say so.
            left = max(limit - (clock() - imported), _LEAST_SECONDS)
            settings = {**settings, "max_seconds": left}
        chosen = kind.make(settings)
        result["planner"] = kind.name
        found = plan_for(model, chosen, progress=report)
    planned = clock()
    loading = seconds_loading() - loaded
    evaluation = found.stats.get("seconds_evaluation", 0.0)
    for key in OF_THE_PLAN:
        result[key] = getattr(found, key)
    for key in OF_THE_STATS:
        result[key] = found.stats.get(key)
    result |= {
        "status": found.status.value,
        "seconds": max(planned - imported - loading - evaluation, 0.0),
        "seconds_startup": imported - started + loading,
        "seconds_evaluation": evaluation,
        "peak_memory_bytes": peak_memory(),
        "settled": None if found.gain_upper is None else ends_settled(model, found.policy),
    }
    return found


def with_own_horizon(problem: str, settings: dict[str, object]) -> dict[str, object]:
    """The settings with the horizon that the problem itself has, where none is given."""
    from fmdp.problems.foreign import format_of

    foreign = format_of(problem)
    asked = settings.get("criterion") == "finite" and settings.get("horizon") is None
    own = foreign.horizon(problem) if asked and foreign is not None else None
    return settings if own is None else {**settings, "horizon": own}


def seconds_of(settings: Mapping[str, object]) -> float | None:
    """The limit that was given, checked as every planner checks it, before there is a planner."""
    from fmdp.planning.exact.planner import Exact

    given = settings.get("max_seconds")
    declared = next(one for one in Exact.parameters if one.name == "max_seconds")
    return None if given is None else cast(float | None, declared.check(given, "the planner"))


def stopped(result: dict[str, Any], started: float, imported: float) -> Plan:
    """The plan where time was up before there was a model, or a planner for it."""
    from fmdp.planning.plan import Plan
    from fmdp.planning.status import Status

    now = time.perf_counter()
    found = Plan(result["planner"] or "none", Status.TIME_LIMIT)
    result |= {
        "status": found.status.value,
        "iterations": 0,
        "seconds": now - imported,
        "seconds_startup": imported - started,
        "seconds_evaluation": 0.0,
        "peak_memory_bytes": peak_memory(),
    }
    return found


@contextmanager
def alarm(seconds: float | None) -> Iterator[None]:
    """TimeUp after so many seconds, in whatever is being done: for work that looks at no clock,
    as building a model does."""
    import signal
    import threading

    from fmdp.elimination.backup import TimeUp

    main = threading.current_thread() is threading.main_thread()
    if seconds is None or not main or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    try:
        # Again and again: a ring inside a destructor is heard by nobody.
        signal.setitimer(signal.ITIMER_REAL, seconds, _SECONDS_BETWEEN_RINGS)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def exit_status(status: Status) -> int:
    """Return the exit status of a command.

    0 if it did what was asked, which includes an estimate where only simulation can give one; 130
    if it was interrupted, else 1.
    """
    return {"converged": 0, "simulated": 0, "interrupted": 130}.get(status.value, 1)


def refuse_unwritable(target: Path) -> None:
    """Before hours of planning, not after: a file is made there and removed again, since a name
    may be too long, a disk full or read-only, and a directory another's."""
    try:
        there = target.stat().st_mode
    except FileNotFoundError:
        there = None
    except (OSError, ValueError) as error:
        raise FileProblem(f"cannot write {target}: {_reason(error)}") from None
    if there is not None and not stat.S_ISREG(there):
        kind = "a directory" if stat.S_ISDIR(there) else "not a regular file"
        raise FileProblem(f"cannot write {target}: it is {kind}")
    folder = target.parent
    if not folder.is_dir():
        raise FileProblem(f"cannot write {target}: there is no directory {folder}")
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileProblem(
            f"cannot write {target}: the directory {folder} is not writable ({_reason(error)})"
        ) from None


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def peak_memory() -> int | None:
    """The most memory this process has held, in bytes; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def print_plan(result: Mapping[str, Any], found: Plan, out: Path | None) -> None:
    rows = [("problem", result["problem"])]
    if result["states"] is not None:
        states, actions = (describe_count(result[key]) for key in ("states", "actions"))
        rows.append(("size", f"{states} states, {actions} actions"))
    rows += [
        ("planner", planner_text(result)),
        ("status", f"{result['status']}: {_message(result, found)}"),
    ]
    lower, upper = result["gain_lower"], result["gain_upper"]
    if result["gain_from_initial_state"] is not None:
        within = found.stats["gain_from_initial_state_bounds"]
        from_start = known_number(result["gain_from_initial_state"], *within)
        rows.append(("gain", f"{from_start} from the initial state; it depends on the state"))
    elif result["gain"] is not None and found.status.value in ("converged", "precision_limit"):
        name = "gain under the budgets" if result["budgets"] is not None else "gain"
        name += _CASES.get(result["intervals"], "")
        own = result["gain"] == result["policy_gain"]  # an approximate plan's gain is its policy's
        of_gain = found.stats["policy_gain_bounds"] if own else (lower, upper)
        rows.append((name, known_number(result["gain"], *of_gain)))
    if lower is not None and upper is not None:
        rows.append(
            (
                ("certified" if result["budgets"] is None else "certified for it")
                + _CASES.get(result["intervals"], ""),
                f"{interval_text(lower, upper)} (gap {upper - lower:.2g})",
            )
        )
    elif upper is not None:
        rows.append(("certified", f"at most {upper_text(upper)}"))
    if result["horizon"] is None:
        rows += objective_row(result)
    elif result["objective"] is not None:
        value = known_number(result["objective"], *result["objective_bounds"])
        rows.append(("value", f"{value} over {result['horizon']:,} steps from the initial state"))
    else:
        known = f"the last {found.stats['steps_planned']:,} of {result['horizon']:,} steps"
        rows.append(("planned", f"{known}; no policy"))
    if result["policy_gain"] is not None:
        within = found.stats.get("policy_gain_bounds", (None, None))
        where = " in the model as it is" if result["intervals"] is not None else ""
        rows.append((f"gain of the policy{where}", known_number(result["policy_gain"], *within)))
    if result["settled"]:
        rows.append(("note", NOTE_ON_ENDS))
    rows += span_rows(result, found.stats.get("span_error"))
    if result["budgets"] is not None:
        rows.append(("budgets", numbers_text(result["budgets"])))
        rows.append(("truncated", truncated_text(result["truncated_states"], result["attained"])))
    rows.append(("iterations", f"{result['iterations']:,}"))
    startup = seconds_text(result["seconds_startup"])
    evaluation = seconds_text(result["seconds_evaluation"])
    apart = f"apart: start-up {startup}, evaluation {evaluation}"
    rows.append(("time", f"{seconds_text(result['seconds'])} ({apart})"))
    if result["peak_memory_bytes"] is not None:
        rows.append(("memory", f"{describe_bytes(result['peak_memory_bytes'])} at the peak"))
    if out is not None:
        rows.append(("policy", f"saved in {out}" if found.policy else "none to save"))
    print_people(columns(rows))


def objective_row(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the objective with the digits that are known, or its bounds where it is not."""
    bounds = result["objective_bounds"]
    if result["objective"] is not None:
        return [("objective", known_number(result["objective"], *(bounds or (None, None))))]
    return [] if bounds is None else [("objective", f"certified {interval_text(*bounds)}")]


def span_rows(result: Mapping[str, Any], error: float | None) -> list[tuple[str, str]]:
    """Return the spans with the digits that are known; `error` is that of the span, where the bias
    is not unique."""
    rows = []
    if result["span"] is not None:
        rows.append(("span", rounded_number(result["span"], error, 9)))
    spans = result["factored_spans"]
    if spans is not None:
        of_sum = None if error is None else error * len(spans)
        rows.append(("factored spans", numbers_text(spans, error=error)))
        rows.append(("their sum Q", rounded_number(result["factored_span_sum"], of_sum, 9)))
    return rows


def _message(result: Mapping[str, Any], found: Plan) -> str:
    """What the status means, where there was no model yet, too."""
    return "stopped before there was a model" if result["states"] is None else found.status.message


def planner_text(result: Mapping[str, Any]) -> str:
    """The planner, and why it is not the exact one where nobody has chosen."""
    reason = result["planner_reason"]
    return (result["planner"] or "none") + ("" if reason is None else f" ({reason})")


def truncated_text(states: int, attained: bool) -> str:
    if states == 0:
        return "no state: the budgets do not bind"
    mixture = "a mixture" if attained else "no mixture"
    return f"{states:,} states; {mixture} of actions attains the gain"
