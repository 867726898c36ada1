"""The planner options match the declared settings: names, choices and defaults."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from fmdp._base.parameters import Choice, Parameter
from fmdp.cli import options
from fmdp.planning.registry import PLANNERS

from .conftest import Ran

BY_TEXT_ALONE = {"weight_cap", "targets", "threads", "relevance", "intervals", "gap"}
BY_TEXT_ALONE |= {"groups", "average", "policy", "simulated_steps", "seed", "vectors"}
"""Settings without an option (`--planner alp,targets=split`), or with a flag (--robust)."""


def declared(setting: str) -> dict[str, Parameter]:
    """Return the declarations of a setting, by the name of the planner."""
    return {
        kind.name: one for kind in PLANNERS.own() for one in kind.parameters if one.name == setting
    }


HELP = {option.flag: (option.metavar, option.help) for option in options.PLANNER_OPTIONS}
SETTINGS = [option.setting for option in options.PLANNER_OPTIONS]


def test_every_setting_has_its_option_and_every_option_a_setting() -> None:
    settings = {one.name for kind in PLANNERS.own() for one in kind.parameters}
    assert settings == set(SETTINGS) | BY_TEXT_ALONE


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_help_has_the_choices_that_are_declared(setting: str) -> None:
    metavar, _ = HELP[options.flag_of(setting)]
    kinds = declared(setting).values()
    choices = {choice for one in kinds if isinstance(one, Choice) for choice in one.choices}
    if setting == "split":
        choices -= {"given"}  # several budgets say so themselves
    assert set(metavar.split("|")) == choices or ("|" not in metavar and not choices)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_help_has_the_defaults_that_are_declared(setting: str) -> None:
    _, said = HELP[options.flag_of(setting)]
    stated = re.search(r"Default: (.*?)\.(?= |$)", said)
    for planner, one in declared(setting).items():
        if stated is None:
            assert one.default is None or one.required, (planner, one.default_text)
            continue
        (shown,) = re.findall(rf"(\w+) for [\w, ]*\b{planner}\b", stated[1]) or [stated[1]]
        if one.default is None:  # the meaning names the value that stands in its place
            for number in re.findall(r"\d[\d.e-]*", shown.partition(";")[0]):
                assert number in one.meaning, (planner, shown, one.meaning)
        else:
            assert shown == one.default_text, (planner, shown, one.default_text)


def test_a_help_that_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control, of both comparisons."""
    metavar, said = HELP["--ties"]
    wrong = (metavar.replace("last", "latest"), said.replace("random", "first"))
    monkeypatch.setitem(HELP, "--ties", wrong)
    with pytest.raises(AssertionError):
        test_the_help_has_the_choices_that_are_declared("ties")
    with pytest.raises(AssertionError):
        test_the_help_has_the_defaults_that_are_declared("ties")


def test_the_help_is_what_people_see(run: Callable[..., Ran]) -> None:
    words = " ".join(run("plan", "--help").out.split())
    for option, (metavar, said) in HELP.items():
        assert f"{option} {metavar} {said}" in words


@pytest.mark.parametrize("command", ["plan", "learn", "serve"])
def test_every_command_that_plans_takes_every_option(command: str) -> None:
    taken = inspect.signature(getattr(importlib.import_module(f"fmdp.cli.{command}"), command))
    assert {"planner", *(option.name for option in options.PLANNER_OPTIONS)} <= {*taken.parameters}


def test_the_shell_completes_the_name_of_a_planner() -> None:
    """As bash asks for it; a module that takes seconds to import must not be needed."""
    code = (
        "import sys; from fmdp.cli import main\n"
        "try: main()\n"
        "finally: print(sorted({'numpy', 'numba', 'highspy'} & set(sys.modules)))"
    )
    words = "fmdp plan circle:3 --planner s"
    asked = {"_FMDP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "4"}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **asked},
    )
    assert ran.stdout.split() == ["span", "[]"], ran.stderr
