"""Warm starts: show the steps of a log to an agent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent
from fmdp.logs.steps import Reader
from fmdp.logs.tables import table_of


def warm(agent: Agent, log: Any, *, ignore: Iterable[str] = ()) -> int:
    """Let an agent observe every step of a log, without acting.

    Parameters
    ----------
    agent
        The result of `learner.start(structure)`.
    log
        A log as for `fit`, with rewards.
    ignore
        Columns to ignore.

    Returns
    -------
    int
        Number of steps observed.

    Raises
    ------
    InvalidParameter
        If a column is missing or unknown, or a value is invalid; earlier steps were observed.
    FileProblem
        If the log cannot be read.
    """
    if not isinstance(agent, Agent):
        raise InvalidParameter(
            f"warm takes an agent, as learner.start(structure) gives; got {quoted(agent)}"
        )
    table = table_of(log)
    reader = Reader(table, agent.structure, tuple(ignore))
    if not reader.has_rewards:
        names = ", ".join(agent.structure.reward_names)
        raise InvalidParameter(f"{table.name}: lacks the rewards {names}, which a learner needs")
    before = agent.steps
    for steps in reader.steps():
        parts = (steps.states, steps.actions, steps.rewards, steps.next_states)
        for state, action, rewards, following in zip(*(p.tolist() for p in parts), strict=True):
            agent.observe(state, action, rewards, following)
    return agent.steps - before
