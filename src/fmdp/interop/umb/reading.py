"""Conversion of what a UMB file holds to a model with one state variable.

    discrete time      rewards per step: those of the state, the choice, and the branches
    stochastic time    uniformised: P(s' | s, a) = rate(s) p / L for s' != s, with L the largest
                       rate; rewards per unit of time: those of the state, and rate(s) times those
                       of the choice and the branches

A state without a choice stays as it is. Games, observations (POMDPs), Markov automata, intervals
and several initial states are refused by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidModel, InvalidParameter
from fmdp.interop.choosing import check_choice, free_name, minimising, negative_name
from fmdp.interop.explicit import STAY, STEP, Explicit, Indices, numbered, uniformised
from fmdp.interop.umb.archives import UmbContents
from fmdp.model.factored import FactoredMDP
from fmdp.model.naming import Value
from fmdp.model.quantities import TOTAL
from fmdp.model.spaces import FloatArray

ROW_TOLERANCE = 1e-9
"""Largest deviation of a sum of probabilities from 1."""


def model_of(
    contents: UmbContents,
    name: str,
    rewards: str | None,
    minimise: str | None,
    max_states: int | None,
) -> FactoredMDP:
    """Return the model of a file; the arguments are as in `umb.load`."""
    _refuse_kinds(contents.umb)
    return _Reading(contents).model(name, rewards, minimise, max_states)


def _refuse_kinds(umb: Any) -> None:
    ts = umb.index.transition_system
    reasons = {
        "a Markov automaton (time urgent-stochastic)": ts.time == "urgent-stochastic",
        f"a game of {ts.num_players} players": ts.num_players > 1,
        "partially observable": ts.num_observations > 0,
        "without branches": ts.num_branches == 0,
    }
    for reason, holds in reasons.items():
        if holds:
            raise InvalidModel(f"the model is {reason}; must be an MDP or a Markov chain")
    initial = sum(map(bool, umb.state_is_initial or ()))
    if initial != 1:
        raise InvalidModel(f"there are {initial} initial states; must be one")


class _Reading:
    def __init__(self, contents: UmbContents) -> None:
        self.contents = contents
        umb = self.umb = contents.umb
        ts = umb.index.transition_system
        self.n, self.is_continuous = ts.num_states, ts.time == "stochastic"
        choices, branches = ts.num_choices, ts.num_branches
        of_states = _ranges("state-to-choices", umb.state_to_choices, self.n, choices)
        of_choices = _ranges("choice-to-branches", umb.choice_to_branches, choices, branches)
        self.states = np.repeat(np.arange(self.n), np.diff(of_states))
        self.rows = np.repeat(np.arange(choices), np.diff(of_choices))
        self.successors = _whole("branch-to-target", umb.branch_to_target, branches, self.n)
        self.chances = self._probabilities(choices, branches)
        self.rates = np.ones(self.n)
        if self.is_continuous:
            self.rates = _numbers("state-to-exit-rate", umb.state_to_exit_rate, self.n)
            if (self.rates < 0).any():
                state = int(np.argmax(self.rates < 0))
                raise InvalidModel(f"state {state} has the rate {self.rates[state]}; must be >= 0")
        self.remarks: list[str] = []

    def _probabilities(self, choices: int, branches: int) -> FloatArray:
        given = self.umb.branch_to_probability
        chances = np.ones(branches) if given is None else None
        if chances is None:
            chances = _numbers("branch-to-probability", given, branches)
        totals = np.bincount(self.rows, chances, choices)
        wrong = (np.abs(totals - 1.0) > ROW_TOLERANCE) | (
            np.bincount(self.rows, chances < 0, choices) > 0
        )
        if wrong.any():
            choice = int(np.argmax(wrong))
            raise InvalidModel(
                f"probabilities of choice {choice}, of state {self.states[choice]}, sum to "
                f"{totals[choice]}; must be at least 0 and sum to 1"
            )
        return chances

    # ---- rewards ---------------------------------------------------------------------------------

    def _annotated(self, group: str) -> dict[str, dict[str, Any]]:
        """Return the annotations of a group by the names that people gave them."""
        described = (self.umb.index.annotations or {}).get(group, {})
        taken: set[str] = set()
        return {
            free_name(described[key].alias or key, taken): arrays
            for key, arrays in (self.umb.annotations or {}).get(group, {}).items()
        }

    def _means(self, name: str, arrays: dict[str, Any]) -> FloatArray:
        """Return the reward of each choice, per step or per unit of time."""
        ts = self.umb.index.transition_system
        choices, branches = ts.num_choices, ts.num_branches
        sizes = {"states": self.n, "choices": choices, "branches": branches}
        # Choices that stay in a deadlock come last and pay what the state pays.
        means, steps = np.zeros(len(self.states)), np.zeros(len(self.states))
        for applies_to, values in arrays.items():
            given = _numbers(f"{name} of {applies_to}", values, sizes[applies_to])
            if applies_to == "states":
                means += given[self.states]
            elif applies_to == "choices":
                steps[:choices] += given
            else:
                expected = self.chances[:branches] * given
                np.add.at(steps, self.rows[:branches], expected)
        return np.asarray(means + self.rates[self.states] * steps)

    # ---- model -----------------------------------------------------------------------------------

    def model(
        self, name: str, rewards: str | None, minimise: str | None, max_states: int | None
    ) -> FactoredMDP:
        self._add_deadlocks()
        paid, labels = self._annotated("rewards"), self._annotated("aps")
        means = {key: self._means(key, arrays) for key, arrays in paid.items()}
        known = set(means)
        for key, arrays in labels.items():
            share = self._means(key, arrays)
            if share.any():  # Storm writes "deadlock" into every file
                means[free_name(f"label_{key}" if key in means else key, known)] = share
        check_choice(rewards, minimise, means, max_states)
        chosen = rewards if minimise is None else minimise
        chosen = self._default(list(paid)) if chosen is None else chosen
        paying = {} if chosen is None else {chosen: means[chosen]}
        if minimise is not None:
            paying = {negative_name(minimise): 0.0 - means[minimise]}
        elif chosen is not None:
            del means[chosen]
        taken = {TOTAL, *paying}
        variable, values = self._named()
        names, numbers = self._actions()
        rows, successors, chances = self.rows, self.successors, self.chances
        if self.is_continuous:
            rates = chances * self.rates[self.states][rows]
            rows, successors, chances, rate = uniformised(self.states, rows, successors, rates)
            self.remarks.append(
                f"continuous time, uniformised at rate {rate:.12g}; rewards and gain are per unit "
                f"of time"
            )
        explicit = Explicit(
            variable,
            values,
            int(np.argmax(self.umb.state_is_initial)),
            names,
            self.states,
            numbers,
            rows,
            successors,
            chances,
            paying,
            {free_name(key, taken): measured for key, measured in means.items()},
        )
        if minimise is not None:
            self.remarks.append(minimising(minimise))
        data = self.umb.index.model_data
        model = explicit.model((data.name if data else None) or name, max_states)
        return model.with_remarks(*self.remarks)

    def _default(self, names: list[str]) -> str | None:
        if TOTAL in names or len(names) <= 1:
            return TOTAL if TOTAL in names else next(iter(names), None)
        raise InvalidParameter(
            f"several rewards, {', '.join(map(repr, names))}: choose one, as in "
            f"MODEL.umb,rewards={names[0]}"
        )

    def _add_deadlocks(self) -> None:
        """Give every state without a choice one that stays."""
        self.stuck = np.setdiff1d(np.arange(self.n), self.states)
        if not len(self.stuck):
            return
        self.remarks.append(
            f"states without a choice get a self-loop: {len(self.stuck):,}, e.g. state "
            f"{self.stuck[0]}"
        )
        choices = len(self.states) + np.arange(len(self.stuck))
        self.states = np.concatenate([self.states, self.stuck])
        self.rows = np.concatenate([self.rows, choices])
        self.successors = np.concatenate([self.successors, self.stuck])
        self.chances = np.concatenate([self.chances, np.ones(len(self.stuck))])

    def _named(self) -> tuple[str, list[Value]]:
        """Return the name of the state variable, and those of its values."""
        contents = self.contents
        if len(np.unique(contents.values, axis=0)) < self.n or not contents.names:
            self.remarks.append(f"{self.n:,} states, as the values 0.. of one variable, state")
            return "state", list(range(self.n))
        name = "/".join(contents.names)
        self.remarks.append(f"{self.n:,} states, as the values of one variable, {name}")
        if len(contents.names) == 1 and not contents.truths[0]:
            return name, list(contents.values[:, 0].tolist())
        return name, [
            "/".join(
                ("true" if value else "false") if is_truth else str(value)
                for value, is_truth in zip(row, contents.truths, strict=True)
            )
            for row in contents.values.tolist()
        ]

    def _actions(self) -> tuple[list[str], Indices]:
        """Return the names of actions, and the number of each choice's action."""
        ts = self.umb.index.transition_system
        known = [name or STEP for name in self.umb.choice_action_to_string or ()]
        if ts.num_players == 0 and len(self.states) == self.n:
            return [known[0] if len(known) == 1 else STEP], np.zeros(self.n, dtype=np.int64)
        words = [STEP] * ts.num_choices
        if ts.num_choice_actions:
            given = self.umb.choice_to_choice_action
            given = [0] * ts.num_choices if given is None else given
            actions = _whole("actions/choices", given, ts.num_choices, ts.num_choice_actions)
            known += [f"action_{number}" for number in range(len(known), int(actions.max()) + 1)]
            words = [known[number] for number in actions.tolist()]
        names, numbers = numbered(words + [STAY] * len(self.stuck), self.states)
        # In the order of the file, as far as it names them.
        rank = {name: place for place, name in reversed([*enumerate(known)])}
        order = sorted(range(len(names)), key=lambda place: rank.get(names[place], len(known)))
        place_of = np.argsort(order)
        return [names[place] for place in order], place_of[numbers]


# ---- checked arrays ------------------------------------------------------------------------------


def _numbers(name: str, given: Any, size: int) -> FloatArray:
    """Return an array of finite numbers."""
    listed = [] if given is None else given
    if len(listed) != size:
        raise InvalidModel(f"{name} has {len(listed)} entries; must have {size}")
    try:
        array = np.array([float(value) for value in listed])
    except (TypeError, ValueError, OverflowError):
        raise InvalidModel(f"{name} has entries that are no numbers, e.g. intervals") from None
    if not np.isfinite(array).all():
        raise InvalidModel(f"{name} has an entry that is not finite")
    return array


def _whole(name: str, given: Any, size: int, below: int) -> NDArray[np.int64]:
    """Return an array of whole numbers from 0 to `below` - 1."""
    array = _numbers(name, given, size)
    if len(array) and not (array.min() >= 0 and array.max() < below):
        raise InvalidModel(f"{name} has entries outside 0..{below - 1}")
    return array.astype(np.int64)


def _ranges(name: str, given: Any, size: int, total: int) -> NDArray[np.int64]:
    """Return the starts of ranges, which are sorted from 0 to `total`; by default one each."""
    starts = _whole(name, range(size + 1) if given is None else given, size + 1, total + 1)
    if starts[0] != 0 or starts[-1] != total or (np.diff(starts) < 0).any():
        raise InvalidModel(f"{name} must be sorted, from 0 to {total}")
    return starts
