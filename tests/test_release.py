"""What a release says about itself agrees with itself, and shows on an index what it should."""

from __future__ import annotations

import datetime
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import fmdp

from .pages import Page

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DESCRIPTION = Page("../DESCRIPTION.md")


def test_the_citation_is_of_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", text, flags=re.MULTILINE) == [fmdp.__version__]


def test_the_changelog_begins_with_this_version_or_what_comes_after_it() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    released = [head for head in heads if head != "Unreleased"]
    assert heads.count("Unreleased") <= 1
    for head in released:
        version, _, date = head.partition(", ")
        assert re.fullmatch(r"\d+\.\d+\.\d+", version), head
        datetime.date.fromisoformat(date)
    if heads[0] != "Unreleased":
        assert heads[0].partition(", ")[0] == fmdp.__version__


def test_the_description_needs_nothing_from_the_repository() -> None:
    assert PROJECT["readme"] == "DESCRIPTION.md"
    assert "](" not in DESCRIPTION.text
    assert "<" not in DESCRIPTION.text


def test_the_python_of_the_description_runs(capsys: pytest.CaptureFixture[str]) -> None:
    DESCRIPTION.run_python()
    assert "6.7443" in capsys.readouterr().out


def test_the_pythons_are_named_one_by_one() -> None:
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert named[0] == PROJECT["requires-python"].removeprefix(">=")
    assert [int(one.removeprefix("3.")) for one in named] == [*range(11, 11 + len(named))]


def test_no_file_names_a_package_index() -> None:
    """Whoever installs has one of their own."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is no clone")
    # In parts, or it would find itself.
    address = re.compile(r"https?://[^\s\"')]*(?:" + "pypi" + r"|/simple\b)|-index" + r"-url\b")
    named = [
        name
        for name in listed.stdout.split("\0")
        if name
        and (ROOT / name).suffix in ("", ".cfg", ".cff", ".md", ".py", ".toml", ".txt", ".yaml")
        and address.search((ROOT / name).read_text(encoding="utf-8"))
    ]
    assert named == []
