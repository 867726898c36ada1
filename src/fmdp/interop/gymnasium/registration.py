"""Registration of environment ids: one per problem family, and fmdp/Model-v0 for any model.

An id such as fmdp/Circle-v0 is the name of the family's class; its settings are keyword arguments
of `gymnasium.make`. Importing fmdp.interop.gymnasium registers the ids, and so does
`gymnasium.make("fmdp.interop.gymnasium:fmdp/Circle-v0", size=7)`.
"""

from __future__ import annotations

import gymnasium

from fmdp.problems.registry import HOMES, PROBLEMS

NAMESPACE = "fmdp"
MODEL = f"{NAMESPACE}/Model-v0"
_PLACE = "fmdp.interop.gymnasium"


def environment_ids() -> dict[str, str]:
    """Return the id of every named problem family: {"fmdp/Circle-v0": "circle", ...}."""
    named = {name: place.partition(":")[2] for name, place in HOMES.items()}
    for kind in PROBLEMS.kinds():
        named.setdefault(kind.name, kind.__name__)
    ids: dict[str, str] = {}
    for name, title in named.items():
        ids.setdefault(f"{NAMESPACE}/{title}-v0", name)
    return ids


def register_envs() -> None:
    """Register every problem family with Gymnasium; done when the module is imported.

    Call it again after `fmdp.register(MyProblem)`. Existing registrations do not change.
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
