"""The baseline that plays a fixed policy, and the conversion of user input to learners.

Tables and policies made by planners are played in compiled code. A function state -> action is
called in every step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fmdp._base.foreign_code import place_of
from fmdp._base.parameters import REQUIRED, Parameter, quoted
from fmdp._base.registries import attribute_at, is_place
from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.learner import Learner
from fmdp.learning.registry import LEARNERS
from fmdp.model import FactoredMDP, Structure
from fmdp.planning.policies.archive import policy_digest
from fmdp.planning.policies.files import policy_of
from fmdp.planning.policies.policy import has_sizes_of
from fmdp.planning.policies.randomised import RandomisedPolicy
from fmdp.planning.policies.rule import Rule


@dataclass(frozen=True)
class PolicySource(Parameter):
    """A policy, a function state -> action, or the path or place of one."""

    kind: ClassVar[str] = "policy"

    @property
    def allowed(self) -> str:
        return "a policy, the path of a policy file, a function state -> action, or module:function"

    def _read(self, text: str) -> Any:
        return text

    def _accept(self, value: Any) -> Any:
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, type) or not (
            (isinstance(value, str) and value)
            or callable(value)
            or isinstance(value, RandomisedPolicy)
        ):
            raise ValueError
        return value

    def _write(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        return place_of(value) if hasattr(value, "__qualname__") else repr(value)


IN_THIS_FILE = "(in this file)"
"""The text of the setting `policy` in a saved agent's file that contains the policy itself."""


class Follow(Learner):
    """Plays one policy or rule for ever and learns nothing: a baseline."""

    name = "policy"
    summary = "plays one policy or rule for ever: a baseline"
    role = "baseline"
    counts = False
    example: ClassVar[Mapping[str, object]] = {"policy": "fmdp.learning.follow:first_action"}

    policy: Any = setting(
        REQUIRED, "the policy: a policy file, or a rule as module:function", kind=PolicySource
    )

    def start(
        self,
        structure: Structure | FactoredMDP,
        generator: np.random.Generator | int | None = None,
    ) -> Agent:
        agent = super().start(structure, generator)
        self.policy_for(agent.structure)  # raises if it does not fit the structure
        return agent

    def refuse_to_import(self) -> None:
        """Raise if the rule is in a module that is not imported: a file must not run code."""
        if isinstance(self.policy, str) and is_place(self.policy):
            attribute_at(self.policy, "rule", importing=False)

    def policy_for(self, structure: Structure) -> Any:
        """Return the policy for a structure, read from its file or place if necessary."""
        policy = self.policy
        if isinstance(policy, str) and is_place(policy):
            policy = attribute_at(policy, "rule")
            if isinstance(policy, type) or not callable(policy):
                raise InvalidParameter(
                    f"rule {self.policy!r} must be a function state -> action; got {policy!r}"
                )
        if isinstance(policy, RandomisedPolicy) and has_sizes_of(policy, structure):
            return policy
        return policy_of(policy, structure, self.owner())

    def __repr__(self) -> str:
        """Show a rule by its name, not by the address of its function."""
        return f"Follow(policy={type(self).parameters[0].show(self.policy)})"

    @property
    def label(self) -> str:
        """Name in a comparison."""
        policy = self.policy
        if isinstance(policy, str):
            return policy if is_place(policy) else Path(policy).stem
        return getattr(policy, "__name__", type(policy).__name__)

    def identity(self, structure: Structure) -> tuple[str, Any]:
        """Return what identifies the policy in the key of a run.

        For a function that is its place and the function, for others a digest and None.
        """
        policy = self.policy_for(structure)
        if isinstance(policy, Rule):
            if not hasattr(policy.function, "__qualname__"):
                raise InvalidParameter(
                    f"a rule that is compared must be a function, whose code says what it is; "
                    f"got {policy.function!r}"
                )
            return place_of(policy.function), policy.function
        return policy_digest(policy), None

    def decide(self, agent: Agent) -> Decision:
        return Decision(self.policy_for(agent.structure))

    def setting_texts(self, structure: Structure) -> dict[str, str]:
        policy = self.policy
        if isinstance(policy, str) or isinstance(self.policy_for(structure), Rule):
            return super().setting_texts(structure)
        texts = {p.name: p.show(getattr(self, p.name)) for p in self.parameters}
        return {**texts, "policy": IN_THIS_FILE}

    def _policy_to_save(self, structure: Structure, played: Any) -> Any:
        policy = self.policy_for(structure)
        return None if isinstance(policy, Rule) else policy  # a rule is code, saved by its place


def first_action(state: tuple[int, ...]) -> int:
    """Return the first value of the only action variable."""
    return 0


def learner_of(given: object, owner: str) -> Learner | None:
    """Return a learner for what a user gave: a learner, its text, a policy or its file, or a rule.

    Returns None for an object with `act` and `observe`, which needs no learner.
    """
    if isinstance(given, Learner):
        return given
    if isinstance(given, str) and not is_policy_file(given):
        learner: Learner = LEARNERS.read(given)
        return learner
    if isinstance(given, type):
        raise InvalidParameter(
            f"{owner} needs a learner, not its class: {given.__name__}() makes one"
        )
    if all(callable(getattr(given, verb, None)) for verb in ("act", "observe")):
        return None
    if not callable(given) and not isinstance(given, str | os.PathLike | RandomisedPolicy):
        others = ", or an agent (an object with act and observe)" if owner == "simulate" else ""
        raise InvalidParameter(
            f"{owner} needs a learner such as fmdp.PSRL() or 'psrl', a policy, or a function "
            f"state -> action{others}; got {quoted(given)}"
        )
    return Follow(policy=given)


def is_policy_file(text: str) -> bool:
    """Return whether a text is the path of a policy file and not a learner."""
    if text.partition(",")[0] in LEARNERS.names():
        return False
    return text.endswith(".npz") or os.path.isfile(text)  # noqa: PTH113 - too long a name is none
