"""`make release-check`: build, install into empty environments, use, test; 1 if anything fails.

The wheel is built from the unpacked sdist, by the pinned backend and without isolation: what is not
in the sdist is not in the wheel. Under every Python of this machine the wheel and the sdist each go
into an environment that has nothing else; there `fmdp doctor`, a plan and the example sweep are
run in a folder of their own. The two installations must be the same files to the byte, so the tests
that are marked `release` run once a Python, from the sdist's own copy, without the source.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from conftest import RELEASE
from release.pythons import SUPPORTED, interpreters

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements" / "lock.txt"
TESTS_NEED = ("hypothesis", "pytest", "pytest-xdist")
GAIN_OF_CIRCLE_4 = 3.838939


class Failed(Exception):
    """One thing that a release must not do."""


def run(words: Sequence[str | Path], where: Path, **environment: str) -> str:
    """Standard output of a command; its last lines where it fails."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    ran = subprocess.run(
        [str(word) for word in words],
        cwd=where,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        said = (ran.stdout + ran.stderr).strip().splitlines()[-25:]
        raise Failed(f"{' '.join(map(str, words))} ended with {ran.returncode}\n" + "\n".join(said))
    return ran.stdout


def build(out: Path) -> tuple[Path, Path]:
    """(wheel, sdist)."""
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT], ROOT)
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    return wheel, sdist


def check_content(wheel: Path, sdist: Path, source: Path) -> None:
    """Every file of the package is in both; the description is what an index can show."""
    package = ROOT / "src" / "fmdp"
    wanted = {
        str(path.relative_to(package.parent))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("fmdp/")}
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        described = archive.read(metadata).decode()
    if packed != wanted:
        raise Failed(f"the wheel has other files than the source: {sorted(packed ^ wanted)[:5]}")
    for name in ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md"):
        if not (source / name).exists():
            raise Failed(f"{name} is not in {sdist.name}")
    head, _, text = described.partition("\n\n")
    for field in ("Author", "License-Expression", "Requires-Python", "Keywords", "Summary"):
        if f"\n{field}: " not in head:
            raise Failed(f"the metadata has no {field}")
    shown = source / "description.md"
    shown.write_text(text, encoding="utf-8")
    run([sys.executable, "-W", "error", "-m", "readme_renderer", shown, "-o", os.devnull], source)


def environment(python: str, place: Path) -> Path:
    """The interpreter of a new, empty environment."""
    run([python, "-m", "venv", place], place.parent)
    return place / "bin" / "python"


def install(python: Path, what: Sequence[str | Path], *options: str) -> None:
    pip = [python, "-m", "pip", "--disable-pip-version-check", "-q", "install", "-c", LOCK]
    run([*pip, *options, *what], python.parent)


def use(python: Path, source: Path, here: Path) -> str:
    """The program as a user runs it, away from any source."""
    program = python.parent / "fmdp"
    here.mkdir()
    found = json.loads(run([program, "doctor", "--json"], here))
    if not found["healthy"] or not Path(found["place"]).is_relative_to(python.parents[1]):
        raise Failed(f"doctor is not content with {found['place']}")
    gain = json.loads(run([program, "plan", "circle:4", "--json"], here))["gain"]
    if abs(gain - GAIN_OF_CIRCLE_4) > 1e-6:
        raise Failed(f"the gain of circle:4 is {gain}; it has to be {GAIN_OF_CIRCLE_4}")
    spec = source / "examples" / "sweep.toml"
    run([program, "sweep", spec, "--out", "runs", "--workers", "1"], here)
    return str(found["python"])


def digest(python: Path) -> str:
    """Of all files of the installed package."""
    script = "import fmdp, pathlib; print(pathlib.Path(fmdp.__file__).parent)"
    package = Path(run([python, "-c", script], python.parent).strip())
    found = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            found.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return found.hexdigest()


def test(python: Path, source: Path) -> str:
    """The marked tests, from the sdist, on what is installed."""
    install(python, TESTS_NEED)
    words = [python, "-m", "pytest", "-q", "-m", "release and not slow", "-p", "no:cacheprovider"]
    return run([*words, *(f"tests/{name}" for name in RELEASE)], source).strip().splitlines()[-1]


def check(version: str, python: str, wheel: Path, sdist: Path, source: Path, place: Path) -> None:
    digests = []
    for kind, file in (("wheel", wheel), ("sdist", sdist)):
        began = time.perf_counter()
        inside = environment(python, place / f"{version}-{kind}")
        if file is sdist:
            install(inside, ["setuptools"])
        install(inside, [file], *(["--no-build-isolation"] if file is sdist else []))
        said = use(inside, source, place / f"{version}-{kind}-used")
        digests.append(digest(inside))
        line = f"{kind}: doctor, plan and sweep"
        if file is wheel:
            line += f"; {test(inside, source)}"
        print(f"{said}, {line}; {time.perf_counter() - began:.0f} s", flush=True)
        shutil.rmtree(inside.parents[1])
    if len(set(digests)) != 1:
        raise Failed("the wheel and the sdist install different files")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--python", action="append", choices=SUPPORTED, help="this version alone")
    asked = parser.parse_args().python or SUPPORTED
    here = {version: path for version, path in interpreters().items() if version in asked}
    missing = [version for version in asked if version not in here]
    if not here:
        print(f"none of Python {', '.join(asked)} is here")
        return 1
    failures = 0
    with tempfile.TemporaryDirectory(prefix="fmdp-release-") as text:
        place = Path(text)
        try:
            wheel, sdist = build(place / "dist")
            with tarfile.open(sdist) as archive:
                archive.extractall(place, filter="data")
            source = place / sdist.name.removesuffix(".tar.gz")
            check_content(wheel, sdist, source)
            # The tests are to find the installed package, and nothing else of that name.
            shutil.rmtree(source / "src")
            print(f"{wheel.name} and {sdist.name}: whole, and the description renders", flush=True)
        except Failed as failed:
            print(failed)
            return 1
        for version, python in here.items():
            try:
                check(version, python, wheel, sdist, source, place)
            except Failed as failed:
                failures += 1
                print(f"Python {version}: {failed}", flush=True)
    if missing:
        print(f"not here, and not checked: Python {', '.join(missing)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
