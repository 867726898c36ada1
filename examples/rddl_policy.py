"""An optimal policy of a competition's instance, played in pyRDDLGym's own simulator.

    python examples/rddl_policy.py rddl:Navigation_MDP_ippc2011:1 200

The model is read by fmdp and planned for over the horizon of the instance; the policy then plays
episodes in pyRDDLGym, which knows nothing of fmdp. Their mean is near the value that the plan
promises. Needs the extra `rddl`.
"""

from __future__ import annotations

import statistics
import sys
import warnings

import fmdp
from fmdp.interop.rddl import imported
from fmdp.interop.rddl.sources import files_of

warnings.simplefilter("ignore")  # of what pyRDDLGym imports

import pyRDDLGym  # noqa: E402


def main(problem: str, episodes: int) -> None:
    found = imported(problem)
    horizon = found.instance.horizon or 40
    plan = fmdp.plan(found.model, fmdp.Exact(criterion="finite", horizon=horizon))
    print(f"{found.model.name}: {plan.objective:.3f} is the best over {horizon} steps")
    domain, instance, _ = files_of(problem)
    environment = pyRDDLGym.make(str(domain), str(instance))
    totals = []
    for seed in range(episodes):
        fluents, _ = environment.reset(seed=seed)
        total = 0.0
        for step in range(horizon):
            action = plan.policy(found.state(fluents), step=step)
            fluents, reward, *_ = environment.step(found.action(action))
            total += reward
        totals.append(total)
    error = statistics.stdev(totals) / episodes**0.5
    print(f"{statistics.fmean(totals):.3f} +- {error:.3f} on average in {episodes} episodes")


if __name__ == "__main__":
    main(
        sys.argv[1] if len(sys.argv) > 1 else "rddl:Navigation_MDP_ippc2011:1",
        int(sys.argv[2]) if len(sys.argv) > 2 else 200,
    )
