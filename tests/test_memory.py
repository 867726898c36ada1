"""Sizes said to a person, however large."""

from __future__ import annotations

from fmdp._base.memory import available_memory, describe_bytes, describe_count


def test_counts_are_exact_until_nobody_reads_the_digits() -> None:
    numbers = (21, 2**20, 2**100, 2**20000)
    assert [describe_count(number) for number in numbers] == [
        "21",
        "1,048,576",
        "about 10^30",
        "about 10^6020",
    ]


def test_bytes() -> None:
    numbers = (1023, 1536, 3 * 2**29, 2**65, 2**20000)
    assert [describe_bytes(number) for number in numbers] == [
        "1023 bytes",
        "1.5 kB",
        "1.5 GB",
        "33,554,432 TB",
        "about 10^6008 TB",
    ]


def test_there_is_memory() -> None:
    assert available_memory() > 0
