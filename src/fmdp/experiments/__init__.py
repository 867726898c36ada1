"""Experiments: specs, the driver that runs them, and the store of their runs.

`RESULTS_VERSION` is part of the key of every stored run. Raise it with any change after which the
same spec gives other numbers (tests/experiments/fingerprints.json detects this), and record the
reason in CHANGELOG.md. Older runs stay in the store and are run again on request.
"""

from __future__ import annotations

RESULTS_VERSION = 10
