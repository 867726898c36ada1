"""Learning of structures: variables and values from the columns of a log, scopes by score.

Transitions by BDeu with a sample size of 1 (learning/unknown/scores.py, which learners share).
Rewards by BIC of independent normal errors of one variance, -n/2 log(RSS/n) - (q'/2) log n over the
q' rows that were visited. Every set of at most K variables is scored, for every factor. Two rules
come before the scores:

* A set is taken only if the log is more likely under it than under each of its subsets, each with
  its own best parameters. BDeu alone does not guarantee that (Suzuki 2017): it can prefer a larger
  set that explains nothing more, such as a variable and its copy.
* Scores that differ by less than the rounding error of their computation are equal. Of equal scores
  the smaller set is taken, and of sets of one size the first.

Both scores are consistent: as the log grows in every row, the scopes become the smallest true ones.
For a short log they are a guess of unknown quality; the intervals of a fit assume that the scopes
are right. The result does not depend on the order of the steps in the log.

Cost: the log is kept in the smallest type that holds its values, and counted once for each set and
factor. The time is predicted, and refused if it is too long.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import available_memory, describe_bytes, describe_count
from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter, TooLarge, did_you_mean
from fmdp.learning.unknown.scores import bdeu, log_likelihood, rounding, subsets
from fmdp.logs.steps import (
    MARKS,
    NEXT,
    Names,
    Reader,
    Steps,
    numbers_of,
    roles_of,
    steps_of,
    text_of,
)
from fmdp.logs.tables import Table
from fmdp.model import Structure
from fmdp.model.naming import Value, number_in
from fmdp.model.spaces import strides

MOST_VALUES = 1000
"""Most values of a learned variable; more suggest a continuous one."""
MOST_SECONDS = 3600.0
"""Longest predicted time of a search for scopes."""
_SECONDS_PER_COUNT = 1e-8
_NEGLIGIBLE = 1e-5
"""Error of a reward, relative to its range, that may be due to the rounding of long sums."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Learned:
    """A structure learned from a log, with the steps of the log."""

    structure: Structure
    steps: Steps
    initial_state: tuple[int, ...]
    notes: tuple[str, ...]


def learn_structure(
    table: Table,
    actions: Sequence[str],
    rewards: Sequence[str],
    max_parents: int,
    ignored: Sequence[str],
) -> Learned:
    """Learn variables and values from the columns, and scopes by their scores."""
    states = _state_columns(table, actions, rewards, ignored)
    encoder = FirstSeen(table)
    names = Names(states, actions, rewards)
    roles = roles_of(table, names, ignored)
    blocks = _read_all(table, steps_of(table, roles, names, encoder))
    values, orders = encoder.values(states + tuple(actions))
    whole = _renumbered(blocks, orders, len(states))
    sizes = tuple(map(len, values))
    scopes = _searched(table.name, whole, sizes, max_parents)
    ranges = tuple((float(column.min()), float(column.max())) for column in whole.rewards.T)
    structure = Structure(
        sizes[: len(states)],
        sizes[len(states) :],
        scopes[: len(states)],
        scopes[len(states) :],
        ranges,
        states,
        tuple(actions),
        tuple(rewards),
        values[: len(states)],  # type: ignore[arg-type]
        values[len(states) :],  # type: ignore[arg-type]
    )
    notes = (
        _chosen_note(max_parents),
        *(
            f"the range of reward {name!r} is what the log shows, [{lo:g}, {hi:g}], and its "
            f"intervals take it for right"
            for name, (lo, hi) in zip(rewards, ranges, strict=True)
        ),
    )
    return Learned(structure, whole, tuple(whole.states[0].tolist()), notes)


def learn_scopes(
    table: Table, reader: Reader, skeleton: Structure, max_parents: int, known: Sequence[str]
) -> tuple[Structure, Steps, tuple[str, ...]]:
    """Learn the scopes of a known structure, except those of the factors named in `known`.

    Returns the structure, the steps and notes. Variables, values, ranges, groups and constraints
    stay. Without rewards in the log, the scopes of rewards stay too.
    """
    s = skeleton
    names = (*s.state_names, *s.reward_names)
    for name in known:
        if name not in names:
            raise InvalidParameter(
                f"no transition or reward factor is called {quoted(name)}; known must be among "
                f"{', '.join(names)}{did_you_mean(name, names)}"
            )
    whole = _joined_blocks(_read_all(table, reader.steps()))
    structure, notes = with_learned_scopes(table.name, whole, s, max_parents, known)
    return structure, whole, notes


def with_learned_scopes(
    source: str, whole: Steps, skeleton: Structure, max_parents: int, known: Collection[str]
) -> tuple[Structure, tuple[str, ...]]:
    """Return the structure with the scopes that score best, except those of factors in `known`.

    `source` is where the steps come from, for messages. The second result is a list of notes.
    """
    s = skeleton
    names = (*s.state_names, *s.reward_names)
    learned = _searched(source, whole, s.sizes, max_parents)
    given = (*s.transition_scopes, *s.reward_scopes)
    scopes = [
        given[f] if name in known or f >= len(learned) else learned[f]
        for f, name in enumerate(names)
    ]
    structure = s.with_factors(
        scopes[: s.m],
        scopes[s.m :],
        s.reward_ranges,
        s.reward_names,
        s.groups,
        None,
        s.constraints,
        None,
    )
    notes = [_chosen_note(max_parents)]
    if s.alike is not None:
        notes.append("the classes of alike rows are those of other scopes, and were dropped")
    return structure, tuple(notes)


def _chosen_note(max_parents: int) -> str:
    chosen = f"scopes of at most {max_parents} variables were chosen by their scores"
    return f"{chosen}, and the intervals take them for right"


def _searched(
    source: str, whole: Steps, sizes: Sequence[int], max_parents: int
) -> tuple[tuple[int, ...], ...]:
    """Return the best scopes; raise InvalidParameter if the search would take too long."""
    joint = np.concatenate([whole.states, whole.actions], axis=1)
    factors = whole.next_states.shape[1] + whole.rewards.shape[1]
    _refuse_much(source, len(joint), sizes, factors, max_parents)
    return best_scopes(joint, sizes, whole.next_states, whole.rewards, max_parents)


def _joined_blocks(blocks: list[Steps]) -> Steps:
    return blocks[-1]._replace(
        states=np.concatenate([block.states for block in blocks]),
        actions=np.concatenate([block.actions for block in blocks]),
        rewards=np.concatenate([block.rewards for block in blocks]),
        next_states=np.concatenate([block.next_states for block in blocks]),
        where=(),
    )


def _read_all(table: Table, steps: Iterable[Steps]) -> list[Steps]:
    """Return all steps of a log in the smallest types; raise TooLarge if memory is short."""
    blocks = []
    kept = 0
    for block in steps:
        small = block._replace(
            states=_small(block.states),
            actions=_small(block.actions),
            next_states=_small(block.next_states),
            where=(),
        )
        blocks.append(small)
        kept += 2 * small.states.nbytes + small.actions.nbytes + small.rewards.nbytes
        if 2 * kept > available_memory() // 2:
            raise TooLarge(
                f"{table.name}: to learn its structure the log is kept, and takes more than "
                f"{describe_bytes(2 * kept)}, half of the free memory; learn from a part of it",
                needed_bytes=2 * kept,
                limit_bytes=available_memory() // 2,
            )
    if not sum(len(block.states) for block in blocks):
        raise InvalidParameter(
            f"{table.name}: has no step; a step needs a row with its next state, or two rows"
        )
    return blocks


def _state_columns(
    table: Table, actions: Sequence[str], rewards: Sequence[str], ignored: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns that are no action, reward, next value or mark."""
    for name, option in [*((n, "actions") for n in actions), *((n, "rewards") for n in rewards)]:
        if name not in table.columns:
            raise InvalidParameter(
                f"{table.name}: there is no column {quoted(name)} for {option}; it has "
                f"{', '.join(table.columns)}{did_you_mean(name, table.columns)}"
            )
    if not actions:
        raise InvalidParameter(
            f"{table.name}: say which columns are actions; it has {', '.join(table.columns)}"
        )
    both = [name for name in actions if name in rewards]
    if both:
        raise InvalidParameter(f"{table.name}: column {quoted(both[0])} is action and reward")
    taken = {*actions, *rewards, *ignored, *MARKS}
    left = [column for column in table.columns if column not in taken]
    states = [name for name in left if not (name.startswith(NEXT) and name[len(NEXT) :] in left)]
    if not states:
        raise InvalidParameter(f"{table.name}: has no column left that could be a state variable")
    return tuple(states)


class FirstSeen:
    """Encoder of values that numbers them by first appearance."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._codes: dict[str, dict[str, int]] = {}

    def variable(
        self, name: str, values: Sequence[Any], where: Sequence[int], column: str
    ) -> NDArray[np.int64]:
        codes = self._codes.setdefault(name, {})
        encoded = np.empty(len(values), dtype=np.int64)
        for place, value in enumerate(values):
            text = text_of(value)
            number = codes.get(text)
            if number is None:
                if not text:
                    self._table.problems.add(where[place], column, "", "is empty")
                    encoded[place] = -1
                    continue
                if len(codes) == MOST_VALUES:
                    raise InvalidParameter(
                        f"{self._table.at(where[place], column)}: has more than {MOST_VALUES:,} "
                        f"different values; a variable must be discrete: put it into bins"
                    )
                number = codes[text] = len(codes)
            encoded[place] = number
        return encoded

    def reward(
        self, name: str, values: Sequence[Any], where: Sequence[int], column: str
    ) -> NDArray[np.float64]:
        return numbers_of(self._table, values, where, column)

    def values(
        self, names: Sequence[str]
    ) -> tuple[tuple[tuple[Value, ...], ...], list[NDArray[np.int64]]]:
        """Return the sorted values of each variable, and the sorted position of each number.

        A column whose texts are all numbers in their usual form has numbers as values.
        """
        values: list[tuple[Value, ...]] = []
        orders = []
        for name in names:
            texts = sorted(self._codes[name], key=_order(self._codes[name]))
            numbers = [number for text in texts if (number := number_in(text)) is not None]
            values.append(tuple(numbers if len(numbers) == len(texts) else texts))
            order = np.empty(len(texts), dtype=np.int64)
            order[[self._codes[name][text] for text in texts]] = np.arange(len(texts))
            orders.append(order)
        return tuple(values), orders


def _order(texts: Sequence[str] | dict[str, int]) -> Any:
    """Return the sort key: by size if all are numbers, else alphabetical."""
    try:
        if all(math.isfinite(float(text)) for text in texts):
            return lambda text: (float(text), text)
    except ValueError:
        pass
    return lambda text: (text.casefold(), text)


def _small(part: NDArray[Any]) -> NDArray[Any]:
    return part.astype(np.min_scalar_type(int(part.max()))) if part.size else part


def _renumbered(blocks: list[Steps], orders: list[NDArray[np.int64]], m: int) -> Steps:
    def joined(
        parts: list[NDArray[np.int64]], orders: Sequence[NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        whole = np.concatenate(parts)
        kind = np.min_scalar_type(max(map(len, orders)))
        return np.stack([order[whole[:, v]].astype(kind) for v, order in enumerate(orders)], axis=1)

    return Steps(
        joined([block.states for block in blocks], orders[:m]),
        joined([block.actions for block in blocks], orders[m:]),
        np.concatenate([block.rewards for block in blocks]),
        joined([block.next_states for block in blocks], orders[:m]),
        (),
        blocks[-1].runs,
        blocks[-1].unchained,
    )


# ---- scores --------------------------------------------------------------------------------------


class Score(NamedTuple):
    """Score of a scope for one factor."""

    score: float
    """BDeu or BIC."""
    fit: float
    """Largest log-likelihood; for rewards, minus the smallest mean squared error. It does not
    decrease when a variable is added to the scope."""


def squared_error(visits: Floats, sums: Floats, squares: Floats) -> float:
    """Return the mean squared error of rewards about the means of their rows."""
    return float(squares.sum() - (sums * sums / visits).sum()) / float(visits.sum())


def normal_bic(visits: Floats, sums: Floats, squares: Floats, negligible: float) -> float:
    """Return the score of rewards by row: [visited rows] each; variances below `negligible` are
    taken for it."""
    n = float(visits.sum())
    rest = max(squared_error(visits, sums, squares), negligible)
    return -0.5 * n * math.log(rest) - 0.5 * len(visits) * math.log(n)


def best_scopes(
    joint: NDArray[Any],
    sizes: Sequence[int],
    following: NDArray[Any],
    rewards: Floats,
    most: int,
) -> tuple[tuple[int, ...], ...]:
    """Return the scope of every transition factor and every reward factor that scores best."""
    # In a fixed order, sums of rewards do not depend on the order of the steps.
    order = np.lexsort([*rewards.T, *following.T, *joint.T])
    joint, following, rewards = joint[order], following[order], rewards[order]
    scored = _Scored(sizes, following, rewards)
    slack = scored.slack()
    factors = range(following.shape[1] + rewards.shape[1])
    best: list[tuple[float, tuple[int, ...]]] = [(-math.inf, ())] * len(factors)
    smaller: dict[tuple[int, ...], list[float]] = {}
    fits: dict[tuple[int, ...], list[float]] = {}
    for scope in subsets(len(sizes), most):
        less_one = list(itertools.combinations(scope, len(scope) - 1)) if scope else []
        if less_one and less_one[0] in fits:  # the first of its size
            smaller, fits = fits, {}
        shape = [sizes[v] for v in scope]
        codes = joint[:, list(scope)].astype(np.int64) @ np.array(strides(shape), dtype=np.int64)
        scores = scored.of(codes, math.prod(shape))
        fits[scope] = [score.fit for score in scores]
        for factor in factors:
            score, fit = scores[factor]
            explains_more = all(fit > smaller[s][factor] + slack[factor] for s in less_one)
            if explains_more and score > best[factor][0] + rounding(len(joint)):
                best[factor] = (score, scope)
    return tuple(scope for _, scope in best)


class _Scored:
    """Values of every factor in a log, to be scored by scope."""

    def __init__(self, sizes: Sequence[int], following: NDArray[Any], rewards: Floats) -> None:
        self._sizes = sizes
        self._following = following
        self._centred = rewards - rewards.mean(axis=0)
        self._squares = self._centred**2
        ranges = [float(np.ptp(column)) for column in rewards.T]
        self._floors = [(_NEGLIGIBLE * size) ** 2 or 1e-300 for size in ranges]

    def slack(self) -> list[float]:
        """Return how much rounding may change the fit of each factor."""
        steps = len(self._following)
        errors = [1e-12 * float(column.mean()) for column in self._squares.T]
        return [rounding(steps)] * self._following.shape[1] + errors

    def of(self, codes: NDArray[np.int64], rows: int) -> list[Score]:
        """Return the scores of all factors under a scope; `codes` has the row of every step."""
        seen, codes = np.unique(codes, return_inverse=True)
        scores = []
        for i, column in enumerate(self._following.T):
            size = self._sizes[i]
            counts = np.bincount(codes * size + column, minlength=len(seen) * size)
            counts = counts.reshape(len(seen), size)
            scores.append(Score(bdeu(counts, rows), log_likelihood(counts)))
        visits = np.bincount(codes).astype(np.float64)
        for k, negligible in enumerate(self._floors):
            sums: Floats = np.bincount(codes, weights=self._centred[:, k]).astype(np.float64)
            squares: Floats = np.bincount(codes, weights=self._squares[:, k]).astype(np.float64)
            error = max(squared_error(visits, sums, squares), negligible)
            scores.append(Score(normal_bic(visits, sums, squares, negligible), -error))
        return scores


def _refuse_much(source: str, steps: int, sizes: Sequence[int], factors: int, most: int) -> None:
    sets = sum(math.comb(len(sizes), size) for size in range(min(most, len(sizes)) + 1))
    seconds = sets * steps * (factors + 4) * _SECONDS_PER_COUNT
    if seconds > MOST_SECONDS:
        raise InvalidParameter(
            f"{source}: {describe_count(sets)} sets of at most {most} of {len(sizes)} "
            f"variables over {steps:,} steps would take about "
            f"{describe_count(round(seconds / 3600))} hours; must be at most one: fewer parents or "
            f"steps"
        )
    largest = math.prod(sorted(sizes, reverse=True)[:most])
    if largest > 2**62:
        raise InvalidParameter(
            f"{source}: a scope of {most} variables may have {describe_count(largest)} rows; "
            f"must be at most 2^62: fewer parents"
        )
