"""`fmdp doctor`: installed packages, missing extras and how to get them, and a self-test."""

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
    """Check the installation: packages, extras, a self-test."""
    from fmdp.diagnosis import CHECKS, examine, run_checks

    started = time.perf_counter()
    outcomes: list[Outcome] = []
    installation = examine()
    compiles = sys.modules.get("numba") is not None
    with progress("self-test", line_of_parts, compiles=compiles) as report:
        for outcome in run_checks():
            outcomes.append(outcome)
            report((len(outcomes), len(CHECKS), outcome.name))
    seconds = time.perf_counter() - started
    healthy = all(outcome.ok for outcome in outcomes)
    if json:
        print_json(as_json(installation, outcomes) | {"healthy": healthy, "seconds": seconds})
    else:
        print_diagnosis(installation, outcomes, seconds)
    return 0 if healthy else 1


def as_json(installation: Installation, outcomes: list[Outcome]) -> dict[str, Any]:
    extras = None
    if installation.extras is not None:
        extras = {
            extra.name: {
                "installed": extra.installed,
                "meaning": extra.meaning,
                "packages": versions(extra.packages),
                "missing": [package.name for package in extra.packages if not package.suffices],
                "install": extra.command,
            }
            for extra in installation.extras
        }
    cache = installation.cache
    return {
        "fmdp": installation.version,
        "place": installation.place,
        "python": installation.python,
        "executable": installation.executable,
        "system": installation.system,
        "processors": installation.processors,
        "threads": installation.threads,
        "memory": installation.memory,
        "cache": None if cache is None else {"folder": cache.folder, "writable": cache.writable},
        "packages": None if installation.packages is None else versions(installation.packages),
        "extras": extras,
        "warnings": installation.warnings,
        "checks": [
            {key: getattr(outcome, key) for key in ("name", "ok", "said", "seconds")}
            for outcome in outcomes
        ],
    }


def versions(packages: tuple[Package, ...]) -> dict[str, str | None]:
    return {package.name: package.version for package in packages}


def print_diagnosis(installation: Installation, outcomes: list[Outcome], seconds: float) -> None:
    from fmdp.diagnosis.installed import FOR_DEVELOPERS

    cache = "nowhere" if installation.cache is None else installation.cache.folder
    libraries = versions_text(installation.packages or ())
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
                ("fmdp", f"{installation.version}, {installation.place}"),
                ("python", f"{installation.python}, {installation.executable}"),
                ("system", installation.system),
                (
                    "processors",
                    f"{installation.processors}, threads: {installation.threads or 'unknown'}",
                ),
                ("free memory", describe_bytes(installation.memory)),
                ("compiled code", cache),
                ("libraries", libraries or "unknown"),
            ]
        ),
        columns(
            (f"fmdp[{extra.name}]", line_of_extra(extra))
            for extra in installation.extras or ()
            if extra.name not in FOR_DEVELOPERS
        ),
        checks,
        *(f"warning: {line}" for line in installation.warnings),
        verdict,
    )


def versions_text(packages: tuple[Package, ...]) -> str:
    return ", ".join(f"{package.name} {package.version}" for package in packages)


def line_of_extra(extra: Extra) -> str:
    """Return the installed packages of an extra, or how to install it."""
    if extra.installed:
        return f"{extra.meaning}: {versions_text(extra.packages)}"
    too_old = "".join(
        f"; {package.name} {package.version} is older than {package.least}"
        for package in extra.packages
        if package.version is not None and not package.suffices
    )
    return f"{extra.meaning}: not installed{too_old}; {extra.command}"
