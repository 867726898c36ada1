"""A warm start: a learner that has looked on while others acted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent
from fmdp.logs.steps import Reader
from fmdp.logs.tables import table_of


def warm(agent: Agent, log: Any, *, ignore: Iterable[str] = ()) -> int:
    """Show an agent every step of a log, as if it had looked on; it decides afterwards.

    Parameters
    ----------
    agent
        What `learner.start(structure)` gave.
    log
        As `fit` takes it; its rewards must be there.
    ignore
        Columns that stand for nothing here.

    Returns
    -------
    int
        How many steps it has seen in the log.

    Raises
    ------
    InvalidParameter
        Where a column is missing or not known, or a value is none; what came before it was seen.
    FileProblem
        Where the log cannot be read.
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
