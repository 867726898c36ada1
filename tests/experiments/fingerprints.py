"""Fingerprints: what a few short runs of every learner with every planner come to.

    make fingerprints          or: python tests/experiments/fingerprints.py

fingerprints.json holds them, with the RESULTS_VERSION that they were made with; the test beside
this file makes them again. A run of a store is known by RESULTS_VERSION, so a change that moves a
fingerprint must raise it, or old and new runs mix in one store. This script therefore writes other
numbers only under a raised version; under the same one it adds what is missing and refuses the
rest. `history` has the digest of the fingerprints of every version, so that the file cannot be
edited by hand, or made anew, without being seen.

What is run comes from the registries: every learner with its own planner and with every planner
that it takes, and every choice of every parameter of either; learners whose episodes end by the
library's own rule run with the paper's, and have that rule as one of the choices. Numbers are
compared to a relative 1e-9 of their scale (linear algebra differs in its last bits from machine to
machine), counts exactly. A run can amplify such bits, so all are made with the same kernels of
OpenBLAS: `make fingerprints` and tests/conftest.py set OPENBLAS_CORETYPE. Cost: four minutes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fmdp import TablePolicy, experiments
from fmdp._base.parameters import Choice, Parameter
from fmdp.errors import FmdpError
from fmdp.learning.episodes import DEFAULT_RULE
from fmdp.learning.learner import Learner
from fmdp.learning.registry import LEARNERS
from fmdp.model import FactoredMDP
from fmdp.planning.choice import plan
from fmdp.planning.plan import Planner
from fmdp.planning.registry import PLANNERS
from fmdp.planning.settings import SEARCHED
from fmdp.problems import problem
from fmdp.simulation.loop import simulate
from fmdp.simulation.regret import Reference, reference_for

FILE = Path(__file__).with_name("fingerprints.json")
FIRST_VERSION = 2
"""The first results version with fingerprints."""

PROBLEMS = ("circle:4", "machines:2", "random:3,values=3,actions=2,noise=bernoulli")
CHOICES_ON = PROBLEMS[0]
SEEDS = (0, 1)
STEPS = 200
FEWER = 60
PLANNED = (*PROBLEMS, "circle:7,dynamics=guestrin,reward=mean", "riverswim:1", "large-diameter")
RELATIVE = 1e-9
CERTIFIED = 2e-6
"""Gains of plans are known to 1e-6 of the largest reward range; two of them may be twice apart."""

SAME_RESULTS = ("vectors",)
"""Choices that move no bit of a plan, as tests/planning/test_acceleration.py shows."""

Numbers = dict[str, Any]
Making = Callable[[], Learner]


def everything() -> dict[str, Numbers]:
    """Every fingerprint under its name."""
    found = dict(of_plans())
    for kind in LEARNERS.own():
        found |= of_learner(kind)
    return found


def of_learner(kind: type[Learner]) -> Iterator[tuple[str, Numbers]]:
    """ "circle:4 | dorl | exact | seed 0": regret, plans, ... of a run."""
    for name in PROBLEMS:
        model = problem(name)
        reference = reference_for(model)
        runs = [(words, made, seed, STEPS) for words, made in _pairs(kind) for seed in SEEDS]
        if name == CHOICES_ON:
            runs += [(words, made, SEEDS[0], FEWER) for words, made in _variants(kind)]
        for words, made, seed, steps in runs:
            try:
                found = run_of(model, reference, made(), seed, steps)
            except FmdpError:
                continue  # this learner does not take this planner, or this value by itself
            yield f"{name} | {words} | seed {seed}", found


def base_of(kind: type[Learner]) -> dict[str, object]:
    """What every run of a learner sets: the paper's episodes where the library has its own rule by
    default, so that a fingerprint says the same whatever the default is."""
    rules = {one.name for one in kind.parameters if one.default == DEFAULT_RULE}
    return {**kind.example, **({"episodes": "arithmetic"} if "episodes" in rules else {})}


def base_of_planner(kind: type[Planner]) -> dict[str, object]:
    """What every run and plan with a planner sets: singles where it would look for a basis."""
    searches = any(one.default == SEARCHED for one in kind.parameters)
    return {**kind.on_any_model, **({"basis": "singles"} if searches else {})}


def _pairs(kind: type[Learner]) -> Iterator[tuple[str, Making]]:
    base = base_of(kind)
    yield f"{kind.name} | its own", _making(kind, base)
    for own in _planners_of(kind):
        yield f"{kind.name} | {own.name}", _making(kind, base, own, base_of_planner(own))


def _variants(kind: type[Learner]) -> Iterator[tuple[str, Making]]:
    base = base_of(kind)
    for words, settings in _choices(kind.parameters, base):
        yield f"{kind.name} {words} | its own", _making(kind, {**base, **settings})
    if "horizon" in {one.name for one in kind.parameters}:
        over = {"episodes": "fixed", "horizon": 8}
        yield f"{kind.name} horizon=8 | its own", _making(kind, {**base, **over})
    for own in _planners_of(kind):
        planned = base_of_planner(own)
        for words, settings in _choices(own.parameters, planned):
            given = {**planned, **settings}
            yield f"{kind.name} | {own.name} {words}", _making(kind, base, own, given)


def _planners_of(kind: type[Learner]) -> Sequence[type[Planner]]:
    plans = "planner" in {field.name for field in dataclasses.fields(kind)}
    return PLANNERS.own() if plans else ()


def _making(
    kind: type[Learner],
    settings: Mapping[str, object],
    planner: type[Planner] | None = None,
    given: Mapping[str, object] | None = None,
) -> Making:
    """Made when it is run: what does not go together is refused there."""
    if planner is None:
        return lambda: kind.make(settings)
    return lambda: kind.make(settings, planner=planner.make(given or {}))


def _choices(
    parameters: Sequence[Parameter], base: Mapping[str, object]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Every value that is not the one of all other runs, one parameter at a time; a basis that is
    looked for is singles inside learners, which is one of them."""
    for one in parameters:
        if isinstance(one, Choice) and one.name not in SAME_RESULTS:
            for value in one.choices:
                if value not in (base.get(one.name, one.default), SEARCHED):
                    yield f"{one.name}={value}", {one.name: value}


def run_of(
    model: FactoredMDP, reference: Reference, learner: Learner, seed: int, steps: int
) -> Numbers:
    run = simulate(model, learner, steps, seed, reference=reference)
    return {
        "scale": steps * model.structure.reward_range_total,
        "regret": run.regret,
        "gap_regret": run.gap_regret,
        "total_reward": run.total_reward,
        "episodes": run.episodes,
        "planner_calls": run.planner_calls,
        "unconverged_plans": run.unconverged_plans,
    }


def of_plans() -> Iterator[tuple[str, Numbers]]:
    """ "plan | circle:4 | exact": what `fmdp plan` finds, and its policy on every state."""
    for name in PLANNED:
        model = problem(name)
        unit = model.structure.reward_unit
        for kind in PLANNERS.own():
            found = plan(model, kind.make(base_of_planner(kind)))
            policy = found.policy
            table = policy.actions.tolist() if isinstance(policy, TablePolicy) else None
            yield (
                f"plan | {name} | {kind.name}",
                {
                    "scale": unit * CERTIFIED / RELATIVE,
                    "gain": found.gain,
                    "policy_gain": found.policy_gain,
                    "status": found.status.value,
                    "policy": None if table is None else digest(table),
                },
            )


def digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Refused(Exception):
    """Fingerprints that have moved under the same version."""


def moved(stored: Mapping[str, Numbers], found: Mapping[str, Numbers]) -> list[str]:
    """What is stored and has become something else, or nothing: a line each."""
    told = []
    for name, old in stored.items():
        new = found.get(name)
        if new is None:
            told.append(f"{name}: is not made any more")
            continue
        told += [
            f"{name}: {key} was {old[key]!r}, is {new.get(key)!r}"
            for key in old
            if not _same(old[key], new.get(key), old["scale"])
        ]
    return told


def _same(old: Any, new: Any, scale: float) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=RELATIVE, abs_tol=RELATIVE * scale)
    return bool(old == new)


def read(path: Path = FILE) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def write(found: Mapping[str, Numbers], path: Path = FILE) -> str:
    """Store the fingerprints, if that is honest; one line says what was done. Refused if not."""
    version = experiments.RESULTS_VERSION
    history: dict[str, str] = {}
    if path.exists():
        old = read(path)
        history = old["history"]
        changed = moved(old["fingerprints"], found)
        if changed and version <= old["results_version"]:
            raise Refused(
                f"{len(changed)} fingerprints have moved; raise results_version (RESULTS_VERSION "
                f"in src/fmdp/experiments/__init__.py is {version}) and say why in CHANGELOG.md, "
                f"then run this again. The first: {changed[0]}"
            )
        if version == old["results_version"]:
            # What has not moved keeps its bits: a run elsewhere changes nothing in the file.
            found = {**found, **old["fingerprints"]}
    history[str(version)] = digest(found)
    document = {"results_version": version, "history": history, "fingerprints": found}
    path.write_text(json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n")
    return f"{path.name}: {len(found)} fingerprints of results version {version}"


def main() -> int:
    try:
        print(write(everything()))
    except Refused as refused:
        print(f"fingerprints: {refused}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
