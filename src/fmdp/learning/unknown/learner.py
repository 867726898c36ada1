"""Learners that are told the variables and a bound on the number of parents, not the scopes.

Before every decision a scope is chosen for each state variable (`choose_scopes`); the learner then
works on the counts under these scopes, as if they were known. If a scope has changed the planner
is prepared anew. The steps are kept, so a run is a function of its steps: saved runs continue bit
by bit.

With a prior over the scopes, uniform over their sizes and over the scopes of one size, and one over
the rows (scores.py), the posterior of each candidate Z of variable i is

    P(Z | steps) proportional to P(Z) P(next values of i | Z),

because scopes and rows of different variables are independent. Learners that sample a model sample
the scopes too (`draws_scopes`); others take the most probable ones.

The scopes of the rewards are those of the model. Which rows are alike and effects are knowledge of
the scopes, and are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import quoted
from fmdp._base.portable_math import exp
from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter, did_you_mean
from fmdp.learning.agent import Agent
from fmdp.learning.learner import PlanningLearner
from fmdp.learning.residuals import Monitor
from fmdp.learning.statistics import Statistics
from fmdp.learning.unknown.evidence import Evidence, Floats, Scope
from fmdp.learning.unknown.monitor import CandidateMonitor
from fmdp.learning.unknown.statistics import ScopeStatistics
from fmdp.model import Structure

UNKNOWN = "unknown"
SELF = "self"
"""Word for the edge from every state variable to itself."""


class Hints(NamedTuple):
    """Knowledge about the scopes, by variable number."""

    given: dict[int, Scope]
    """Scopes that are known."""
    required: tuple[frozenset[int], ...]
    """[m]: parents that each state variable has."""
    forbidden: tuple[frozenset[int], ...]
    """[m]: variables that are no parents of it."""


class Candidates(NamedTuple):
    """Candidate scopes of one state variable."""

    places: NDArray[np.int64]
    """[candidates]: places among the counted sets; empty if the scope is given."""
    scopes: tuple[Scope, ...]
    log_prior: NDArray[np.float64]
    """[candidates]"""
    given: bool
    """Whether the scope is given."""


class ScopeLearner(PlanningLearner):
    """A planning learner that may have to learn the scopes."""

    draws_scopes: ClassVar[bool] = False
    """Whether scopes are drawn from their posterior; otherwise the most probable ones are used."""

    scopes: str = setting(
        "known",
        "whether the scopes of the transitions are known, or learned from the steps; those of the "
        "rewards are always those of the model",
        choices=("known", UNKNOWN),
        unkeyed=("known",),
    )
    parents: int = setting(
        2,
        "largest number of state variables in an unknown scope; larger than needed costs only "
        "time, and a bound that is too small is reported",
        low=0,
        only_with=("scopes", (UNKNOWN,)),
        unkeyed=(2,),
    )
    action_parents: int = setting(
        1,
        "number of action variables in an unknown scope",
        low=0,
        only_with=("scopes", (UNKNOWN,)),
        unkeyed=(1,),
    )
    given: str | None = setting(
        None,
        "state variables whose scopes are known all the same, joined by '+'",
        only_with=("scopes", (UNKNOWN,)),
        unkeyed=(None,),
    )
    required: str | None = setting(
        None,
        "edges that unknown scopes have, parent>child by name, joined by '+'; 'self' for all "
        "edges from a variable to itself",
        only_with=("scopes", (UNKNOWN,)),
        unkeyed=(None,),
    )
    forbidden: str | None = setting(
        None,
        "edges that unknown scopes do not have, parent>child by name, joined by '+'",
        only_with=("scopes", (UNKNOWN,)),
        unkeyed=(None,),
    )

    def statistics_for(self, structure: Structure) -> Statistics:
        if self.scopes != UNKNOWN:
            return super().statistics_for(structure)
        evidence = Evidence(
            structure, self.counted_parents(structure), self.action_parents, self.owner()
        )
        return ScopeStatistics(structure, self._first_scopes(structure), evidence)

    def counted_parents(self, structure: Structure) -> int:
        """Return the largest number of state variables in a counted set of `structure`."""
        return min(self.parents, structure.m)

    def refresh(self, agent: Agent) -> None:
        """Choose the scopes of the next decision of `agent`."""
        if self.scopes == UNKNOWN:
            seen = evidence_of(agent)
            agent.adopt(seen.with_scopes(self.choose_scopes(agent)))

    def choose_scopes(self, agent: Agent) -> list[Scope]:
        """Return the scope of every state variable to plan with.

        Parameters
        ----------
        agent
            The run so far; `agent.statistics` is a `ScopeStatistics`.
        """
        seen = evidence_of(agent)
        if not self.draws_scopes:
            return self.most_probable(seen)
        uniforms = agent.randomness.random(agent.structure.m)
        return [
            self._drawn(posterior, uniform)
            for posterior, uniform in zip(self.scope_posteriors(seen), uniforms, strict=True)
        ]

    def most_probable(self, seen: ScopeStatistics) -> list[Scope]:
        """Return the most probable scope of every state variable under the counts `seen`; of equal
        ones the smallest."""
        return [
            posterior.scopes[int(posterior.weights.argmax())]
            for posterior in self.scope_posteriors(seen)
        ]

    @staticmethod
    def _drawn(posterior: ScopePosterior, uniform: float) -> Scope:
        sums = np.cumsum(posterior.weights)
        return posterior.scopes[int(np.searchsorted(sums, uniform * sums[-1], side="right"))]

    def learned_scopes(self, agent: Agent) -> dict[str, Any] | None:
        """Return the scopes that `agent` plans with, the probabilities of edges, and the number of
        times that the planner was prepared, by name; None if the scopes are known."""
        seen = agent.statistics
        if not isinstance(seen, ScopeStatistics):
            return None
        names, scopes = agent.structure.names, seen.structure.transition_scopes
        return {
            "scopes": {names[i]: [names[v] for v in scope] for i, scope in enumerate(scopes)},
            "edges": edge_probabilities(agent),
            "preparations": seen.preparations,
            "last_change": seen.changes[-1][0] if seen.changes else None,
        }

    def scope_monitor(self, agent: Agent) -> Monitor | None:
        if self.scopes != UNKNOWN:
            return super().scope_monitor(agent)
        return CandidateMonitor(self, evidence_of(agent))

    def edges_over_time(
        self, structure: Structure, log: NDArray[Any], times: Sequence[int]
    ) -> Floats:
        """Return the probability of every edge after so many steps: [times, m, variables].

        `log` has the steps of a run in `structure`, one per row: state, action, next state; `times`
        are increasing.
        """
        seen = self.statistics_for(structure)
        assert isinstance(seen, ScopeStatistics)
        edges = np.empty((len(times), structure.m, len(structure.sizes)))
        for frame, t in enumerate(times):
            seen.evidence.extend(log[seen.evidence.steps : t])
            for i, posterior in enumerate(self.scope_posteriors(seen)):
                edges[frame, i] = posterior.edges(len(structure.sizes))
        return edges

    # ---- the posterior --------------------------------------------------------------------------

    def scope_posteriors(self, seen: ScopeStatistics) -> list[ScopePosterior]:
        """Return the posterior over the candidates of every state variable, given `seen`."""
        scores, _ = seen.evidence.scores()
        posteriors = []
        for i, candidates in enumerate(self.candidates(seen)):
            if candidates.given:
                posteriors.append(ScopePosterior(candidates.scopes, np.ones(1)))
                continue
            logs = scores[candidates.places, i] + candidates.log_prior
            weights = exp(logs - logs.max())
            posteriors.append(ScopePosterior(candidates.scopes, weights / weights.sum()))
        return posteriors

    def candidates(self, seen: ScopeStatistics) -> list[Candidates]:
        """Return the candidate scopes of every state variable under the counts `seen`."""
        return seen.evidence.once("candidates", self, lambda: self._candidates(seen))

    def _candidates(self, seen: ScopeStatistics) -> list[Candidates]:
        hints = self.hints(seen.structure)
        candidates = []
        for i in range(seen.structure.m):
            places = np.zeros(0, dtype=np.int64)
            scopes: tuple[Scope, ...] = (hints.given.get(i, ()),)
            if i not in hints.given:
                places = self._places(seen, i, hints)
                scopes = tuple(seen.evidence.sets[z] for z in places.tolist())
            candidates.append(Candidates(places, scopes, log_prior(scopes), i in hints.given))
        return candidates

    def _places(self, seen: ScopeStatistics, i: int, hints: Hints) -> NDArray[np.int64]:
        """Return the places, among the counted sets, of the candidates of variable `i`."""
        s = seen.structure
        m, required, forbidden = s.m, hints.required[i], hints.forbidden[i]
        free = sum(v not in forbidden for v in range(m, len(s.sizes)))
        actions = min(self.action_parents, free)
        return np.array(
            [
                z
                for z, scope in enumerate(seen.evidence.sets)
                if required.issubset(scope)
                and not forbidden.intersection(scope)
                and sum(v < m for v in scope) <= self.parents
                and sum(v >= m for v in scope) == actions
            ],
            dtype=np.int64,
        )

    def hints(self, structure: Structure) -> Hints:
        """Return what the settings say about the scopes in `structure`.

        Raises InvalidParameter for unknown names and for hints that leave no candidate.
        """
        s = structure
        given = {}
        for name in _parts(self.given):
            i = _variable(name, s.state_names, "given", self.owner())
            given[i] = s.transition_scopes[i]
        required = self._edges("required", self.required, s)
        forbidden = self._edges("forbidden", self.forbidden, s)
        for i, name in enumerate(s.state_names):
            self._refuse_impossible(s, name, required[i], forbidden[i])
        return Hints(given, required, forbidden)

    def _edges(self, option: str, text: str | None, s: Structure) -> tuple[frozenset[int], ...]:
        parents: list[set[int]] = [set() for _ in range(s.m)]
        for part in _parts(text):
            if part == SELF:
                for i in range(s.m):
                    parents[i].add(i)
                continue
            parent, arrow, child = part.partition(">")
            if not arrow:
                raise InvalidParameter(
                    f"the '{option}' parameter of {self.owner()} must be edges parent>child "
                    f"joined by '+', or {SELF}; got {quoted(part)}"
                )
            i = _variable(child, s.state_names, option, self.owner())
            parents[i].add(_variable(parent, s.names, option, self.owner()))
        return tuple(map(frozenset, parents))

    def _refuse_impossible(
        self, s: Structure, name: str, required: frozenset[int], forbidden: frozenset[int]
    ) -> None:
        both = required & forbidden
        if both:
            raise InvalidParameter(
                f"{self.owner()}: the edge {s.names[min(both)]}>{name} is required and forbidden"
            )
        states = sum(v < s.m for v in required)
        for option, least, most in (
            ("parents", states, self.parents),
            ("action_parents", len(required) - states, self.action_parents),
        ):
            if least > most:
                raise InvalidParameter(
                    f"the '{option}' parameter of {self.owner()} must be at least {least}, the "
                    f"number of required ones of {quoted(name)}; got {most}"
                )

    def _first_scopes(self, structure: Structure) -> list[Scope]:
        """Return scopes of the largest size, for the choice of a planner before the first step."""
        s, hints = structure, self.hints(structure)
        actions = tuple(range(s.m, len(s.sizes)))[: self.action_parents]
        first = []
        for i in range(s.m):
            states = {(i - j) % s.m for j in range(min(self.parents, s.m))}
            first.append(hints.given.get(i, (*sorted(states), *actions)))
        return first


class FullSizeScopes(ScopeLearner):
    """A learner that knows the number of parents: all candidates have that size."""

    scopes = UNKNOWN

    def _places(self, seen: ScopeStatistics, i: int, hints: Hints) -> NDArray[np.int64]:
        places = super()._places(seen, i, hints)
        m = seen.structure.m
        sizes = np.array([sum(v < m for v in seen.evidence.sets[z]) for z in places])
        largest: NDArray[np.int64] = places[sizes == sizes.max()]
        return largest


class ScopePosterior(NamedTuple):
    """Probabilities of the candidate scopes of one state variable."""

    scopes: tuple[Scope, ...]
    weights: Floats
    """[candidates], summing to 1."""

    def edges(self, variables: int) -> Floats:
        """Return the probability of each variable to be a parent: [variables]."""
        edges = np.zeros(variables)
        for scope, weight in zip(self.scopes, self.weights.tolist(), strict=True):
            edges[list(scope)] += weight
        return np.minimum(edges, 1.0)


def edge_probabilities(agent: Agent) -> dict[str, dict[str, float]]:
    """Return how probable it is that each variable depends on each other, by name.

    Parameters
    ----------
    agent
        An agent whose learner has `scopes="unknown"`, with the steps so far.

    Returns
    -------
    dict[str, dict[str, float]]
        {state variable: {parent: probability}}, without parents of probability 0.

    Raises
    ------
    InvalidParameter
        If the scopes of the agent are known.
    """
    learner, seen = getattr(agent, "learner", None), getattr(agent, "statistics", None)
    if not isinstance(learner, ScopeLearner) or not isinstance(seen, ScopeStatistics):
        raise InvalidParameter(
            f"edge_probabilities takes an agent whose scopes are unknown, as with "
            f"scopes=unknown; got {quoted(agent)}"
        )
    names = agent.structure.names
    edges = [posterior.edges(len(names)) for posterior in learner.scope_posteriors(seen)]
    return {
        child: {name: float(p) for name, p in zip(names, parents, strict=True) if p > 0.0}
        for child, parents in zip(agent.structure.state_names, edges, strict=True)
    }


def log_prior(scopes: Sequence[Scope]) -> Floats:
    """Return the logarithm of a prior that is uniform over sizes, and over scopes of one size."""
    sizes = np.array([len(scope) for scope in scopes], dtype=np.int64)
    of_size = np.bincount(sizes)
    prior: Floats = -np.log(of_size[sizes] * np.count_nonzero(of_size))
    return prior


def evidence_of(agent: Agent) -> ScopeStatistics:
    """Return the statistics of an agent whose scopes are unknown."""
    assert isinstance(agent.statistics, ScopeStatistics)
    return agent.statistics


def _parts(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split("+")]


def _variable(name: str, names: Sequence[str], option: str, owner: str) -> int:
    if name.strip() not in names:
        known: Any = list(names)
        raise InvalidParameter(
            f"the '{option}' parameter of {owner} names {quoted(name.strip())}, which is none of "
            f"{', '.join(names)}{did_you_mean(name, known)}"
        )
    return list(names).index(name.strip())
