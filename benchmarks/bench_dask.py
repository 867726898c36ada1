"""Sweeps on a Dask cluster: overhead per run, bytes, a far scheduler, and how many machines pay.

    python -m benchmarks.bench_dask overhead [--runs 10000] [--workers 8]
    python -m benchmarks.bench_dask far [--runs 2000]      with delays between the machines
    python -m benchmarks.bench_dask slots [--seconds 20]   runs that sleep, on up to 64 slots
    python -m benchmarks.bench_dask startup                first runs, with and without a cache
    python -m benchmarks.bench_dask many                   a store of 10,000 and of 100,000 runs
    python -m benchmarks.bench_dask draw                   the tables and the figure

A scheduler and workers are started as on separate machines, with one thread each; the driver of
every sweep is a separate process. Processor times and memory are those of the operating system
(Linux). Runs that sleep take no core, so that 64 of them can be made at a time on two cores. The
numbers go to docs/figures/how-many-machines.json, or where `--json` says.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.slow_link import Link, Links
from fmdp.experiments.executors import Dask, InThisProcess, Processes, Workers
from fmdp.experiments.spec import read_spec
from fmdp.experiments.store import Store
from fmdp.experiments.sweep import _add_spec as add_spec
from fmdp.experiments.sweep import run_sweep
from fmdp.experiments.worker import Task, run_task

ROOT = Path(__file__).parent.parent
NUMBERS = ROOT / "docs" / "figures" / "how-many-machines.json"
TICKS = os.sysconf("SC_CLK_TCK")

SHORT = """
steps = 100
seeds = {seeds}
problems = ["circle:3", "circle:4", "riverswim:1"]
learners = ["psrl", "dorl", "random"]
"""
"""Nine cells of runs of a few milliseconds."""

SLEEPING = """
steps = 100
seeds = {seeds}
problems = ["circle:3"]

[[learners]]
name = "benchmarks.sleeper:Sleeper"
label = "sleeper"
set.seconds = {seconds}
"""


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


SLOTS = [[1, 1], [4, 1], [8, 1], [8, 2], [8, 4], [8, 8]]
"""Processes, and threads of each."""


class Cluster:
    """A scheduler and workers in separate processes, with a link between any two that talk."""

    def __init__(
        self,
        folder: Path,
        workers: int,
        *,
        threads: int = 1,
        client_delay: float | None = None,
        worker_delay: float | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Start them. Without a delay there is no link; a delay of 0 only counts bytes."""
        self._log = folder / "log"
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._environment = {**os.environ, "PYTHONPATH": path, **(environment or {})}
        self._folder = folder
        port, client_port, worker_port, *others = free_ports(3 + 2 * workers)
        links = []
        if client_delay is not None:
            links.append(Link("client", client_port, port, client_delay))
        if worker_delay is not None:
            links.append(Link("workers to scheduler", worker_port, port, worker_delay))
            for number in range(workers):
                inner, outer = others[2 * number : 2 * number + 2]
                links.append(Link(f"scheduler to worker {number}", outer, inner, worker_delay))
        self.links = Links(links) if links else None
        self.scheduler = self._start(
            "scheduler", "--port", str(port), "--host", "127.0.0.1", "--no-dashboard"
        )
        self._near_address = f"tcp://127.0.0.1:{port}"
        self._wait(0)
        self.address = f"tcp://127.0.0.1:{port if client_delay is None else client_port}"
        self.workers = []
        for number in range(workers):
            inner, outer = others[2 * number : 2 * number + 2]
            place = ["--listen-address", f"tcp://127.0.0.1:{inner}"]
            if worker_delay is not None:
                place += ["--contact-address", f"tcp://127.0.0.1:{outer}"]
            self.workers.append(
                self._start(
                    "worker",
                    f"tcp://127.0.0.1:{port if worker_delay is None else worker_port}",
                    *("--nthreads", str(threads), "--no-nanny", "--no-dashboard"),
                    *place,
                    *("--local-directory", str(folder / f"worker-{number}")),
                )
            )
        self._wait(workers)

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{what}", *options],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=self._environment,
            )
        atexit.register(process.kill)
        return process

    def _wait(self, workers: int) -> None:
        """Wait until the scheduler answers and so many workers have registered."""
        from distributed import Client

        with Client(self._near_address, timeout=60) as client:
            while len(client.nthreads()) < workers:
                time.sleep(0.1)

    def seconds(self) -> dict[str, float]:
        """Return processor seconds so far."""
        return {
            "scheduler": processor_seconds(self.scheduler.pid),
            "workers": sum(processor_seconds(worker.pid) for worker in self.workers),
        }

    def bytes(self) -> dict[str, int]:
        """Return the bytes sent so far: between client, scheduler and workers."""
        sent = {} if self.links is None else self.links.sent()
        return {
            "client": sum(sent.get("client", (0, 0))),
            "workers": sum(sum(both) for name, both in sent.items() if name != "client"),
        }

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()
        if self.links is not None:
            self.links.__exit__(None, None, None)


# ---- one sweep, in a process of its own ----------------------------------------------------------


def team_of(text: str) -> Workers:
    if text == "serial":
        return InThisProcess()
    return Processes(int(text)) if text.isdigit() else Dask(text)


def timed(name: str, total: dict[str, float]) -> None:
    """Add up the time of a method of the store."""
    method = getattr(Store, name)

    def measured(*arguments: Any, **settings: Any) -> Any:
        wall, processor = time.perf_counter(), time.thread_time()
        try:
            return method(*arguments, **settings)
        finally:
            total["store_seconds"] += time.perf_counter() - wall
            total["store_processor_seconds"] += time.thread_time() - processor

    setattr(Store, name, measured)


def child(spec: Path, out: Path, team: str) -> None:
    """Make a sweep and print what it took as JSON."""
    read = read_spec(spec)
    total = {"store_seconds": 0.0, "store_processor_seconds": 0.0}
    for name in ("add_run", "add_spec", "_write"):  # `_write` waits for the disk
        timed(name, total)
    workers = team_of(team)
    wall, processor = time.perf_counter(), time.process_time()
    summary = run_sweep(read, out, workers=workers, progress=lambda state: None)
    if summary.failed:
        raise RuntimeError(f"{summary.failed} runs failed: {next(iter(summary.errors.values()))}")
    answer = {
        "runs": summary.total,
        "seconds": time.perf_counter() - wall,
        "driver_processor_seconds": time.process_time() - processor,
        "driver_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "store_bytes": summary.path.stat().st_size,
        **total,
    }
    if team.isdigit():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer["workers_processor_seconds"] = used.ru_utime + used.ru_stime
    with Store.open(out) as store:
        answer["run_seconds"] = sum(run.seconds for run in store.runs(status="done"))
    print(json.dumps(answer))


def sweep(spec: Path, out: Path, team: str, cluster: Cluster | None = None) -> dict[str, Any]:
    """Make a sweep in another process; with a cluster also what that took meanwhile."""
    before = None if cluster is None else (cluster.seconds(), cluster.bytes())
    words = [sys.executable, "-m", "benchmarks.bench_dask", "child", str(spec), str(out), team]
    done = subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    if cluster is not None and before is not None:
        seconds, sent = cluster.seconds(), cluster.bytes()
        for name in seconds:
            answer[f"{name}_processor_seconds"] = seconds[name] - before[0][name]
        for name in sent:
            answer[f"{name}_bytes"] = sent[name] - before[1][name]
    return answer


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@contextlib.contextmanager
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as text:
        yield Path(text)


def show(title: str, result: dict[str, Any]) -> None:
    runs = result["runs"]
    parts = [f"{runs / result['seconds']:8.1f} runs/s"]
    for name, value in result.items():
        if name.endswith("processor_seconds") or name in ("store_seconds", "run_seconds"):
            parts.append(f"{name.removesuffix('_seconds')} {1e3 * value / runs:.2f} ms")
        elif name in ("client_bytes", "workers_bytes", "store_bytes"):
            parts.append(f"{name} {value / runs:,.0f}")
        elif name == "driver_bytes":
            parts.append(f"peak {value / 1e6:.0f} MB")
    print(f"{title:28} {runs:6} runs " + ", ".join(parts), flush=True)


# ---- the measurements ----------------------------------------------------------------------------


def overhead(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure short runs in this process, in a process pool and on a cluster."""
    results = {}
    seeds = -(-arguments.runs // 9)
    with temporary() as folder:
        few = write(folder, "few.toml", SHORT.format(seeds=max(1, seeds // 5)))
        many = write(folder, "many.toml", SHORT.format(seeds=seeds))
        warm = write(folder, "warm.toml", SHORT.format(seeds=[10**6 + i for i in range(20)]))
        sweep(warm, folder / "warm", "serial")
        for name, team in (("serial", "serial"), ("processes", "2")):
            results[name] = sweep(few, folder / name, team)
            show(name, results[name])
        with Cluster(folder, arguments.workers) as cluster:
            sweep(warm, folder / "warm-dask", cluster.address)
            results["dask"] = sweep(many, folder / "dask", cluster.address, cluster)
            show(f"dask, {arguments.workers} workers", results["dask"])
        with Cluster(folder, arguments.workers, client_delay=0.0, worker_delay=0.0) as cluster:
            sweep(warm, folder / "warm-bytes", cluster.address)
            results["bytes"] = sweep(few, folder / "bytes", cluster.address, cluster)
            show("dask, bytes counted", results["bytes"])
    return results


def far(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure runs that sleep 0.2 s, with a delay to the client or to the workers."""
    results: dict[str, Any] = {"client": {}, "workers": {}}
    with temporary() as folder:
        spec = write(folder, "spec.toml", SLEEPING.format(seeds=arguments.runs, seconds=0.2))
        seeds = [10**6 + i for i in range(2 * arguments.workers)]
        warm = write(folder, "warm.toml", SLEEPING.format(seeds=seeds, seconds=0.5))
        for delay in arguments.delays:
            for side in results:
                delays = {"client_delay": 0.0, "worker_delay": 0.0}
                delays["client_delay" if side == "client" else "worker_delay"] = delay
                out = folder / f"{side}-{delay}"
                with Cluster(folder, arguments.workers, **delays) as cluster:
                    sweep(warm, folder / f"warm-{side}-{delay}", cluster.address)
                    results[side][str(delay)] = sweep(spec, out, cluster.address, cluster)
                show(f"{side} {1e3 * delay:.0f} ms away", results[side][str(delay)])
    return results


def slots(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure runs that sleep, on 1 to 64 slots, beside what the model predicts."""
    results = {}
    with temporary() as folder:
        for processes, threads in arguments.slots:
            width = processes * threads
            with Cluster(folder, processes, threads=threads) as cluster:
                for seconds in (0.1, 1.0):
                    count = round(width * arguments.seconds / seconds)
                    if count > 200 * arguments.seconds:
                        continue  # the machine would be the limit, not the cluster
                    name = f"{width}-{seconds}"
                    warm = SLEEPING.format(seeds=[10**6 + i for i in range(width)], seconds=0.5)
                    sweep(write(folder, "warm.toml", warm), folder / f"w{name}", cluster.address)
                    text = SLEEPING.format(seeds=count, seconds=seconds)
                    spec = write(folder, "spec.toml", text)
                    result = sweep(spec, folder / name, cluster.address, cluster)
                    results[name] = result | {"slots": width, "sleep": seconds}
                    show(f"{width} slots, {seconds} s", result)
    return results


def startup(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the first runs of new workers, with and without a cache of compiled code."""
    results = {}
    with temporary() as folder:
        for name in ("cache", "empty cache"):
            environment = {} if name == "cache" else {"NUMBA_CACHE_DIR": str(folder / "empty")}
            started = time.perf_counter()
            with Cluster(folder, 1, environment=environment) as cluster:
                result = {"start_seconds": time.perf_counter() - started}
                result["start_processor_seconds"] = cluster.seconds()["workers"]
                for turn, seed in (("first", 1), ("second", 2)):
                    spec = write(folder, "spec.toml", SHORT.format(seeds=[seed]))
                    out = folder / f"{name}-{turn}"
                    taken = sweep(spec, out, cluster.address, cluster)
                    result[f"{turn}_processor_seconds"] = taken["workers_processor_seconds"]
            results[name] = result
            print(name, result, flush=True)
    return results


def many(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the store of many runs: writing, its size, and the start of a sweep that is done.

    The runs are copies of a few, under their own keys.
    """
    results = {}
    with temporary() as folder:
        for count in (arguments.runs, 10 * arguments.runs):
            path = write(folder, "spec.toml", SHORT.format(seeds=-(-count // 9)))
            out = folder / str(count)
            result = copies(path, out)
            again = sweep(path, out, "serial")
            result["again_seconds"] = again["seconds"]
            result["again_processor_seconds"] = again["driver_processor_seconds"]
            result["again_bytes"] = again["driver_bytes"]
            results[str(count)] = result
            print(count, result, flush=True)
    return results


def copies(path: Path, out: Path) -> dict[str, Any]:
    """Store copies of the second run of every cell as all runs of a spec, in groups of 200."""
    before = time.process_time()
    spec = read_spec(path)
    runs = list(spec.runs())
    assert all(run.key for run in runs)  # keys are made when they are needed first
    planned = time.process_time() - before
    width = len(spec.cells)
    made = {id(run.cell): run_task(Task.of(run)) for run in runs[width : 2 * width]}
    before, wall = time.process_time(), time.perf_counter()
    with Store.create(out) as store, store.writing():
        add_spec(store, spec)
        spec_seconds = time.process_time() - before
        for start in range(0, len(runs), 200):
            with store.together():
                for run in runs[start : start + 200]:
                    of_cell = made[id(run.cell)]
                    store.add_run(replace(of_cell.run, key=run.key, seed=run.seed), of_cell.curve)
    return {
        "runs": len(runs),
        "plan_processor_seconds": planned,
        "spec_processor_seconds": spec_seconds,
        "write_processor_seconds": time.process_time() - before - spec_seconds,
        "write_seconds": time.perf_counter() - wall,
        "store_bytes": (out / "runs.sqlite").stat().st_size,
    }


# ---- the model -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overhead:
    """Seconds that a sweep costs beside the runs themselves."""

    run: float
    """Of a worker, per run."""
    driver: float
    """Of the driver, per run: receiving and storing it."""
    driver_task: float
    """Of the driver, per task."""
    scheduler: float
    """Of the scheduler, per task."""
    start: float
    """Until the workers are up and have loaded their compiled code."""


OVERHEAD = Overhead(run=0.0012, driver=0.0006, driver_task=0.0015, scheduler=0.002, start=3.0)


def predicted(runs: int, seconds: float, workers: int, cost: Overhead = OVERHEAD) -> float:
    """Return the seconds of a sweep: the slowest of workers, driver and scheduler.

    `seconds` is the time of one run on a worker.
    """
    share = -(-runs // (2 * workers))
    per_task = max(1, min(share, int(max(1.0, 0.01 * workers) / seconds)))
    tasks = -(-runs // per_task)
    return max(
        -(-runs // workers) * (seconds + cost.run),
        runs * cost.driver + tasks * cost.driver_task,
        tasks * cost.scheduler,
    )


def table() -> None:
    """Print the predicted times of sweeps, and compare with those that were measured."""
    widths = (1, 4, 16, 64, 256)
    print("| runs | seconds per run |", *(f"{n} workers |" for n in widths))
    print("|" + "---|" * (2 + len(widths)))
    for count in (100, 10_000, 1_000_000):
        for seconds in (0.1, 1.0, 10.0, 60.0):
            times = [OVERHEAD.start + predicted(count, seconds, n) for n in widths]
            print(f"| {count:,} | {seconds:g} |", *(f"{said(time)} |" for time in times))
    measured = json.loads(NUMBERS.read_text())["slots"]
    print(
        "\n| slots | seconds per run | runs | predicted | measured | ratio |\n" + "|---" * 6 + "|"
    )
    for result in measured.values():
        runs, sleep, width = result["runs"], result["sleep"], result["slots"]
        time = predicted(runs, sleep + RUN_SECONDS, width)
        ratio = result["seconds"] / time
        print(
            f"| {width} | {sleep:g} | {runs:,} | {time:.1f} s | {result['seconds']:.1f} s "
            f"| {ratio:.2f} |"
        )


RUN_SECONDS = 0.003
"""Time that a run of the sleeping learner takes beside its sleep."""


def said(seconds: float) -> str:
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"


def draw(arguments: argparse.Namespace) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    numbers = json.loads(arguments.json.read_text())
    plt.rcParams.update({"font.size": 11})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    widths = [2**power for power in range(9)]
    colours = {0.01: "#CC79A7", 0.1: "#D55E00", 1.0: "#0072B2", 10.0: "#009E73"}
    for seconds, colour in colours.items():
        speed = [10_000 * seconds / predicted(10_000, seconds, n) for n in widths]
        left.plot(widths, speed, color=colour, label=f"runs of {seconds:g} s")
    for result in numbers["slots"].values():
        speed = result["runs"] * result["sleep"] / result["seconds"]
        left.plot(result["slots"], speed, "o", color=colours[result["sleep"]])
    left.plot(widths, widths, color="#999999", linestyle=":", linewidth=1)
    left.set_xscale("log", base=2)
    left.set_yscale("log", base=2)
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_formatter("{x:g}")
    left.set_xlabel("workers")
    left.set_title("speed-up, predicted (lines) and measured (points)", fontsize=11)
    left.legend(frameon=False, fontsize=10)
    looks = {"far": ("#0072B2", "batches"), "far before": ("#D55E00", "one run per task")}
    for section, (colour, title) in looks.items():
        for side, line, marker in (("client", "-", "o"), ("workers", "--", "s")):
            by_delay = numbers[section][side]
            delays = [1e3 * float(text) for text in by_delay]
            rates = [result["runs"] / result["seconds"] for result in by_delay.values()]
            label = f"{title}, {side} far"
            right.plot(delays, rates, line, marker=marker, color=colour, label=label)
    right.set_ylim(bottom=0)
    right.set_xlabel("one-way delay to the scheduler, ms")
    right.set_title("runs of 0.2 s per second on 8 workers", fontsize=11)
    right.legend(frameon=False, fontsize=9)
    for axes in (left, right):
        axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(NUMBERS.with_suffix(".png"), dpi=150, metadata={"Software": None})


MEASUREMENTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "overhead": overhead,
    "far": far,
    "slots": slots,
    "startup": startup,
    "many": many,
}


def main() -> None:
    if sys.argv[1:2] == ["child"]:
        child(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=[*MEASUREMENTS, "draw"])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--slots", type=json.loads, default=SLOTS)
    delays = [0.0, 0.001, 0.01, 0.05, 0.1]
    parser.add_argument("--delays", type=float, nargs="+", default=delays)
    parser.add_argument("--json", type=Path, default=NUMBERS)
    arguments = parser.parse_args()
    if arguments.what == "draw":
        table()
        draw(arguments)
        return
    numbers = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
    numbers[arguments.what] = MEASUREMENTS[arguments.what](arguments)
    arguments.json.write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
