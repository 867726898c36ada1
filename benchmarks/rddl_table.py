"""The problems of rddlrepository: which are read, which are solved, and why others are not.

    python -m benchmarks.rddl_table                  all problems, about 20 minutes of one core
    python -m benchmarks.rddl_table --only arcade    some of them again
    python -m benchmarks.rddl_table --compare        only compare with the simulator again
    python -m benchmarks.rddl_table --write          write docs/rddl-table.md from stored results

The instances of each problem are read in order, within a limit of time. The first one that is read
is compared with pyRDDLGym's simulator: successors and rewards of random states and actions. It is
then planned for over its horizon, exactly if that fits, else approximately: a certified bound, and
what the policy reaches in a simulation. Other instances are planned for only
exactly, while time is left. docs/figures/rddl-table.json has the results, written after every
problem, so that an interrupted run continues. Run it from the root of the repository.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("NUMBA_NUM_THREADS", "1")

from tests.interop.rddl import referee

from fmdp import ALP, Environment, Exact, FactoredMDP, Policy, plan
from fmdp.errors import FmdpError
from fmdp.interop.rddl import Imported, imported
from fmdp.interop.rddl.sources import archive, instances

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "figures" / "rddl-table.json"
PAGE = ROOT / "docs" / "rddl-table.md"

READING = 12
"""Seconds to read one instance."""
SOLVING = 10
"""Seconds to plan for one instance, and as many to simulate a policy. All limits are processor
time; the approximate planner also has four times as long by the clock."""
COMPARING = 30
"""Seconds to compare one instance with the simulator."""
PROBLEM = 25
"""Seconds for one problem, all instances together, before no other instance is begun."""
EPISODES = 100
"""Simulated episodes of an approximate policy."""
LARGEST = 2**22
"""Most states that are planned for exactly."""
MEMORY = 3 * 2**30
LUCK = 1e-4
"""Least probability of a statistic as large as that of the comparison."""


class _Late(Exception):
    pass


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Raise _Late inside after some seconds of processor time."""

    def raise_late(*_: object) -> None:
        raise _Late

    signal.signal(signal.SIGVTALRM, raise_late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def read(name: str) -> tuple[Imported | None, str]:
    """Return an instance, or None and the reason."""
    try:
        with limit(READING):
            return imported(name), ""
    except _Late:
        return None, f"not read in {READING} s"
    except FmdpError as error:
        return None, re.sub(r"^rddl:\S+: ", "", str(error), count=1)


def compared(name: str) -> str:
    """Return the verdict of the comparison with pyRDDLGym's simulator."""
    try:
        with limit(COMPARING):
            verdict = referee.compare(name, pairs=12, draws=300)
    except _Late:
        return f"not in {COMPARING} s"
    except Exception as error:  # pyRDDLGym has no common base class of errors
        return f"pyRDDLGym: {type(error).__name__}"
    wrong = verdict.impossible or verdict.wrong_rewards or verdict.chance < LUCK
    return "differs" if wrong else "equal"


def exact_value(found: Imported) -> float | None:
    """Return the optimal value over the horizon of an instance, or None if that does not fit."""
    if found.model.structure.n_states > LARGEST:
        return None
    planner = Exact(
        criterion="finite",
        horizon=found.instance.horizon or 40,
        memory_limit=MEMORY,
        threads=1,
    )
    try:
        with limit(SOLVING):
            result = plan(found.model, planner)
    except (FmdpError, _Late):
        return None
    return result.objective if result.status.value == "converged" else None


def approximate(found: Imported) -> dict[str, Any]:
    """Return a bound on the value over the horizon and what the policy reaches, or the reason.

    The approximate planner gives g and h with g + h >= R + P h for all actions. By induction over
    the steps, no policy has a larger sum over H steps than H g + h(first state) - min h. With a
    basis of functions of single variables, the minimum is that of each variable.
    """
    model, horizon = found.model, found.instance.horizon or 40
    planner = ALP(criterion="average", basis="singles", max_seconds=4 * SOLVING)
    try:
        with limit(SOLVING):
            result = planner.prepare(model.structure).solve(model, marginals=True)
            if result.marginals is None or result.gain_upper is None:
                return {"unsolved": f"no bound in {SOLVING} s"}
            parts = zip(result.marginals, model.initial_state, strict=True)
            bound = horizon * result.gain_upper + sum(h[v] - h.min() for h, v in parts)
        with limit(SOLVING):
            values = list(episodes(model, result.policy, horizon))
    except _Late:
        return {"unsolved": f"not in {SOLVING} s"}
    except FmdpError as error:
        return {"unsolved": str(error)}
    error = float(np.std(values)) / math.sqrt(len(values))
    return {"bound": float(bound), "reached": float(np.mean(values)), "error": error}


def episodes(model: FactoredMDP, policy: Policy, horizon: int) -> Iterator[float]:
    """Yield sums of rewards over the horizon from the first state."""
    environment = Environment(model, 0)
    for _ in range(EPISODES):
        environment.move_to(model.initial_state)
        environment.clear_sums()
        for _ in range(horizon):
            environment.step(policy(environment.state))
        yield environment.total_expected_reward


def measured(problem: str) -> dict[str, Any]:
    """Return the results for a problem."""
    numbers = instances(archive()[problem])
    entry: dict[str, Any] = {"instances": len(numbers), "read": 0, "exact": 0, "tried": 0}
    started = time.process_time()
    for number in numbers:
        if entry["tried"] and time.process_time() - started > PROBLEM:
            break
        name = f"rddl:{problem}:{number}"
        found, reason = read(name)
        entry["tried"] += 1
        if found is None:
            entry.setdefault("reason", reason)
            if re.search(r" is real;|not observed|is not read", reason):
                entry["tried"] = len(numbers)  # the domain is the reason, not the instance
                break
            continue
        entry["read"] += 1
        structure = found.model.structure
        value = exact_value(found)
        entry["exact"] += value is not None
        if "first" not in entry:
            entry["first"] = {
                "instance": number,
                "horizon": found.instance.horizon or 40,
                "states": structure.n_states,
                "actions": structure.n_actions,
                "value": value,
                "simulator": compared(name),
            }
            if value is None:
                entry["first"] |= approximate(found)
    entry["seconds"] = round(time.process_time() - started, 1)
    return entry


def size(count: int) -> str:
    return f"{count:,}" if count < 10**6 else f"2^{math.log2(count):.0f}"


KINDS = {
    r"state-fluent \S+ is real": "continuous states",
    r"action-fluent \S+ is real": "continuous actions",
    r"observ-fluent ": "partially observed",
    r"action-fluent (\S+) is a whole number from": r"an action without an upper bound (\1)",
    r"(\S+) is a whole number that depends": r"too many joint states to find the range of \1",
    r"(\S+) is a number without end": r"a number without end (\1)",
    r"no action is allowed where": "some combination of values leaves no action",
    r"the next value of (\S+): .* nan": r"a law that is undefined for some values (\1)",
    r"\S+: (argmax_|the law Poisson) is not read": r"\1 is not read",
}
"""Beginnings of refusals, with the reason as the page has it."""


def shortened(reason: str) -> str:
    """Return one short reason."""
    for pattern, text in KINDS.items():
        matched = re.match(pattern, reason)
        if matched:
            return matched.expand(text)
    large = re.match(r"(.*) depends on \d+ variables \(.*: a table of (\d+) numbers", reason)
    if large:
        return f"too large: a table of {size(int(large[2]))} numbers ({large[1]})"
    return reason.partition(";")[0]


def table(stored: dict[str, Any]) -> str:
    """Return the tables of the page."""
    lines = [
        "| problem | of | read | exact | first | states | actions | steps | result | simulator |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    refused: dict[str, list[str]] = {}
    partly = []
    for problem, entry in stored.items():
        first = entry.get("first")
        if first is None:
            refused.setdefault(shortened(entry["reason"]), []).append(problem)
            continue
        if first["value"] is not None:
            result = f"{first['value']:.4f}"
        elif "reached" in first:
            result = f"{first['reached']:.1f} ± {first['error']:.1f} of {first['bound']:.1f}"
        else:
            result = "unsolved"
            partly.append(f"* {problem}, {first['instance']}: {first['unsolved']}")
        if entry["read"] < entry["tried"]:
            partly.append(f"* {problem}, first refusal: {shortened(entry['reason'])}")
        if entry["tried"] < entry["instances"]:
            partly.append(f"* {problem}: {entry['tried']} of {entry['instances']} instances tried")
        lines.append(
            f"| {problem} | {entry['instances']} | {entry['read']} | {entry['exact']} | "
            f"{first['instance']} | {size(first['states'])} | {size(first['actions'])} | "
            f"{first['horizon']} | {result} | {first['simulator']} |"
        )
    lines += [
        "",
        "Remarks:",
        "",
        *partly,
        "",
        "## Refused",
        "",
        "| reason | problems |",
        "|---|---|",
    ]
    lines += [
        f"| {reason} | {', '.join(problems)} |"
        for reason, problems in sorted(refused.items(), key=lambda item: item[0])
    ]
    return "\n".join(lines)


def counts(stored: dict[str, Any]) -> str:
    """Return how many problems were read and solved, as a sentence."""
    first = [entry["first"] for entry in stored.values() if "first" in entry]
    exact = sum(one["value"] is not None for one in first)
    near = sum("reached" in one for one in first)
    reasons = [shortened(e["reason"]) for e in stored.values() if "first" not in e]
    real = sum(reason.startswith("continuous") for reason in reasons)
    hidden = sum(reason == "partially observed" for reason in reasons)
    return (
        f"Of {len(stored)} problems {len(first)} are read. The first instance that is read is "
        f"solved exactly for {exact} of them, approximately for {near}, and not within the limits "
        f"for {len(first) - exact - near}. Refused are {real} with continuous variables, {hidden} "
        f"with observations in place of states, and {len(reasons) - real - hidden} others."
    )


def write() -> None:
    """Write the tables between the markers of the page."""
    text, stored = PAGE.read_text(), json.loads(FILE.read_text())
    begin, end = "<!-- rddl table -->", "<!-- end of rddl table -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}\n{counts(stored)}\n\n{table(stored)}\n{end}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help="a part of the names of problems to run again")
    parser.add_argument("--again", action="store_true", help="run all problems again")
    parser.add_argument("--compare", action="store_true", help="only compare again")
    parser.add_argument("--write", action="store_true", help="only write the page")
    given = parser.parse_args()
    stored = json.loads(FILE.read_text()) if FILE.exists() and not given.again else {}
    for problem, entry in stored.items() if given.compare else ():
        if "first" in entry and (given.only or "") in problem:
            first = entry["first"]
            first["simulator"] = compared(f"rddl:{problem}:{first['instance']}")
            FILE.write_text(json.dumps(stored, indent=1) + "\n")
            print(problem, first["simulator"], file=sys.stderr, flush=True)
    for problem in archive():
        if (
            given.write
            or given.compare
            or (problem in stored and not (given.only and given.only in problem))
        ):
            continue
        if given.only and given.only not in problem:
            continue
        stored[problem] = measured(problem)
        stored = {name: stored[name] for name in archive() if name in stored}
        FILE.write_text(json.dumps(stored, indent=1) + "\n")
        print(problem, stored[problem], file=sys.stderr, flush=True)
    write()


if __name__ == "__main__":
    main()
