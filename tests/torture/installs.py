"""A read-only installation: the package where nobody can write, used by somebody without a home.

The package is copied, without what was compiled before, and every command is run by another user
(root may write anywhere). There is no place for Numba's cache: everything is compiled in every
run, which is said once, in one line, and changes no number.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fmdp
from torture import stores
from torture.trial import SHORT, Trial

NOBODY = 65534
FULL = 7
"""Commands at scale 1."""
SAID = "fmdp: compiled code cannot be kept"
SECONDS = 600.0


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    if scale < SHORT:
        return
    number = max(1, round(FULL * scale))
    name = "a read-only installation, by a user without a home"
    with tempfile.TemporaryDirectory(prefix="fmdp-torture-") as text:
        place = Path(text)
        place.chmod(0o755)
        site = place / "site"
        shutil.copytree(
            Path(fmdp.__file__).parent,
            site / "fmdp",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        for path in (site, *site.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        here = place / "here"
        here.mkdir()
        interpreter, problem = usable_interpreter(site)
        if problem:
            yield Trial(name, 0, skipped=problem)
            return
        os.chown(here, NOBODY, NOBODY)
        yield commands(name, number, interpreter, site, here)


def usable_interpreter(site: Path) -> tuple[str, str]:
    """An interpreter of this version that the other user may run, or why there is none."""
    if os.geteuid() != 0:
        return "", "to be another user needs root"
    if shutil.which("setpriv") is None:
        return "", "there is no setpriv"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    said = ""
    # This one last: a binary below a home that is shut may run, without its own library.
    for candidate in (f"/usr/bin/{version}", f"/usr/local/bin/{version}", sys.executable):
        if Path(candidate).exists():
            ran = as_nobody([candidate, "-c", "import fmdp, numpy"], site, Path("/"))
            if ran.returncode == 0:
                return candidate, ""
            said = (ran.stderr.strip().splitlines() or ["it cannot be run"])[-1]
    return "", f"no Python that another user may run: {said}"


def as_nobody(words: list[str], site: Path, here: Path) -> subprocess.CompletedProcess[str]:
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *words],
        cwd=here,
        env={
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "PYTHONPATH": os.pathsep.join([str(site), *sorted(packages)]),
            "FMDP_THREADS": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def commands(name: str, number: int, interpreter: str, site: Path, here: Path) -> Trial:
    (here / "spec.toml").write_text(stores.SPEC.replace("NAME", "tortured"))
    failures = []
    for words in (
        ["plan", "circle:3", "--json", "--out", "policy.npz"],
        ["sweep", "spec.toml", "--out", "store", "--workers", "2"],
        ["report", "store"],
        ["show", "circle:3"],
        ["convert", "circle:3", "model.json"],
        ["learn", "model.json", "--learner", "psrl", "--steps", "50", "--out", "learner.npz"],
        ["evaluate", "circle:3", "policy.npz"],
    )[:number]:
        try:
            ran = as_nobody([interpreter, "-m", "fmdp", *words], site, here)
        except subprocess.TimeoutExpired:
            failures.append(f"{words}: did not end within {SECONDS:.0f} s")
            continue
        lines = ran.stderr.splitlines()
        said = [line for line in lines if line.startswith(SAID)]
        compiles = words[0] in ("sweep", "learn")  # small plans need no compiled code
        if ran.returncode != 0 or "Traceback" in ran.stderr:
            failures.append(f"{words}: status {ran.returncode}: {ran.stderr[-500:]}")
        elif len(said) > 1 or (compiles and len(said) != 1):
            failures.append(f"{words}: the missing cache was said {len(said)} times")
        elif words[0] == "plan" and json.loads(ran.stdout)["status"] != "converged":
            failures.append(f"{words}: {ran.stdout}")
    if not failures and (here / "store").exists():
        reference = here / "reference"
        stores.sweep(reference)
        if stores.everything(here / "store") != stores.everything(reference):
            failures.append("its store differs from that of a cached installation")
    changed = [path for path in site.rglob("*") if path.name == "__pycache__"]
    if changed:
        failures.append(f"the installation was written to: {changed[:3]}")
    return Trial(name, number, tuple(failures))
