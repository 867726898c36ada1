"""fmdp's learners on somebody else's environment: Gymnasium's Taxi, told more and more about it.

    python examples/gymnasium_taxi.py [steps] [learner]

Taxi's observation is one number of 500, for row, column, passenger and destination. A taxi drives
to a passenger (-1 a step), picks them up and brings them to their destination (+20, and a new ride
begins); a pick-up or a drop-off in the wrong place costs 10. Each line drives the same environment
for the same number of steps:

    flat       one variable of 500 values: what a tabular learner knows
    factored   four variables, each of which may depend on everything
    alike      the same, and that a move depends on the place alone: walls do not look at passengers
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping

import gymnasium

import fmdp
from fmdp.interop.gymnasium import drive

SIZES = (5, 5, 5, 4)  # row, column, passenger (4: in the taxi), destination
EVERYTHING = (0, 1, 2, 3, 4)
PICK_UP, DROP_OFF = "4", "5"
FLAT = fmdp.Structure((500,), (6,), ((0, 1),), ((0, 1),), ((-10.0, 20.0),))
FACTORED = fmdp.Structure(
    SIZES,
    (6,),
    (EVERYTHING,) * 4,
    (EVERYTHING,),
    ((-10.0, 20.0),),
    ("row", "column", "passenger", "destination"),
    ("move",),
    ("fare",),
)


def decode(observation: int) -> tuple[int, ...]:
    """Row, column, passenger, destination of an observation."""
    rest, destination = divmod(int(observation), 4)
    rest, passenger = divmod(rest, 5)
    row, column = divmod(rest, 5)
    return row, column, passenger, destination


def next_value(variable: str, x: Mapping[str, str]) -> object:
    """Rows that are known to be alike have one key: what the next value may look at."""
    if x["move"] == DROP_OFF and x["passenger"] == "4":
        return variable, *x.values()  # may end the ride, and then everything is new
    if variable in ("row", "column"):
        return variable, x["row"], x["column"], x["move"]
    if variable == "passenger" and x["move"] == PICK_UP:
        return variable, x["row"], x["column"], x["passenger"]
    return variable, x[variable]  # nothing else touches passenger and destination


def fare(name: str, x: Mapping[str, str]) -> object:
    if x["move"] == PICK_UP:
        return x["move"], x["row"], x["column"], x["passenger"]
    if x["move"] == DROP_OFF:
        return tuple(x.values())
    return "a move"


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    learner = sys.argv[2] if len(sys.argv) > 2 else "psrl"
    alike = dataclasses.replace(FACTORED, alike=fmdp.Alike.by_key(FACTORED, next_value, fare))
    for name, structure in (("flat", FLAT), ("factored", FACTORED), ("alike", alike)):
        env = gymnasium.make("Taxi-v4")
        run = drive(
            env,
            learner,
            steps,
            structure=structure,
            decode=None if structure is FLAT else decode,
        )
        print(
            f"{name:8} {run.total_reward / steps:7.3f} a step, {len(run.returns):4} rides, "
            f"{run.seconds:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
