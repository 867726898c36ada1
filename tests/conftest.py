"""Hypothesis: no deadlines (the machine is shared, the first call compiles); CI is repeatable.

`make test-all` sets HYPOTHESIS_PROFILE=thorough: fresh random examples, and many more of them.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeatable", derandomize=True, **_common)
settings.register_profile("thorough", max_examples=400, **_common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
