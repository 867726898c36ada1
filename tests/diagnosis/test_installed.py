"""What the doctor reads from metadata: requirements, versions, what suffices."""

from __future__ import annotations

from importlib import metadata

import pytest

from fmdp.diagnosis import examine, installed
from fmdp.diagnosis.installed import Extra, Package, read_requirements, release


def test_requirements_as_wheels_write_them() -> None:
    lines = ["numpy>=2.0", 'dask>=2024.8; extra == "dask"', "rich (>=13.7)", "scipy", ""]
    assert read_requirements(lines) == [
        ("", "numpy", "2.0"),
        ("dask", "dask", "2024.8"),
        ("", "rich", "13.7"),
        ("", "scipy", None),
    ]


@pytest.mark.parametrize(
    ("older", "newer"), [("1.9", "1.10"), ("1.10", "2"), ("2024.8", "2026.8.0"), ("2", "2.0.1rc1")]
)
def test_versions_are_compared_as_numbers(older: str, newer: str) -> None:
    assert release(older) < release(newer)


def test_zeros_at_the_end_change_nothing() -> None:
    assert release("2.0") == release("2") == release("2.0.0")


def test_what_is_missing_or_too_old_does_not_suffice() -> None:
    assert Package("a", "1.10", "1.10.0").suffices
    assert Package("a", None, "0.1").suffices
    assert not Package("a", "1.10", "1.9.9").suffices
    assert not Package("a", "1.10", None).suffices
    assert not Extra("x", "", (Package("a", "1", "1"), Package("b", "1", None))).installed


def test_this_installation() -> None:
    found = examine()
    assert found.packages is not None
    versions = {package.name: package.version for package in found.packages}
    assert versions["numpy"] == metadata.version("numpy")
    assert {"gym", "rddl", "dask", "plots", "frames"} <= {
        extra.name for extra in found.extras or ()
    }
    assert found.memory > 0
    assert found.threads is not None
    assert found.threads >= 1


def test_without_metadata_nothing_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: str) -> None:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(installed.metadata, "requires", gone)
    found = examine()
    assert found.packages is None
    assert found.extras is None
    assert "not installed as a package" in found.warnings[0]


def test_a_library_that_is_too_old_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "version_of", lambda name: "0.1" if name == "numba" else "999")
    (line,) = [line for line in examine().warnings if "numba" in line]
    assert line.startswith("numba is 0.1; must be >= ")
