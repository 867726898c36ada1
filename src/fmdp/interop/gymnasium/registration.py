"""The ids: fmdp/Circle-v0 and its like, one a family of problems, and fmdp/Model-v0 for any model.

An id is the name of the family's class; its settings are keyword arguments of `gymnasium.make`.
Gymnasium (from 1.0 on) looks for nobody's environments by itself: importing fmdp.interop.gymnasium
registers them, and so does `gymnasium.make("fmdp.interop.gymnasium:fmdp/Circle-v0", size=7)`.
"""

from __future__ import annotations

import gymnasium

from fmdp.problems.registry import HOMES, PROBLEMS

NAMESPACE = "fmdp"
MODEL = f"{NAMESPACE}/Model-v0"
_PLACE = "fmdp.interop.gymnasium"


def environment_ids() -> dict[str, str]:
    """The id of every family of problems that has a name: {"fmdp/Circle-v0": "circle", ...}."""
    named = {name: place.partition(":")[2] for name, place in HOMES.items()}
    for kind in PROBLEMS.kinds():
        named.setdefault(kind.name, kind.__name__)
    ids: dict[str, str] = {}
    for name, title in named.items():
        ids.setdefault(f"{NAMESPACE}/{title}-v0", name)
    return ids


def register_envs() -> None:
    """Make Gymnasium know every family of problems; done when the module is imported.

    To be called again after `fmdp.register(MyProblem)`, for that one; what is known stays as it is.
    """
    known: dict[str, dict[str, str]] = {MODEL: {}}
    known |= {env_id: {"problem": name} for env_id, name in environment_ids().items()}
    for env_id, settings in known.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point=f"{_PLACE}:FactoredEnv",
                vector_entry_point=f"{_PLACE}:FactoredVectorEnv",
                kwargs=dict(settings),
            )
