"""Experiments: a spec becomes runs, a driver runs them, one SQLite file keeps them.

`RESULTS_VERSION` is part of the key of every stored run. It is raised by a change after which the
same spec gives other numbers: older runs then stay what they are, and are run anew when asked for.
Whether one does, tests/experiments/fingerprints.json tells; CHANGELOG.md says why it was raised.
"""

from __future__ import annotations

RESULTS_VERSION = 5
