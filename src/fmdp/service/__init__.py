"""A learner on a live system: durable, bit-exact after a kill, used from Python or by lines."""

from fmdp.service.observations import Observations, export_log, migrate, observations
from fmdp.service.service import Service

__all__ = ["Observations", "Service", "export_log", "migrate", "observations"]
