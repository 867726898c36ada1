"""Installed versions of Python and of every library, the extras, and the machine.

Dependencies and extras come from the metadata of the installed package (Requires-Dist), which pip
wrote from pyproject.toml, so there is no second list. If fmdp is imported from a folder unknown to
pip, there is no metadata, and a warning says so.

A requirement here is a name with lower bounds, the only kind that fmdp declares
(tests/test_dependencies.py). Nothing is imported: versions are read from the distributions.
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
    "umb": "models in the binary format of model checkers (UMB)",
    "agents": "agents of Stable-Baselines3, to compare with",
    "dask": "sweeps on a cluster of machines (--dask)",
    "mpi": "exact plans over MPI ranks (--engine mpi)",
    "mpich": "an MPI library, where the system has none",
    "plots": "figures of reports as PNG and PDF",
    "frames": "results and trajectories as pandas data frames",
    "testing": "generated models for tests of your own (fmdp.testing.strategies)",
    "bench": "the benchmarks' peers",
    "docs": "building the documentation",
    "dev": "the tests, and the tools that check the source",
    "release": "the tools of make release-check",
}
"""Purpose of each extra; the last four are for developers of fmdp."""

FOR_DEVELOPERS = ("bench", "docs", "dev", "release")

_REQUIREMENT = re.compile(
    r"""(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)
        \s*\(?(?:>=\s*(?P<least>[0-9][0-9.]*))?\)?
        \s*(?:;.*\bextra\s*==\s*['"](?P<extra>[\w.-]+)['"].*)?""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Package:
    """A library that fmdp uses, with its installed and its least version."""

    name: str
    least: str | None
    version: str | None
    """None if it is not installed."""

    @property
    def suffices(self) -> bool:
        """True if it is installed and new enough."""
        if self.version is None:
            return False
        return self.least is None or release(self.version) >= release(self.least)


@dataclass(frozen=True)
class Extra:
    """Optional libraries, installed by pip install 'fmdp[NAME]'."""

    name: str
    meaning: str
    packages: tuple[Package, ...]

    @property
    def installed(self) -> bool:
        return all(package.suffices for package in self.packages)

    @property
    def command(self) -> str:
        """The command that installs it."""
        return f"pip install 'fmdp[{self.name}]'"


@dataclass(frozen=True)
class Cache:
    """The folder of compiled code."""

    folder: str
    writable: bool


@dataclass(frozen=True)
class Installation:
    """This installation of fmdp, and its machine."""

    version: str
    place: str
    python: str
    executable: str
    system: str
    processors: int
    threads: int | None
    """None if unknown: the engine does not load, or FMDP_THREADS is not a number."""
    memory: int
    """Free memory in bytes."""
    cache: Cache | None
    """None if compiled code cannot be cached."""
    packages: tuple[Package, ...] | None
    """None, like the extras, if fmdp was not installed by a package manager."""
    extras: tuple[Extra, ...] | None

    @property
    def warnings(self) -> list[str]:
        """Problems that do not prevent fmdp from working."""
        lines = []
        if self.packages is None:
            lines.append("fmdp is not installed as a package: its extras are not known")
        if self.cache is None or not self.cache.writable:
            lines.append(
                "compiled code cannot be kept and is compiled in every run; NUMBA_CACHE_DIR names "
                "a folder for it"
            )
        lines += [
            f"{package.name} is {package.version or 'missing'}; must be >= {package.least}"
            for package in self.packages or ()
            if not package.suffices
        ]
        return lines


def examine() -> Installation:
    """Return the installation; imports Numba, and runs nothing."""
    requirements = declared()
    packages = extras = None
    if requirements is not None:
        by_extra: dict[str, list[Package]] = {}
        for extra, name, least in requirements:
            by_extra.setdefault(extra, []).append(Package(name, least, version_of(name)))
        packages = tuple(by_extra.pop("", ()))
        extras = tuple(
            Extra(name, MEANINGS.get(name, ""), tuple(members))
            for name, members in sorted(by_extra.items(), key=_in_order)
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
    """Return (extra or "", name, least version) of all requirements; None without metadata."""
    try:
        lines = metadata.requires("fmdp")
    except metadata.PackageNotFoundError:
        return None
    return read_requirements(lines or ())


def read_requirements(lines: Iterable[str]) -> list[tuple[str, str, str | None]]:
    """Parse lines of Requires-Dist; a line of another form is a name without a bound."""
    result = []
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match is not None:
            parts: Mapping[str, str | None] = match.groupdict()
            result.append((parts["extra"] or "", parts["name"] or "", parts["least"]))
    return result


def version_of(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def release(version: str) -> tuple[int, ...]:
    """Return the release numbers without trailing zeros: (1, 10) for 1.10.0rc1."""
    match = re.match(r"(?:\d+!)?(\d+(?:\.\d+)*)", version)
    numbers = [int(part) for part in match[1].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _threads() -> int | None:
    try:
        from fmdp.elimination.backup import usable_cores

        return usable_cores()
    except Exception:  # the self-test reports it
        return None


def _cache() -> Cache | None:
    """Return Numba's cache folder for the engine's kernels, or None."""
    try:
        from fmdp._base.compiled import load_numba
        from fmdp.elimination import kernels

        load_numba()  # its functions know their cache folders
    except Exception:  # the self-test reports it
        return None
    stats = (getattr(function, "stats", None) for function in vars(kernels).values())
    folders = (getattr(stat, "cache_path", None) for stat in stats)
    folder = next((path for path in folders if isinstance(path, str)), None)
    if folder is None:
        return None
    # The folder is created with the first entry; until then its nearest existing parent decides.
    place = Path(folder)
    existing = next(path for path in (place, *place.parents) if path.exists())
    return Cache(folder, os.access(existing, os.W_OK))
