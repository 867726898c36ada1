"""`fmdp doctor`: what is installed, which extras are missing and how to get them, a self-test."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from fmdp._base.memory import describe_bytes
from fmdp._base.progress import line_of_parts
from fmdp.cli.options import Json
from fmdp.cli.output import columns, print_json, print_people, seconds_text
from fmdp.cli.progress import progress

if TYPE_CHECKING:
    from fmdp.diagnosis import Installation, Outcome
    from fmdp.diagnosis.installed import Extra, Package


def doctor(json: Json = False) -> int:
    """What is installed, which extras are missing, a self-test."""
    from fmdp.diagnosis import CHECKS, examine, run_checks

    started = time.perf_counter()
    outcomes: list[Outcome] = []
    found = examine()
    engine_loads = sys.modules.get("numba") is not None  # else there is no compilation to tell of
    with progress("self-test", line_of_parts, compiles=engine_loads) as report:
        for outcome in run_checks():
            outcomes.append(outcome)
            report((len(outcomes), len(CHECKS), outcome.name))
    seconds = time.perf_counter() - started
    healthy = all(outcome.ok for outcome in outcomes)
    if json:
        print_json(as_json(found, outcomes) | {"healthy": healthy, "seconds": seconds})
    else:
        print_diagnosis(found, outcomes, seconds)
    return 0 if healthy else 1


def as_json(found: Installation, outcomes: list[Outcome]) -> dict[str, Any]:
    extras = None
    if found.extras is not None:
        extras = {
            extra.name: {
                "installed": extra.installed,
                "meaning": extra.meaning,
                "packages": versions(extra.packages),
                "missing": [one.name for one in extra.packages if not one.suffices],
                "install": extra.command,
            }
            for extra in found.extras
        }
    cache = found.cache
    return {
        "fmdp": found.version,
        "place": found.place,
        "python": found.python,
        "executable": found.executable,
        "system": found.system,
        "processors": found.processors,
        "threads": found.threads,
        "memory": found.memory,
        "cache": None if cache is None else {"folder": cache.folder, "writable": cache.writable},
        "packages": None if found.packages is None else versions(found.packages),
        "extras": extras,
        "warnings": found.warnings,
        "checks": [
            {"name": one.name, "ok": one.ok, "said": one.said, "seconds": one.seconds}
            for one in outcomes
        ],
    }


def versions(packages: tuple[Package, ...]) -> dict[str, str | None]:
    return {package.name: package.version for package in packages}


def print_diagnosis(found: Installation, outcomes: list[Outcome], seconds: float) -> None:
    from fmdp.diagnosis.installed import FOR_DEVELOPERS

    cache = "nowhere" if found.cache is None else found.cache.folder
    libraries = ", ".join(f"{one.name} {one.version}" for one in found.packages or ())
    failed = [outcome for outcome in outcomes if not outcome.ok]
    checks = columns(
        (outcome.name, ("" if outcome.ok else "FAILED: ") + outcome.said) for outcome in outcomes
    )
    verdict = f"healthy; the self-test took {seconds_text(seconds)}"
    if failed:
        verdict = f"not healthy: {len(failed)} of {len(outcomes)} checks failed"
    print_people(
        columns(
            [
                ("fmdp", f"{found.version}, {found.place}"),
                ("python", f"{found.python}, {found.executable}"),
                ("system", found.system),
                ("processors", f"{found.processors}, threads: {found.threads or 'unknown'}"),
                ("free memory", describe_bytes(found.memory)),
                ("compiled code", cache),
                ("libraries", libraries or "not known"),
            ]
        ),
        columns(
            (f"fmdp[{extra.name}]", line_of_extra(extra))
            for extra in found.extras or ()
            if extra.name not in FOR_DEVELOPERS
        ),
        checks,
        *(f"warning: {line}" for line in found.warnings),
        verdict,
    )


def line_of_extra(extra: Extra) -> str:
    """What is there, or how to get it."""
    if extra.installed:
        there = ", ".join(f"{one.name} {one.version}" for one in extra.packages)
        return f"{extra.meaning}: {there}"
    too_old = [one for one in extra.packages if one.version is not None and not one.suffices]
    old = "".join(f"; {one.name} {one.version} is older than {one.least}" for one in too_old)
    return f"{extra.meaning}: not there{old}; {extra.command}"
