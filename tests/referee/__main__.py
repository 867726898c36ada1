"""`make referee`: the full game, the closing table, and 1 if anything disagreed.

Base models are dealt out to spawned processes; the table does not depend on how many there are.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from referee import recipes
from referee.apart import APART
from referee.game import ROUNDS, kinds, play_model
from referee.ledger import Ledger

NAMES = (*ROUNDS, *APART)


def main() -> int:
    parser = argparse.ArgumentParser(prog="referee", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few models of each family")
    parser.add_argument("--only", action="append", choices=sorted(NAMES), help="rounds to play")
    parser.add_argument("--show", type=int, default=2, help="disagreements shown for each claim")
    parser.add_argument("--snippets", action="store_true", help="with Python that makes the model")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()

    started = time.perf_counter()
    total = len(recipes.base(options.short))
    only = None if options.only is None else set(options.only)
    ask = partial(play_model, short=options.short, only=only)
    ledger, seconds, models = Ledger(), dict.fromkeys(ROUNDS, 0.0), 0
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=spawned) as pool:
        for number, played in enumerate(pool.map(ask, range(total)), start=1):
            ledger.add(played.ledger)
            models += played.models
            for name, spent in played.seconds.items():
                seconds[name] += spent
            if sys.stderr.isatty():
                text = f"{number} of {total} models, {len(ledger.disagreements)} disagreements"
                print(f"\r{text:60}", end="", file=sys.stderr, flush=True)
        for name, apart in APART.items():
            if only is not None and name not in only:
                continue
            begun = time.perf_counter()
            for compared in pool.map(
                partial(apart.play, short=options.short), range(apart.pieces(options.short))
            ):
                ledger.add(compared)
            seconds[name] = time.perf_counter() - begun
    if sys.stderr.isatty():
        print(f"\r{'':60}\r", end="", file=sys.stderr)

    of_kinds = ", ".join(f"{count} {kind}" for kind, count in kinds(options.short).items())
    print(f"{models} models: {total} ({of_kinds}) in several units of reward\n")
    print(ledger.table())
    for claim in sorted(ledger.claims_broken) if options.show else ():
        print(f"\n{claim}: disagrees, on the smallest models:")
        for found in ledger.smallest(claim, options.show):
            print(f"  {found.recipe.name}: {found.detail}")
            if options.snippets:
                print(found.recipe.snippet())
    took = ", ".join(f"{name.replace('_', ' ')} {spent:.0f}" for name, spent in seconds.items())
    print(f"\n{time.perf_counter() - started:.0f} s; seconds of each round: {took}")
    return 1 if ledger.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
