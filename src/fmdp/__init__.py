"""fmdp: planning and online learning in factored Markov decision processes.

The public names. Each is loaded from its home on first use (PEP 562), so that `import fmdp` and
`fmdp --help` do not pay for NumPy, Numba and the solvers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "FactoredMDP": "fmdp.model",
    "FmdpError": "fmdp.errors",
    "Noise": "fmdp.model",
    "OptimisticTables": "fmdp.model",
    "Structure": "fmdp.model",
    "load": "fmdp.model",
    "problem": "fmdp.problems",
    "save": "fmdp.model",
}

__all__ = sorted([*_HOME, "__version__"])

if TYPE_CHECKING:
    from fmdp.errors import FmdpError
    from fmdp.model import FactoredMDP, Noise, OptimisticTables, Structure, load, save
    from fmdp.problems import problem


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fmdp' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
