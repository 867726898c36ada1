"""Stationary policies that randomise in some states, and policies as mixtures of tables.

A `MixedPolicy` is a table of actions, and a distribution over joint actions for some states. Like
every randomised policy it draws one number per step (a *lot*), which `settle` turns into an action
when the state is known.

`mixture_of` writes any stationary policy as pi(a | s) = sum_k w_k(s) 1{a = a_k(s)}: exact
evaluations and stationary laws are sums over the tables a_k.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter
from fmdp.model import Structure
from fmdp.model.constraints import Constraint
from fmdp.model.naming import Assignment
from fmdp.model.spaces import count, decode, encode
from fmdp.planning.policies.archive import Parts
from fmdp.planning.policies.policy import Policy, TablePolicy, has_sizes_of, refuse_unnumbered
from fmdp.planning.policies.randomised import LOTS, RandomisedPolicy
from fmdp.planning.policies.rule import Rule
from fmdp.planning.status import Progress

Weights = NDArray[np.float64]
Actions = NDArray[np.int64]
Mixture = list[tuple[Weights, Actions]]
"""Pairs (weights [S], joint actions [S]), in C order of the states; the weights sum to 1."""


def one_table(actions: Actions) -> Mixture:
    """Return the mixture of a single table: weights 1."""
    return [(np.ones(len(actions)), actions)]


_STATES_AT_ONCE = 1 << 12
"""States for which a policy is asked between two checks of the deadline."""
_SUM_ERROR = 1e-9
"""Largest distance of the sum of given probabilities from 1; they are divided by their sum."""


class MixedPolicy(RandomisedPolicy):
    """A table of actions, with a distribution over actions in some states.

    Parameters
    ----------
    base
        The action in every state that does not randomise.
    chances
        For each state that randomises, by position or as a text by name, the probability of each
        of its actions: {state: {action: probability}}.

    Raises
    ------
    InvalidParameter
        If the base is not a TablePolicy, or something is not a state, an action or a distribution.
    """

    kind = "mixed"
    base: TablePolicy

    def __init__(
        self,
        base: TablePolicy,
        chances: Mapping[Any, Mapping[Any, float]],
    ) -> None:
        if not isinstance(base, TablePolicy):
            raise InvalidParameter(
                f"the base of a MixedPolicy must be a TablePolicy; got {quoted(base)}"
            )
        if not isinstance(chances, Mapping):
            raise InvalidParameter(
                f"the chances of a MixedPolicy must be {{state: {{action: probability}}}}; "
                f"got {quoted(chances)}"
            )
        rows = [
            (encode(base.naming.check_state(state), base.state_sizes), row)
            for state, row in chances.items()
        ]
        rows.sort(key=lambda pair: pair[0])
        choices: list[int] = []
        probabilities: list[float] = []
        starts = [0]
        for number, row in rows:
            if not isinstance(row, Mapping):
                raise InvalidParameter(
                    f"the chances in state {number} of a MixedPolicy must be "
                    f"{{action: probability}}; got {quoted(row)}"
                )
            for action, probability in row.items():
                choices.append(encode(base.naming.check_action(action), base.action_sizes))
                probabilities.append(probability)
            starts.append(len(choices))
        states = np.array([number for number, _ in rows], dtype=np.int64)
        try:
            given = np.array(probabilities, dtype=np.float64)
        except (TypeError, ValueError):
            raise InvalidParameter(
                f"the probabilities of a MixedPolicy must be numbers; got {quoted(probabilities)}"
            ) from None
        self._hold(base, states, np.array(starts), np.array(choices, dtype=np.int64), given)

    @classmethod
    def from_arrays(
        cls,
        base: TablePolicy,
        states: Actions,
        starts: Actions,
        choices: Actions,
        probabilities: Weights,
    ) -> MixedPolicy:
        """Return the policy that randomises in the states [n], given by their indices.

        Parameters
        ----------
        base
            The action in every other state.
        states
            Increasing indices of states.
        starts
            [n + 1]: choices[starts[i]:starts[i + 1]] are the joint actions of states[i].
        choices
            Indices of joint actions.
        probabilities
            The probability of each choice.
        """
        policy = cls.__new__(cls)
        policy._hold(base, states, starts, choices, probabilities)
        return policy

    def _hold(
        self,
        base: TablePolicy,
        states: Actions,
        starts: Actions,
        choices: Actions,
        probabilities: Weights,
    ) -> None:
        _check_distributions(base, states, starts, choices, probabilities)
        totals = np.add.reduceat(probabilities, starts[:-1]) if len(states) else np.ones(0)
        self.base = base
        self.states: Actions = np.array(states, dtype=np.int64)
        self.starts: Actions = np.array(starts, dtype=np.int64)
        self.choices: Actions = np.array(choices, dtype=np.int64)
        self.probabilities: Weights = probabilities / np.repeat(totals, np.diff(starts))
        for array in (self.states, self.starts, self.choices, self.probabilities):
            array.flags.writeable = False
        super().__init__(base.state_sizes, base.action_sizes, base.naming)
        self.take_constraints(base.constraints)

    def take_constraints(self, constraints: Sequence[Constraint] | None) -> None:
        super().take_constraints(constraints)
        self.by_state = True  # the draw of a step is a lot, with or without constraints

    def under(self, structure: Structure) -> MixedPolicy:
        for _, actions in mixture_of(self, structure):
            structure.check_policy(actions)
        return self

    def _row(self, state: tuple[int, ...]) -> tuple[Actions, Weights] | None:
        """Return the choices in a state and their probabilities; None if it does not randomise."""
        number = encode(state, self.state_sizes)
        row = int(np.searchsorted(self.states, number))
        if row == len(self.states) or self.states[row] != number:
            return None
        some = slice(int(self.starts[row]), int(self.starts[row + 1]))
        return self.choices[some], self.probabilities[some]

    def distribution(self, state: Assignment) -> list[tuple[Any, float]]:
        """Return the actions in a state with their probabilities, the most likely first.

        Parameters
        ----------
        state
            One position or name of a value per state variable; or a mapping or a text by name.

        Returns
        -------
        list[tuple]
            Pairs (action, probability); an action is by position, or by name if the state is.
        """
        checked = self.naming.check_state(state)
        row = self._row(checked)
        if row is None:
            return [(self.naming.answer(self.base(checked), state), 1.0)]
        order = np.argsort(-row[1], kind="stable")
        return [
            (
                self.naming.answer(decode(int(row[0][place]), self.action_sizes), state),
                float(row[1][place]),
            )
            for place in order
        ]

    def __call__(self, state: Any, generator: np.random.Generator | None = None) -> Any:
        """Return an action in a state, drawn if the policy randomises there.

        Parameters
        ----------
        state
            One position or name of a value per state variable; or a mapping or a text by name.
        generator
            The source of random numbers. It advances by one number in every state.

        Raises
        ------
        InvalidParameter
            If it is not a state of the policy, or a generator is needed and none is given.
        """
        checked = self.naming.check_state(state)
        if generator is not None:
            action = self.settle(self.draw(generator, 1)[0], checked)
        elif self._row(checked) is None:
            action = self.base(checked)
        else:
            raise InvalidParameter(
                f"the policy randomises in state {checked}; call it with a generator, as in "
                f"policy(state, numpy.random.default_rng(0)), or ask policy.distribution(state)"
            )
        return self.naming.answer(action, state)

    def draw(self, generator: np.random.Generator, steps: int) -> NDArray[np.int64]:
        lots = np.zeros((steps, len(self.action_sizes)), dtype=np.int64)
        lots[:, 0] = (generator.random(steps) * LOTS).astype(np.int64)
        return lots

    def settle(self, drawn: NDArray[np.int64], state: Sequence[int]) -> tuple[int, ...]:
        checked = tuple(state)
        row = self._row(checked)
        if row is None:
            return self.base(checked)
        place = int(np.searchsorted(np.cumsum(row[1]), int(drawn[0]) / LOTS, side="right"))
        # The sum of the probabilities may round to less than 1.
        return decode(int(row[0][min(place, len(row[0]) - 1)]), self.action_sizes)

    def content(self) -> Parts:
        return {}, {
            "actions": self.base.actions,
            "states": self.states,
            "starts": self.starts,
            "choices": self.choices,
            "probabilities": self.probabilities,
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MixedPolicy) or self.base != other.base:
            return False
        names = ("states", "starts", "choices", "probabilities")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"MixedPolicy({len(self.base.actions)} states, {count(self.action_sizes)} actions, "
            f"{len(self.states)} states randomise)"
        )


def _check_distributions(
    base: TablePolicy, states: Actions, starts: Actions, choices: Actions, probabilities: Weights
) -> None:
    """Raise InvalidParameter unless the arrays are those of a MixedPolicy."""
    joint = count(base.action_sizes)
    if len(states) and (
        (np.diff(states) <= 0).any() or states[0] < 0 or states[-1] >= len(base.actions)
    ):
        raise InvalidParameter("the states of a MixedPolicy must be increasing and different")
    lengths = np.diff(starts)
    if len(starts) != len(states) + 1 or starts[-1] != len(choices) or (lengths < 1).any():
        raise InvalidParameter("every state that randomises must have at least one action")
    if len(choices) and (choices.min() < 0 or choices.max() >= joint):
        raise InvalidParameter(f"the actions of a MixedPolicy must be from 0 to {joint - 1}")
    if not (probabilities >= 0.0).all() or not np.isfinite(probabilities).all():
        raise InvalidParameter("the probabilities of a MixedPolicy must be numbers of at least 0")
    if not len(states):
        return
    totals = np.add.reduceat(probabilities, starts[:-1])
    worst = int(np.argmax(np.abs(totals - 1.0)))
    if abs(totals[worst] - 1.0) > _SUM_ERROR:
        state = decode(int(states[worst]), base.state_sizes)
        raise InvalidParameter(
            f"the probabilities in state {state} of a MixedPolicy have the sum "
            f"{float(totals[worst])!r}; must have the sum 1"
        )
    pairs = np.repeat(states, lengths) * joint + choices
    if len(np.unique(pairs)) < len(pairs):
        raise InvalidParameter("a state of a MixedPolicy has the same action twice")


def mixed_policy(structure: Structure, mixture: Mixture) -> TablePolicy | MixedPolicy:
    """Return the policy of a mixture of tables: a table if no state randomises.

    Weights below 1e-300 count as 0. The weights of a state are divided by their sum.
    """
    n_states, n_actions = structure.n_states, structure.n_actions
    pairs = np.concatenate([np.arange(n_states) * n_actions + actions for _, actions in mixture])
    weights = np.concatenate([weights for weights, _ in mixture])
    kept = weights > 1e-300
    pairs, places = np.unique(pairs[kept], return_inverse=True)
    weights = np.bincount(places, weights[kept], len(pairs))
    starts = np.searchsorted(pairs, np.arange(n_states + 1) * n_actions)
    weights = weights / np.repeat(np.add.reduceat(weights, starts[:-1]), np.diff(starts))
    # In C order of the pairs, the likeliest choice of each state is the last of a stable sort.
    order = np.lexsort((weights, pairs // n_actions))
    base = TablePolicy(
        structure.state_sizes,
        structure.action_sizes,
        pairs[order][starts[1:] - 1] % n_actions,
        structure.naming,
    )
    base.take_constraints(structure.constraints)
    mixed = np.flatnonzero(np.diff(starts) > 1)
    if not len(mixed):
        return base
    chosen = np.repeat(np.diff(starts) > 1, np.diff(starts))
    lengths = np.diff(starts)[mixed]
    return MixedPolicy.from_arrays(
        base,
        mixed,
        np.concatenate([[0], np.cumsum(lengths)]),
        pairs[chosen] % n_actions,
        weights[chosen],
    )


def mixture_of(
    policy: Policy | MixedPolicy,
    structure: Structure,
    deadline: Deadline = NEVER,
    progress: Progress | None = None,
) -> Mixture:
    """Return a stationary policy as pairs (weights, actions): pi = sum_k w_k(s) 1{a = a_k(s)}.

    A deterministic policy is one pair with weights 1. Actions that the policy takes are checked
    against the constraints. Raise InvalidParameter if the policy is not for this structure, takes
    a forbidden action, depends on the time, or is a randomised policy of another kind; and
    TimeUp at the deadline.
    """
    if isinstance(policy, MixedPolicy):
        has_sizes_of(policy, structure)
        pairs = _tables(policy)
    elif not callable(policy) or getattr(policy, "horizon", None) is not None:
        raise InvalidParameter(
            f"the policy must choose its actions by the state alone; got {quoted(policy)}"
        )
    else:
        actions = tabulated_actions(policy, structure, deadline, progress)
        pairs = one_table(actions)
    for _, actions in pairs:
        structure.check_policy(actions)
    return pairs


def _tables(policy: MixedPolicy) -> Mixture:
    base = policy.base.actions.astype(np.int64)
    lengths = np.diff(policy.starts)
    pairs: Mixture = []
    for number in range(max([1, *lengths.tolist()])):
        weights = np.full(len(base), float(number == 0))
        actions = base.copy()
        some = lengths > number
        states, places = policy.states[some], policy.starts[:-1][some] + number
        weights[states], actions[states] = policy.probabilities[places], policy.choices[places]
        pairs.append((weights, actions))
    return pairs


def tabulated_actions(
    policy: Policy,
    structure: Structure,
    deadline: Deadline = NEVER,
    progress: Progress | None = None,
) -> Actions:
    """Return the joint action index of every state, in C order.

    A policy without a table is called for every state. A rule of the user is called twice, and
    refused if it returns two different actions for a state: the evaluation of the table would not
    be that of a rule that draws its actions at random. TimeUp is raised at the deadline, and
    TooLarge if there are too many joint actions to number.
    """
    if isinstance(policy, TablePolicy):
        has_sizes_of(policy, structure)
        return policy.actions.astype(np.int64)
    refuse_unnumbered(structure.action_sizes)
    sizes = structure.action_sizes
    states = _in_time(structure, deadline, progress)
    actions = np.fromiter((encode(policy(state), sizes) for state in states), dtype=np.int64)
    if isinstance(policy, Rule):  # after all states: a rule may change in between
        for state, action in zip(_in_time(structure, deadline, progress), actions, strict=True):
            policy.confirm(state, decode(int(action), sizes))
    return actions


def _in_time(
    structure: Structure, deadline: Deadline, progress: Progress | None
) -> Iterator[tuple[int, ...]]:
    """Yield all states, with progress, until the deadline."""
    for number, state in enumerate(np.ndindex(*structure.state_sizes)):
        if number % _STATES_AT_ONCE == 0:
            deadline.check()
            if progress is not None:
                progress({"what": "tabulating", "step": number, "steps": structure.n_states})
        yield state
