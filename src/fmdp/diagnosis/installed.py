"""What is installed: versions of Python and of every library, the extras, and the machine.

Dependencies and extras are those of the installed package's own metadata (Requires-Dist), which
pip wrote from pyproject.toml: there is no second list that could tell something else. Where fmdp is
imported from a folder that pip knows nothing about, there is no metadata, and that is said.

A requirement here is a name with lower bounds, which is the only kind that fmdp declares
(tests/test_dependencies.py). Nothing is imported: a version is read from the distribution.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from fmdp import __version__
from fmdp._base.memory import available_memory

MEANINGS = {
    "gym": "models as Gymnasium environments, learners on others",
    "rddl": "problems in RDDL, and those of rddlrepository",
    "dbn": "dynamic Bayesian networks and influence diagrams of pyAgrum",
    "storm": "the model checker Storm as a referee",
    "agents": "agents of Stable-Baselines3, to compare with",
    "dask": "sweeps on a cluster of machines (--dask)",
    "plots": "figures of reports as PNG and PDF",
    "frames": "results and trajectories as pandas data frames",
    "testing": "generated models for tests of your own (fmdp.testing.strategies)",
    "bench": "the benchmarks' peers",
    "docs": "building the documentation",
    "dev": "the tests, and the tools that check the source",
    "release": "the tools of make release-check",
}
"""What each extra is for; the last four serve who works on fmdp itself."""

FOR_DEVELOPERS = ("bench", "docs", "dev", "release")

_REQUIREMENT = re.compile(
    r"""(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)
        \s*\(?(?:>=\s*(?P<least>[0-9][0-9.]*))?\)?
        \s*(?:;.*\bextra\s*==\s*['"](?P<extra>[\w.-]+)['"].*)?""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Package:
    """A library that fmdp uses: what is there, and the least that it has to be."""

    name: str
    least: str | None
    version: str | None
    """None where it is not installed."""

    @property
    def suffices(self) -> bool:
        """Whether it is installed and new enough."""
        if self.version is None:
            return False
        return self.least is None or release(self.version) >= release(self.least)


@dataclass(frozen=True)
class Extra:
    """Libraries that are installed by a word: pip install 'fmdp[plots]'."""

    name: str
    meaning: str
    packages: tuple[Package, ...]

    @property
    def installed(self) -> bool:
        return all(package.suffices for package in self.packages)

    @property
    def command(self) -> str:
        """How to get it."""
        return f"pip install 'fmdp[{self.name}]'"


@dataclass(frozen=True)
class Cache:
    """Where compiled code is kept between runs."""

    folder: str
    writable: bool


@dataclass(frozen=True)
class Installation:
    """This installation of fmdp, and the machine under it."""

    version: str
    place: str
    python: str
    executable: str
    system: str
    processors: int
    threads: int | None
    """None where it cannot be said: the engine does not load, or FMDP_THREADS is no number."""
    memory: int
    """Bytes that are free."""
    cache: Cache | None
    """None where compiled code cannot be kept."""
    packages: tuple[Package, ...] | None
    """None where fmdp was not installed by a package manager; so are the extras."""
    extras: tuple[Extra, ...] | None

    @property
    def warnings(self) -> list[str]:
        """What works, and could work better."""
        found = []
        if self.packages is None:
            found.append("fmdp is not installed as a package: its extras are not known")
        if self.cache is None or not self.cache.writable:
            found.append(
                "compiled code cannot be kept and is compiled in every run; NUMBA_CACHE_DIR names "
                "a folder for it"
            )
        found += [
            f"{package.name} is {package.version or 'missing'}; must be >= {package.least}"
            for package in self.packages or ()
            if not package.suffices
        ]
        return found


def examine() -> Installation:
    """Look around; imports Numba, and runs nothing."""
    requirements = declared()
    packages = extras = None
    if requirements is not None:
        by_extra: dict[str, list[Package]] = {}
        for extra, name, least in requirements:
            by_extra.setdefault(extra, []).append(Package(name, least, version_of(name)))
        packages = tuple(by_extra.pop("", ()))
        extras = tuple(
            Extra(name, MEANINGS.get(name, ""), tuple(found))
            for name, found in sorted(by_extra.items(), key=_in_order)
        )
    return Installation(
        version=__version__,
        place=str(Path(__file__).parents[1]),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        executable=sys.executable,
        system=platform.platform(),
        processors=os.cpu_count() or 1,
        threads=_threads(),
        memory=available_memory(),
        cache=_cache(),
        packages=packages,
        extras=extras,
    )


def _in_order(entry: tuple[str, object]) -> tuple[int, str]:
    names = list(MEANINGS)
    return (names.index(entry[0]) if entry[0] in names else len(names), entry[0])


def declared() -> list[tuple[str, str, str | None]] | None:
    """(extra or "", name, least version) of every requirement, or None without metadata."""
    try:
        found = metadata.requires("fmdp")
    except metadata.PackageNotFoundError:
        return None
    return read_requirements(found or ())


def read_requirements(lines: Iterable[str]) -> list[tuple[str, str, str | None]]:
    """What Requires-Dist says; a line of another form is a name without a bound."""
    result = []
    for line in lines:
        found = _REQUIREMENT.match(line)
        if found is not None:
            parts: Mapping[str, str | None] = found.groupdict()
            result.append((parts["extra"] or "", parts["name"] or "", parts["least"]))
    return result


def version_of(name: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def release(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with, without zeros at the end: 1.10.0rc1 is (1, 10)."""
    found = re.match(r"(?:\d+!)?(\d+(?:\.\d+)*)", version)
    numbers = [int(part) for part in found[1].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _threads() -> int | None:
    try:
        from fmdp.elimination.backup import usable_cores

        return usable_cores()
    except Exception:  # the self-test tells what it was
        return None


def _cache() -> Cache | None:
    """Numba's folder for the engine's kernels, where it found one."""
    try:
        from fmdp._base.compiled import load_numba
        from fmdp.elimination import kernels

        load_numba()  # whose functions know where they are kept
    except Exception:  # whatever Numba has raised, the self-test tells it
        return None
    stats = (getattr(function, "stats", None) for function in vars(kernels).values())
    folders = (getattr(one, "cache_path", None) for one in stats)
    folder = next((one for one in folders if isinstance(one, str)), None)
    if folder is None:
        return None
    # It is made when the first function is kept: until then the nearest that is there decides.
    place = Path(folder)
    there = next(one for one in (place, *place.parents) if one.exists())
    return Cache(folder, os.access(there, os.W_OK))
