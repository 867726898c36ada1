"""Timings against peers, as ratios within one run; never part of the tests."""
