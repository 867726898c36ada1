"""Exact plans over MPI ranks: scaling, communication, memory, a slow network, and larger machines.

    python -m benchmarks.bench_mpi                         all tables; minutes
    python -m benchmarks.bench_mpi --problems circle:18    smaller ones

Every row of a table is a job of its own (`mpiexec -n R`), and rows that are compared run one after
the other.  A slow network is simulated: after each exchange a rank sleeps as long as its bytes
would take at the given bandwidth, plus a delay for every other rank.  The last table is computed,
not measured: bytes from the shares of a rank, work from the number of multiply-adds and the rate
that the first table measured.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from fmdp._base.memory import describe_bytes
from fmdp.planning.distributed.backup import RanksBackup
from fmdp.planning.distributed.planner import plan_over_ranks
from fmdp.planning.distributed.ranks import Ranks
from fmdp.planning.exact.acceleration import KEPT
from fmdp.planning.exact.planner import Exact
from fmdp.problems import problem

PROBLEMS = ("circle:20", "circle:22,dynamics=guestrin")
WEAK = (("circle:20,dynamics=guestrin", 1), ("circle:21,dynamics=guestrin", 2))
NETWORKS = ((1e-5, 10e9), (1e-4, 1e9), (1e-3, 0.1e9))
CLUSTERS = ((8, 32), (64, 16))
"""Nodes, and ranks on each of them."""
NODE_BANDWIDTH = 12.5e9
"""Bytes per second between two nodes of those clusters (100 Gbit/s), shared by the ranks of one."""
SWEEPS = 32
"""Sweeps of a large plan: rings of 18 to 24 machines took 15 to 33."""


class SlowRanks(Ranks):
    """Ranks between which an exchange takes as long as on a slower network."""

    def __init__(self, delay: float, bandwidth: float) -> None:
        super().__init__()
        self._delay, self._bandwidth = delay, bandwidth

    def exchange(self, sent, counts, received, received_counts) -> None:
        begun, before = time.perf_counter(), self.traffic.bytes_sent
        super().exchange(sent, counts, received, received_counts)
        size = self.traffic.bytes_sent - before
        due = begun + (self.size - 1) * self._delay + size / self._bandwidth
        left = due - time.perf_counter()
        if left > 0.0:
            time.sleep(left)
            self.traffic.seconds += left


def worker(name: str, delay: float, bandwidth: float) -> None:
    """Plan once in every process of a job; rank 0 prints what was measured."""
    ranks = SlowRanks(delay, bandwidth) if delay else Ranks()
    plan_over_ranks(problem("circle:10"), Exact(), ranks)  # compiles
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    plan = plan_over_ranks(problem(name), Exact(), ranks).plan
    own = [
        time.process_time() - begun,
        1024.0 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base),
    ]
    processor, memory = ranks.largest(np.array(own)).tolist()
    if ranks.is_first:
        mpi = dict(plan.stats["mpi"])
        mpi |= {"seconds": plan.seconds, "processor": processor, "memory": memory}
        mpi |= {"sweeps": plan.iterations, "gain": plan.gain, "exchanges": ranks.traffic.exchanges}
        mpi["multiply_adds"] = plan.stats["multiply_adds"]
        print(json.dumps(mpi))


def on_threads(name: str, threads: int) -> None:
    """Plan once with the engine of one process, for comparison."""
    Exact(threads=threads).plan(problem("circle:10"))
    begun = time.process_time()
    plan = Exact(threads=threads).plan(problem(name))
    processor = time.process_time() - begun
    print(json.dumps({"seconds": plan.seconds, "processor": processor, "sweeps": plan.iterations}))


def job(name: str, ranks: int, delay: float = 0.0, bandwidth: float = np.inf) -> dict:
    words = ["worker", name, "--delay", str(delay), "--bandwidth", str(bandwidth)]
    return run([mpiexec(), "-n", str(ranks), sys.executable, "-m", "benchmarks.bench_mpi", *words])


def run(words: list[str]) -> dict:
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def mpiexec() -> str:
    found = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
    if found is None:
        sys.exit("bench_mpi: there is no mpiexec; pip install 'fmdp[mpi,mpich]'")
    return found


def table(title: str, *head: str) -> None:
    print(f"\n{title}\n\n| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def strong(problems: list[str]) -> float:
    """Print strong scaling; return the multiply-adds per second of one rank."""
    rate = 0.0
    table(
        "Strong scaling",
        "problem",
        "engine",
        "sweeps",
        "seconds",
        "processor seconds (largest)",
        "share of communication",
        "sent by a rank",
        "memory of a rank: measured / predicted",
    )
    for name in problems:
        for threads in (1, 2):
            words = [sys.executable, "-m", "benchmarks.bench_mpi", "threads", name]
            done = run([*words, "--threads", str(threads)])
            label = f"{threads} thread{'s' * (threads > 1)}"
            seconds, processor = f"{done['seconds']:.2f}", f"{done['processor']:.2f}"
            row(name, label, done["sweeps"], seconds, processor, "", "", "")
        for ranks in (1, 2):
            done = job(name, ranks)
            measured, predicted = done["memory"], done["bytes_per_rank"]
            row(
                name,
                f"{ranks} rank{'s' * (ranks > 1)}",
                done["sweeps"],
                f"{done['seconds']:.2f}",
                f"{done['processor']:.2f}",
                f"{100 * done['seconds_communicating'] / done['seconds']:.0f} %",
                describe_bytes(done["bytes_sent_per_rank"]),
                f"{describe_bytes(int(measured))} / {describe_bytes(predicted)}",
            )
            if ranks == 1:
                # The policy takes the work of two sweeps more.
                rate = done["multiply_adds"] * (done["sweeps"] + 2) / done["processor"]
    return rate


def weak() -> None:
    table("Weak scaling", "problem", "ranks", "seconds per sweep", "share of communication")
    for name, ranks in WEAK:
        done = job(name, ranks)
        share = done["seconds_communicating"] / done["seconds"]
        row(name, ranks, f"{done['seconds'] / (done['sweeps'] + 2):.3f}", f"{100 * share:.0f} %")


def slow_networks(name: str) -> None:
    table(
        f"A slow network: {name} on 2 ranks",
        "delay",
        "bandwidth",
        "seconds",
        "communicating",
        "predicted from bytes and delays",
    )
    for delay, bandwidth in NETWORKS:
        done = job(name, 2, delay, bandwidth)
        predicted = done["bytes_sent_predicted"] / bandwidth + done["exchanges"] * delay
        row(
            f"{1e3 * delay:g} ms",
            f"{bandwidth / 1e9:g} GB/s",
            f"{done['seconds']:.2f}",
            f"{done['seconds_communicating']:.2f}",
            f"{predicted:.2f}",
        )


def on_paper(rate: float) -> None:
    """Print what large plans would cost on clusters, from the shares of a rank and a rate."""
    table(
        f"On paper: {rate / 1e9:.2f} billion multiply-adds per second and rank, "
        f"{NODE_BANDWIDTH / 1e9:g} GB/s per node, {SWEEPS} sweeps",
        "problem",
        "nodes x ranks",
        "memory of a node",
        "sent by a node in a sweep",
        "work in a sweep",
        "communication in a sweep",
        "whole plan",
    )
    for name in ("circle:30,dynamics=guestrin", "circle:32,dynamics=guestrin"):
        model = problem(name)
        for nodes, ranks in CLUSTERS:
            share = RanksBackup.share_of(model, nodes * ranks)
            history = (2 * 8 + 2 * 4 * KEPT) * share.n_states
            sent = ranks * (share.bytes_between + share.bytes_back)
            work = share.cut.multiply_adds / (nodes * ranks) / rate
            exchange = sent / NODE_BANDWIDTH
            row(
                name,
                f"{nodes} x {ranks}",
                describe_bytes(ranks * (share.bytes_needed + history)),
                describe_bytes(sent),
                f"{work:.1f} s",
                f"{exchange:.1f} s",
                f"{SWEEPS * (work + exchange):.0f} s",
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", default="all", choices=["all", "worker", "threads"])
    parser.add_argument("name", nargs="?")
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS))
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--bandwidth", type=float, default=np.inf)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    if given.part == "worker":
        worker(given.name, given.delay, given.bandwidth)
    elif given.part == "threads":
        on_threads(given.name, given.threads)
    else:
        rate = strong(given.problems)
        weak()
        slow_networks(given.problems[0])
        on_paper(rate)


if __name__ == "__main__":
    main()
