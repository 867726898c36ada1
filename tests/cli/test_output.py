"""What leaves the program: JSON without NaN or infinity, integers exact, numbers readable."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from fmdp.cli.options import bytes_of
from fmdp.cli.output import plain, print_json, short_number
from fmdp.errors import InvalidParameter


def test_infinity_is_a_word_and_arrays_are_lists(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(
        {
            "a": math.inf,
            "b": (np.float64(-math.inf), 1.5),
            "c": np.array([[1, 2]]),
            "d": None,
            "e": np.int64(3),
        }
    )
    assert json.loads(capsys.readouterr().out) == {
        "a": "inf",
        "b": ["-inf", 1.5],
        "c": [[1, 2]],
        "d": None,
        "e": 3,
    }


def test_a_nan_is_a_bug_that_fails_loudly() -> None:
    with pytest.raises(ValueError, match="JSON"):
        print_json({"gain": math.nan})


def test_text_is_not_taken_apart() -> None:
    assert plain({"name": "abc"}) == {"name": "abc"}


def test_short_numbers() -> None:
    assert [short_number(x) for x in (None, math.inf, 0.1 + 0.2)] == ["-", "infinite", "0.3"]


@pytest.mark.parametrize(
    ("text", "count"),
    [("12345", 12345), ("500M", 500 * 2**20), ("1.5GB", 3 * 2**29), ("2 GiB", 2**31), ("8k", 8192)],
)
def test_memory_limits(text: str, count: int) -> None:
    assert bytes_of(text) == count


@pytest.mark.parametrize("text", ["", "0", "-1", "G", "2X", "1e9", "nan", "1.2.3M", "G2"])
def test_what_is_no_memory_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="--memory-limit"):
        bytes_of(text)


def test_a_program_that_calls_the_command_line_has_its_output_back() -> None:
    program = (
        "import os; from fmdp.cli import main; main(['show', 'circle:2', '--json']);"
        "print('after', flush=True); os.write(1, b'all'); print(len(os.listdir('/dev/fd')));"
        "main(['show', 'circle:2', '--json']); print(len(os.listdir('/dev/fd')))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    first, after, count, second, count_again = ran.stdout.replace("all", "").splitlines()
    assert json.loads(first) == json.loads(second)
    assert (after, count) == ("after", count_again)
    assert ran.stderr == ""
