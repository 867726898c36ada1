"""`make torture`: everything once more, the closing table, and 1 if anything went wrong."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from torture.trial import Trial

HERE = Path(__file__).parent
MODULES = tuple(
    path.stem for path in sorted(HERE.glob("*.py")) if "\ndef rounds(" in path.read_text()
)
MOST_SHOWN = 5


def trials(seed: int, scale: float, only: tuple[str, ...] = ()) -> Iterator[Trial]:
    for name in MODULES:
        if not only or name in only:
            yield from importlib.import_module(f"torture.{name}").rounds(seed, scale)


def line(trial: Trial) -> str:
    if trial.skipped:
        return f"{trial.name:64}  skipped: {trial.skipped}"
    return f"{trial.name:64} {trial.tried:8,} {len(trial.failures):8,}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="another seed tries other things")
    parser.add_argument("--scale", type=float, default=1.0, help="how much is tried")
    parser.add_argument("--only", action="append", default=[], choices=MODULES)
    options = parser.parse_args()

    started = time.perf_counter()
    print(f"{'tried':64} {'times':>8} {'failed':>8}")
    done = []
    for trial in trials(options.seed, options.scale, tuple(options.only)):
        print(line(trial), flush=True)
        for failure in trial.failures[:MOST_SHOWN]:
            print(f"{trial.name}: {failure}", file=sys.stderr, flush=True)
        done.append(trial)
    total = Trial("all", sum(t.tried for t in done), tuple(f for t in done for f in t.failures))
    print(line(total))
    print(f"\nseed {options.seed}, scale {options.scale:g}, {time.perf_counter() - started:.0f} s")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
