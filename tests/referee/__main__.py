"""`make referee`: the full game, the closing table, and 1 if anything disagreed."""

from __future__ import annotations

import argparse
import sys
import time

from referee.claims import Case
from referee.game import ROUNDS, kinds, play


def main() -> int:
    parser = argparse.ArgumentParser(prog="referee", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few models of each family")
    parser.add_argument("--only", action="append", choices=sorted(ROUNDS), help="rounds to play")
    parser.add_argument("--show", type=int, default=2, help="disagreements shown for each claim")
    parser.add_argument("--snippets", action="store_true", help="with Python that makes the model")
    options = parser.parse_args()

    started = time.perf_counter()
    seen = 0

    def report(case: Case) -> None:
        nonlocal seen
        seen += 1
        if sys.stderr.isatty():
            text = f"{seen} models, {time.perf_counter() - started:.0f} s: {case.recipe.name}"
            print(f"\r{text[:100]:100}", end="", file=sys.stderr, flush=True)

    seconds: dict[str, float] = {}
    only = None if options.only is None else set(options.only)
    ledger = play(options.short, only, report, seconds)
    if sys.stderr.isatty():
        print(f"\r{'':100}\r", end="", file=sys.stderr)

    of_kinds = ", ".join(f"{count} {kind}" for kind, count in kinds(options.short).items())
    print(f"{seen} models ({of_kinds}; in several units of reward) against exact arithmetic\n")
    print(ledger.table())
    for claim in sorted(ledger.claims_broken):
        print(f"\n{claim}: disagrees, on the smallest models:")
        for found in ledger.smallest(claim, options.show):
            print(f"  {found.recipe.name}: {found.detail}")
            if options.snippets:
                print(found.recipe.snippet())
    took = ", ".join(f"{name.replace('_', ' ')} {time:.0f}" for name, time in seconds.items())
    print(f"\n{time.perf_counter() - started:.0f} s ({took})")
    return 1 if ledger.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
