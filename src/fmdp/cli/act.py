"""`fmdp act`: what a saved policy does in one state, and what every action is worth there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp.cli import options
from fmdp.cli.output import print_json
from fmdp.cli.progress import progress
from fmdp.errors import FmdpError, InvalidParameter, printable

if TYPE_CHECKING:
    from fmdp.model import FactoredMDP
    from fmdp.model.naming import Value
    from fmdp.planning.explain.explanation import Explanation


def act(
    problem: options.Problem,
    policy: Annotated[
        Path,
        typer.Argument(
            metavar="POLICY", help="A policy saved by `fmdp plan --out`.", show_default=False
        ),
    ],
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="NAME=VALUE,...",
            help="A value for every state variable, by name; or a JSON object. After ',...' the "
            "others are as in the initial state.",
            show_default=False,
        ),
    ] = None,
    step: Annotated[
        int,
        typer.Option(
            "--step",
            metavar="T",
            min=0,
            help="Of a policy with a horizon: which step, from 0. Default: 0.",
            show_default=False,
        ),
    ] = 0,
    json: options.Json = False,
) -> int:
    """What a saved policy does in one state, and why.

    The policy is evaluated: the values are those of taking an action once and following the policy
    afterwards. A policy over too many states is explained by what it is greedy for.
    """
    from fmdp.planning.explain.explain import refuse_step
    from fmdp.planning.policies.files import load_policy
    from fmdp.planning.policies.randomised import RandomisedPolicy
    from fmdp.planning.policies.timed import TimedPolicy
    from fmdp.problems import problem as problem_of

    model = problem_of(problem)
    structure = model.structure
    if state is None:
        example = ",".join(map("=".join, structure.name_state(model.initial_state).items()))
        raise InvalidParameter(f"which state? give it by name, as in --state {example}")
    try:
        asked = structure.check_state(_completed(state, model), "--state")
    except InvalidParameter as error:
        if "missing" not in str(error):
            raise
        raise InvalidParameter(f"{error}, or ',...' at the end for the initial one") from None
    saved: Any = load_policy(policy, structure)
    if isinstance(saved, RandomisedPolicy):
        raise InvalidParameter(f"{policy} draws its actions at random: no state has one of its own")
    chosen = saved(asked, step) if isinstance(saved, TimedPolicy) else saved(asked)
    if not isinstance(saved, TimedPolicy):
        refuse_step(step)
    found, reason = None, None
    with progress(f"evaluating {policy}"):
        try:
            found = _explained(model, saved, asked, step)
        except FmdpError as error:
            reason = str(error)
    if json:
        print_json(_fields(problem, policy, model, asked, chosen, found, reason))
        return 0
    if found is not None:
        print(found)
        return 0
    for name, named in (
        ("state", structure.name_state(asked)),
        ("action", structure.name_action(chosen)),
    ):
        print(printable(f"{name:6}  {', '.join(map('='.join, named.items()))}"))
    print(printable(f"no values: {reason}"))
    return 0


def _completed(state: str, model: FactoredMDP) -> str | dict[str, str]:
    """ "a=1,..." with the variables that are not named, as they are in the initial state."""
    *given, last = state.split(",")
    if last.strip() != "...":
        return state
    pairs = [part.partition("=") for part in given]
    if not all(sign for _, sign, _ in pairs):
        return ",".join(given)  # which is refused by name
    named = {name.strip(): value.strip() for name, _, value in pairs}
    return model.structure.name_state(model.initial_state) | named


def _explained(model: FactoredMDP, policy: Any, state: tuple[int, ...], step: int) -> Explanation:
    from fmdp.planning.evaluate import POLICY_GAIN_STATES
    from fmdp.planning.explain.explain import explain_greedy, explain_policy, explain_timed
    from fmdp.planning.policies.policy import TablePolicy
    from fmdp.planning.policies.timed import TimedPolicy

    if isinstance(policy, TimedPolicy):
        return explain_timed(model, policy, state, step)
    if isinstance(policy, TablePolicy) or model.structure.n_states <= POLICY_GAIN_STATES:
        return explain_policy(model, policy, state)
    return explain_greedy(model, policy, state)


def _names(action: Mapping[str, Value]) -> dict[str, str]:
    """Return an action by the names of its values, which are texts in all JSON output."""
    return {name: str(value) for name, value in action.items()}


def _fields(
    problem: str,
    policy: Path,
    model: FactoredMDP,
    state: tuple[int, ...],
    chosen: tuple[int, ...],
    found: Explanation | None,
    reason: str | None,
) -> dict[str, Any]:
    structure = model.structure
    values = errors = forbidden = runner_up = None
    if found is not None:
        errors = [one.error for one in found.values]
        values = [[_names(one.action), one.value, one.gap] for one in found.values]
        forbidden = [_names(action) for action in found.forbidden]
        runner_up = None if found.runner_up is None else _names(found.runner_up.action)
    return {
        "problem": problem,
        "policy": str(policy),
        "state": structure.name_state(state),
        "action": structure.name_action(chosen),
        "values": values,
        "value_errors": errors,
        "values_of": None if found is None else found.of,
        "runner_up": runner_up,
        "forbidden": forbidden,
        "reason": reason,
        "actions": structure.n_actions,
    }
