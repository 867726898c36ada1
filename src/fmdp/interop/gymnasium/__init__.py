"""Models as Gymnasium environments, and learners on any discrete Gymnasium environment.

    import gymnasium, fmdp.interop.gymnasium          # registers fmdp/Circle-v0 etc.
    env = gymnasium.make("fmdp/Circle-v0", size=7)
    run = fmdp.interop.gymnasium.drive(gymnasium.make("FrozenLake-v1"), "psrl", 10_000, ...)

The extra `gym` installs Gymnasium; `import fmdp` does not need it.
"""

from fmdp.interop.gymnasium.missing import MissingGymnasium

try:
    from fmdp.interop.gymnasium.driving import Drive, drive
    from fmdp.interop.gymnasium.environment import FactoredEnv
    from fmdp.interop.gymnasium.registration import environment_ids, register_envs
    from fmdp.interop.gymnasium.vector import FactoredVectorEnv
except ModuleNotFoundError as error:
    if error.name != "gymnasium":
        raise
    raise MissingGymnasium(
        "environments need Gymnasium, which is not installed: pip install 'fmdp[gym]'"
    ) from None

__all__ = [
    "Drive",
    "FactoredEnv",
    "FactoredVectorEnv",
    "MissingGymnasium",
    "drive",
    "environment_ids",
    "register_envs",
]

register_envs()
