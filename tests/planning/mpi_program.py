"""What tests/planning/test_distributed.py runs in every process of an MPI job.

Plans for problems by a criterion, given as "PROBLEM CRITERION", saves the policies in a folder, and
prints one JSON object on rank 0.
"""

import json
import sys
from pathlib import Path

import numpy as np

from fmdp.planning.distributed.planner import plan_over_ranks
from fmdp.planning.distributed.ranks import Ranks
from fmdp.planning.exact.planner import Exact
from fmdp.problems import problem


def exact(number):
    if isinstance(number, tuple):
        return [exact(part) for part in number]
    return number.hex() if isinstance(number, float) else number


def numbers(plan):
    keys = ("gain", "gain_lower", "gain_upper", "objective", "span", "factored_spans", "iterations")
    return {"status": plan.status.value} | {key: exact(getattr(plan, key)) for key in keys}


def settings_of(criterion, **more):
    horizon = {"horizon": 6} if criterion == "finite" else {}
    return Exact(criterion=criterion, **horizon, **more)


def main(folder, cases):
    ranks, results = Ranks(), {}
    for label in cases:
        name, criterion = label.split()
        model = problem(name)
        whole = plan_over_ranks(model, settings_of(criterion), ranks)
        whole.policy.save(folder / f"{label}.npz")
        # A plan that is stopped, and continued from its checkpoint.
        checkpoints = {"checkpoint": folder / "checkpoint", "checkpoint_seconds": 0.0}
        stopped = settings_of(criterion, max_iterations=3)
        before = plan_over_ranks(model, stopped, ranks, **checkpoints).plan
        resumed = plan_over_ranks(model, settings_of(criterion), ranks, resume=True, **checkpoints)
        mpi = whole.plan.stats["mpi"]
        results[label] = {
            "plan": numbers(whole.plan),
            "stopped": before.status.value,
            "resumed": numbers(resumed.plan),
            "sent": mpi["bytes_sent_per_rank"],
            "predicted": mpi["bytes_sent_predicted"],
            "same policy": np.array_equal(resumed.policy.tables, whole.policy.tables),
            "checkpoint left": (folder / "checkpoint").exists(),
        }
    if ranks.is_first:
        print(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
