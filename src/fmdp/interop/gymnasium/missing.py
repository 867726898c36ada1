"""The error that is raised if Gymnasium is not installed."""

from fmdp.errors import FmdpError


class MissingGymnasium(FmdpError, ImportError):
    """Gymnasium is not installed; the message names the extra to install."""
