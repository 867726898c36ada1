"""Optimal 40-step values of the competitions' instances, beside baselines.

    python -m benchmarks.rddl_values                 all instances that fit into the budgets
    python -m benchmarks.rddl_values --only SysAdmin_MDP_ippc2011
    python -m benchmarks.rddl_values --write         write docs/rddl.md from the stored results

Every instance of the competitions of 2011 and 2014 is read. Those with at most 2^25 states are
planned for over their horizon (40 steps, undiscounted) by the exact planner, from small to large,
each with a limit of time, on one thread. Instances that did not finish are tried again with a
larger `--budget SECONDS`. Where the optimal value is known, two policies are evaluated exactly as
well: doing nothing, and acting uniformly at random. docs/figures/rddl-values.json has all results
and is written after every instance, so an interrupted run continues; `--again` computes stored
results anew. Times are processor seconds of one core: reading (parsing, grounding, tables) and
planning separately, without compilation. docs/figures/rddl-baselines.json has the baselines that
the competitions published.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import backup_for
from fmdp.errors import FmdpError
from fmdp.interop.rddl import imported
from fmdp.model.constraints import AtMost
from fmdp.model.factored import FactoredMDP
from fmdp.planning.choice import plan
from fmdp.planning.exact.planner import Exact
from fmdp.planning.exact.small import tabular_backup
from fmdp.problems import problem

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "figures" / "rddl-values.json"
BASELINES = ROOT / "docs" / "figures" / "rddl-baselines.json"
PAGE = ROOT / "docs" / "rddl.md"

DOMAINS = {
    "SysAdmin_MDP_ippc2011": "SysAdmin 2011",
    "GameOfLife_MDP_ippc2011": "Game of Life 2011",
    "Elevators_MDP_ippc2011": "Elevators 2011",
    "SkillTeaching_MDP_ippc2011": "Skill Teaching 2011",
    "Navigation_MDP_ippc2011": "Navigation 2011",
    "CrossingTraffic_MDP_ippc2011": "Crossing Traffic 2011",
    "CooperativeRecon_MDP_ippc2011": "Recon 2011",
    "Traffic_CTM_MDP_ippc2011": "Traffic 2011",
    "Wildfire_MDP_ippc2014": "Wildfire 2014",
    "AcademicAdvising_MDP_ippc2014": "Academic Advising 2014",
    "TriangleTireworld_MDP_ippc2014": "Triangle Tireworld 2014",
    "Tamarisk_MDP_ippc2014": "Tamarisk 2014",
}
INSTANCES = range(1, 11)
LARGEST = 2**25
BUDGET = 150.0
"""Seconds for one instance."""
BASELINE_BUDGET = 40.0
"""Seconds for the baselines of one instance."""
MEMORY = 6 * 2**30


def actions(model: FactoredMDP) -> int:
    """Joint actions that are allowed in the first state; where they are many, those that the cap
    on how many are at work leaves of boolean ones."""
    structure = model.structure
    if not structure.constraints:
        return structure.n_actions
    if structure.n_actions <= 2**16:
        return len(structure.allowed_actions(model.initial_state))
    (cap,) = (one for one in structure.constraints if isinstance(one, AtMost))
    return sum(math.comb(len(cap.actions), k) for k in range(cap.most + 1))


def entry(name: str) -> dict[str, Any]:
    """What reading an instance comes to."""
    started = time.process_time()
    try:
        found = imported(name)
    except FmdpError as error:
        text = re.sub(r"^\S+: ", "", str(error), count=1)
        return {"status": "refused", "reason": text}
    seconds = time.process_time() - started
    structure = found.model.structure
    return {
        "fluents": len(found.instance.states),
        "variables": structure.m,
        "states": structure.n_states,
        "actions": actions(found.model),
        "parents": max(
            sum(v < structure.m for v in scope) for scope in structure.transition_scopes
        ),
        "horizon": found.instance.horizon,
        "reading_seconds": round(seconds, 3),
    }


def value(name: str, horizon: int, budget: float) -> dict[str, Any]:
    model = problem(name)
    started = time.process_time()
    try:
        found = plan(
            model,
            Exact(criterion="finite", horizon=horizon, max_seconds=budget, memory_limit=MEMORY),
        )
    except FmdpError as error:
        return {"status": "did not fit", "reason": str(error)}
    seconds = time.process_time() - started
    if found.status.value != "converged":
        done = found.stats["steps_planned"]
        reason = f"{done} of {horizon} steps in {budget:.0f} s"
        return {"status": "did not fit", "reason": reason, "budget": budget}
    return {
        "status": "planned",
        "value": found.objective,
        "bounds": list(found.stats["objective_bounds"]),
        "planning_seconds": round(seconds, 3),
    }


def allowed_states(model: FactoredMDP, action: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return in which states an action is allowed."""
    structure = model.structure
    grid: list[Any] = list(np.indices(structure.state_sizes, sparse=True))
    joint = [*grid, *map(np.asarray, action)]
    shape = structure.state_sizes
    forbidden = np.zeros(shape, dtype=np.bool_)
    for constraint in structure.constraints:
        forbidden |= np.broadcast_to(constraint.forbids(joint, structure.sizes), shape)
    return ~forbidden.reshape(-1)


def baselines(name: str, horizon: int, budget: float) -> dict[str, Any]:
    """Return the exact values of doing nothing and of uniformly random allowed actions.

    A policy that is not allowed everywhere, or takes longer than the budget, has no value.
    """
    model = problem(name)
    structure = model.structure
    backup = tabular_backup(model) or backup_for(model, memory_limit=MEMORY)
    start = int(np.ravel_multi_index(model.initial_state, structure.state_sizes))
    joint = list(np.ndindex(*structure.action_sizes)) if structure.n_actions <= 2**16 else []
    masks = [allowed_states(model, action) for action in joint]
    usable = [index for index, mask in enumerate(masks) if mask.any()]
    result: dict[str, Any] = {"noop": None, "random": None}
    policies = {"noop": [0]} if masks and masks[0].all() else {}
    policies["random"] = usable
    deadline = time.process_time() + budget
    for policy, chosen in policies.items():
        values = np.zeros(structure.n_states)
        counts = np.sum([masks[index] for index in chosen], axis=0)
        for _ in range(horizon):
            source, total = backup.to_internal(values), np.zeros(structure.n_states)
            out = np.empty_like(source)
            for index in chosen:
                backup.policy_sweep(source, out, np.full(structure.n_states, index))
                total += np.where(masks[index], backup.to_canonical(out), 0.0)
            values = total / counts
            if time.process_time() > deadline:
                break
        else:
            result[policy] = float(values[start])
    return result


def run(only: str | None, again: bool, budget: float) -> None:
    stored = {} if again or not FILE.exists() else json.loads(FILE.read_text())
    plan(problem("circle:3"), Exact(criterion="finite", horizon=2))  # compiled, before clocks
    names = [f"rddl:{domain}:{number}" for domain in DOMAINS for number in INSTANCES]
    names = [one for one in names if only is None or only in one]
    imported(names[0])  # pyRDDLGym imported, before clocks
    for name in names:
        if name not in stored:
            stored[name] = entry(name)
            FILE.write_text(json.dumps(stored, indent=1) + "\n")
            print(name, stored[name], file=sys.stderr, flush=True)
    for name in sorted(names, key=lambda one: stored[one].get("states", 0)):
        known = stored[name]
        if "status" in known and not known.get("budget", math.inf) < budget:
            continue
        if known["states"] > LARGEST:
            known |= {"status": "did not fit", "reason": "more than 2^25 states"}
        else:
            known.pop("reason", None)
            known.pop("budget", None)
            known |= value(name, known["horizon"] or 40, budget)
        print(name, known, file=sys.stderr, flush=True)
        FILE.write_text(json.dumps(stored, indent=1) + "\n")
    for name in sorted(names, key=lambda one: stored[one].get("states", 0)):
        known = stored[name]
        if known["status"] == "planned" and "noop" not in known:
            known |= baselines(name, known["horizon"] or 40, min(budget, BASELINE_BUDGET))
            print(name, known, file=sys.stderr, flush=True)
            FILE.write_text(json.dumps(stored, indent=1) + "\n")
    FILE.write_text(json.dumps(stored, indent=1) + "\n")


def size(count: int) -> str:
    return f"{count:,}" if count < 10**7 else f"2^{math.log2(count):.1f}"


def table(stored: dict[str, Any]) -> str:
    """The table of the page."""
    published = json.loads(BASELINES.read_text())["rewards"]
    lines = [
        "| instance | states | actions | optimal | nothing | random | published | plan | read |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for domain, title in DOMAINS.items():
        for number in INSTANCES:
            name = f"rddl:{domain}:{number}"
            one = stored.get(name)
            if one is None or one["status"] != "planned":
                continue
            nothing, random = (
                "" if one.get(policy) is None else f"{one[policy]:.2f}"
                for policy in ("noop", "random")
            )
            lines.append(
                f"| {title}, {number} | {size(one['states'])} | {one['actions']} | "
                f"{one['value']:.4f} | {nothing} | {random} | {published[name]:.2f} | "
                f"{one['planning_seconds']:.2f} | {one['reading_seconds']:.2f} |"
            )
    lines += ["", "What is not in it:", "", "| domain | instances | why |", "|---|---|---|"]
    for domain, title in DOMAINS.items():
        reasons: dict[str, list[int]] = {}
        for number in INSTANCES:
            one = stored.get(f"rddl:{domain}:{number}")
            if one is None or one["status"] == "planned":
                continue
            if one["status"] == "refused":
                reason = "refused: " + re.sub(r" \([^)]*\)", "", one["reason"])
                reason = re.sub(r"\d{4,}", "...", reason)
                reason = re.sub(r"on \d+ variables", "on too many variables", reason)
            else:
                reason = f"read, and not planned exactly: {one['reason']}"
            reasons.setdefault(reason, []).append(number)
        for reason, numbers in reasons.items():
            lines.append(f"| {title} | {', '.join(map(str, numbers))} | {reason} |")
    return "\n".join(lines)


def write() -> None:
    """The table between the markers of the page."""
    text = PAGE.read_text()
    made = table(json.loads(FILE.read_text()))
    begin, end = "<!-- rddl values -->", "<!-- end of rddl values -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}\n{made}\n{end}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help="a part of the ids to run")
    parser.add_argument("--again", action="store_true", help="forget what is stored")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds an instance")
    parser.add_argument("--write", action="store_true", help="write the page alone")
    given = parser.parse_args()
    if not given.write:
        run(given.only, given.again, given.budget)
    if PAGE.exists():
        write()


if __name__ == "__main__":
    main()
