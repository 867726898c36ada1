"""`fmdp act`: the action of a saved policy in one state, and the value of every action."""

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
    from fmdp.model import FactoredMDP, Structure
    from fmdp.model.naming import Value
    from fmdp.planning.explain.explanation import Explanation
    from fmdp.planning.policies.mixed import MixedPolicy


def act(
    problem: options.Problem,
    policy: options.PolicyFile,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="NAME=VALUE,...",
            help="The state: a value for every state variable, by name, or a JSON object. With "
            "',...' at the end, omitted variables default to the initial state.",
            show_default=False,
        ),
    ] = None,
    step: Annotated[
        int,
        typer.Option(
            "--step",
            metavar="T",
            min=0,
            help="Number of the step, from 0, for a policy with a horizon. Default: 0.",
            show_default=False,
        ),
    ] = 0,
    json: options.Json = False,
) -> int:
    """Show the action of a saved policy in one state, and why.

    The value of an action is that of taking it once and following the policy afterwards. If there
    are too many states to evaluate the policy, the values are those that it maximises.
    """
    from fmdp.planning.explain.explain import refuse_step
    from fmdp.planning.policies.files import load_policy
    from fmdp.planning.policies.mixed import MixedPolicy
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
    if isinstance(saved, MixedPolicy):
        refuse_step(step)
        return _act_at_random(problem, policy, structure, asked, saved, json)
    if isinstance(saved, RandomisedPolicy):
        raise InvalidParameter(
            f"{policy} draws its actions at random: no state has a single action"
        )
    chosen = saved(asked, step) if isinstance(saved, TimedPolicy) else saved(asked)
    if not isinstance(saved, TimedPolicy):
        refuse_step(step)
    structure.check_allowed(asked, structure.check_action(chosen))
    explanation, reason = None, None
    with progress(f"evaluating {policy}"):
        try:
            explanation = _explain(model, saved, asked, step)
        except FmdpError as error:
            reason = str(error)
    if json:
        fields = _fields(problem, policy, structure, asked, explanation, reason)
        print_json(fields | {"action": structure.name_action(chosen), "probabilities": None})
        return 0
    if explanation is not None:
        print(explanation)
        return 0
    for name, named in (
        ("state", structure.name_state(asked)),
        ("action", structure.name_action(chosen)),
    ):
        print(printable(f"{name:6}  {', '.join(map('='.join, named.items()))}"))
    print(printable(f"no values: {reason}"))
    return 0


def _act_at_random(
    problem: str,
    policy: Path,
    structure: Structure,
    state: tuple[int, ...],
    saved: MixedPolicy,
    json: bool,
) -> int:
    """Print the probability of every action of a randomised policy in a state."""
    chances = [(structure.name_action(a), chance) for a, chance in saved.distribution(state)]
    reason = "the policy randomises: its actions have probabilities, and no values are computed"
    if json:
        fields = _fields(problem, policy, structure, state, None, reason)
        likeliest = chances[0][0] if len(chances) == 1 else None
        print_json(fields | {"action": likeliest, "probabilities": chances})
        return 0
    print(
        printable(f"state        {', '.join(map('='.join, structure.name_state(state).items()))}")
    )
    print("probability  action")
    for action, chance in chances:
        print(printable(f"{chance:<11.6g}  {', '.join(map('='.join, action.items()))}"))
    return 0


def _completed(state: str, model: FactoredMDP) -> str | dict[str, str]:
    """Return the state with omitted variables as in the initial state, if it ends in ",..."."""
    *given, last = state.split(",")
    if last.strip() != "...":
        return state
    pairs = [part.partition("=") for part in given]
    if not all(sign for _, sign, _ in pairs):
        return ",".join(given)  # the structure refuses it by name
    named = {name.strip(): value.strip() for name, _, value in pairs}
    if len(named) < len(pairs):
        return ",".join(given)  # the structure refuses the name that is given twice
    return model.structure.name_state(model.initial_state) | named


def _explain(model: FactoredMDP, policy: Any, state: tuple[int, ...], step: int) -> Explanation:
    from fmdp.planning.evaluate import POLICY_GAIN_STATES
    from fmdp.planning.explain.explain import explain_greedy, explain_policy, explain_timed
    from fmdp.planning.policies.counts import CountPolicy
    from fmdp.planning.policies.policy import TablePolicy
    from fmdp.planning.policies.timed import TimedPolicy

    if isinstance(policy, TimedPolicy):
        return explain_timed(model, policy, state, step)
    if (
        isinstance(policy, TablePolicy | CountPolicy)
        or model.structure.n_states <= POLICY_GAIN_STATES
    ):
        return explain_policy(model, policy, state)
    return explain_greedy(model, policy, state)


def _names(action: Mapping[str, Value]) -> dict[str, str]:
    """Return an action by the names of its values, which are strings in all JSON output."""
    return {name: str(value) for name, value in action.items()}


def _fields(
    problem: str,
    policy: Path,
    structure: Structure,
    state: tuple[int, ...],
    explanation: Explanation | None,
    reason: str | None,
) -> dict[str, Any]:
    values = errors = forbidden = runner_up = None
    if explanation is not None:
        errors = [value.error for value in explanation.values]
        values = [[_names(value.action), value.value, value.gap] for value in explanation.values]
        forbidden = [_names(action) for action in explanation.forbidden]
        if explanation.runner_up is not None:
            runner_up = _names(explanation.runner_up.action)
    return {
        "problem": problem,
        "policy": str(policy),
        "state": structure.name_state(state),
        "action": None,
        "values": values,
        "value_errors": errors,
        "values_of": None if explanation is None else explanation.of,
        "runner_up": runner_up,
        "forbidden": forbidden,
        "reason": reason,
        "actions": structure.n_actions,
    }
