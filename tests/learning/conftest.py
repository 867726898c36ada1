"""Learners of every kind, from the registry, for the tests that all of them have to pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fmdp import FactoredMDP
from fmdp._base.parameters import Choice
from fmdp.errors import FmdpError
from fmdp.learning.agent import Agent
from fmdp.learning.learner import Learner
from fmdp.learning.registry import LEARNERS

FURTHER = (
    "psrl,episodes=fixed,length=7",
    "dorl,episodes=fixed,length=7",
    "dorl,episodes=geometric,length=7",
    "cpsrl,discount=0.8",
    "cpsrl,episodes=geometric,length=7",
    "e3,m=2,eps=0.2",
    "psrl,episodes=fixed,horizon=7",
    "dorl,episodes=fixed,horizon=7,targets=vertex",
    "ucrl-factored,c=.1,episodes=fixed,horizon=7",
    "kl-ucrl-factored,c=.1,episodes=fixed,horizon=7",
    "f-ucbvi,episodes=fixed,horizon=7",
    "f-euler,c=.1,episodes=fixed,horizon=7",
    "f-euler,span=2",
    "imed-rl,faithful=true",
    "frmax,m=3",
    "frmax,m=3,form=heaven",
    "frmax,episodes=fixed,length=7",
    "dorl,transition_constant=18,reward_constant=12",
    "fsrl,budget=4,split=search,episodes=doubling",
    "fsrl,budget=1+2+.5",
)
"""Cases besides those that the declarations imply."""


def every_learner() -> Iterator[Learner]:
    """Every learner that has a name, with its defaults and with every choice of every setting."""
    for kind in LEARNERS.kinds():
        yield kind.make(kind.example)
        for one in kind.parameters:
            for value in one.choices if isinstance(one, Choice) else ():
                if value != one.default:
                    try:
                        yield kind.make({**kind.example, one.name: value})
                    except FmdpError:
                        continue  # this value needs another beside it
    for text in FURTHER:
        yield LEARNERS.read(text)


def called(learner: Learner) -> str:
    return "-".join([learner.name, *learner.words()])


def started(text: str, model: FactoredMDP, seed: int = 0) -> Agent:
    """ "dorl,c=0.1": its agent for the model."""
    return LEARNERS.read(text).start(model, np.random.Generator(np.random.PCG64(seed)))


@pytest.fixture(params=list(every_learner()), ids=called)
def learner(request: pytest.FixtureRequest) -> Learner:
    return request.param  # type: ignore[no-any-return]
