"""A learner on a live system: durable, bit-exact after a kill, used from Python or by lines."""

from fmdp.service.service import Service

__all__ = ["Service"]
