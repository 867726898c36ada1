"""An epidemic on a graph: who is infected infects neighbours, and one person a step is treated.

Every person is healthy or infected (a stochastic SIS model). A healthy person with k infected
neighbours stays healthy with probability (1 - `spark`) (1 - `infection`)^k, an infected one
recovers with probability `recovery`. The action treats one person, or nobody: an infected person
who is treated recovers with probability `cure`, a healthy one is protected, that is, stays healthy.
Every healthy person pays 1 per step, and a treatment costs `cost`. Everybody is healthy at first.

One person alone who is never treated is healthy for a share recovery / (recovery + spark) of the
time. Tables: 2^(1 + neighbours) (n + 1) rows per person.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fmdp._base.parameters import REQUIRED
from fmdp._base.settings import setting
from fmdp.model.factored import FactoredMDP
from fmdp.model.spaces import FloatArray, all_assignments
from fmdp.model.structure import Structure
from fmdp.problems.family import Problem, refuse_if_too_large, reward_divisor, reward_setting
from fmdp.problems.topologies import Parents, bi_ring, mesh, network

HEALTHY, INFECTED = range(2)


def _star(n: int) -> Parents:
    """Return the neighbours of a star: everybody knows person 0."""
    return network(n, tuple(pair for i in range(1, n) for pair in ((0, i), (i, 0))))


def _complete(n: int) -> Parents:
    return tuple(tuple(j for j in range(n) if j != i) for i in range(n))


GRAPHS: dict[str, Callable[[int], Parents]] = {
    "ring": bi_ring,
    "grid": mesh,
    "star": _star,
    "complete": _complete,
}


class Epidemic(Problem):
    """An epidemic on a graph; one person per step can be treated."""

    name = "epidemic"
    summary = "epidemic on a graph: one person per step can be treated"
    example = "epidemic:4"

    size: int = setting(REQUIRED, "number of people", low=1)
    graph: str = setting("ring", "who is whose neighbour", choices=tuple(GRAPHS))
    infection: float = setting(
        0.3, "probability that an infected neighbour infects", low=0.0, high=1.0
    )
    spark: float = setting(0.02, "probability of an infection from outside", low=0.0, high=1.0)
    recovery: float = setting(0.1, "probability of recovery without treatment", low=0.0, high=1.0)
    cure: float = setting(0.8, "probability of recovery with treatment", low=0.0, high=1.0)
    cost: float = setting(0.2, "cost of a treatment", low=0.0, high=1e6)
    reward: str = reward_setting()

    def build(self) -> FactoredMDP:
        n = self.size
        refuse_if_too_large(str(self), 2 * n * (n + 1), 2 * n)
        neighbours = GRAPHS[self.graph](n)
        rows = sum(2 ** (1 + len(others)) for others in neighbours) * (n + 1)
        refuse_if_too_large(str(self), 2 * rows, 2 * n)
        divisor = reward_divisor(self.reward, n)
        people = [tuple(sorted((i, *others))) for i, others in enumerate(neighbours)]
        price = np.full(n + 1, -self.cost / divisor)
        price[n] = 0.0
        structure = Structure(
            state_sizes=(2,) * n,
            action_sizes=(n + 1,),
            transition_scopes=tuple((*scope, n) for scope in people),
            reward_scopes=(*((i,) for i in range(n)), (n,)),
            reward_ranges=(*((0.0, 1.0 / divisor),) * n, (-self.cost / divisor, 0.0)),
            state_names=tuple(f"person_{i}" for i in range(n)),
            action_names=("treat",),
            reward_names=(*(f"healthy_{i}" for i in range(n)), "cost"),
            state_values=(("healthy", "infected"),) * n,
            action_values=((*map(str, range(n)), "nobody"),),
        )
        return FactoredMDP(
            structure,
            transitions=[self._table(i, scope) for i, scope in enumerate(people)],
            rewards=[*[np.array([1.0, 0.0]) / divisor] * n, price],
            initial_state=(HEALTHY,) * n,
            name=str(self),
        )

    def _table(self, person: int, scope: tuple[int, ...]) -> FloatArray:
        """Return the rows of a person by the people of the scope and the action."""
        people = all_assignments((2,) * len(scope))
        status = people[:, scope.index(person)]
        contacts = people.sum(axis=1) - status
        safe = (1.0 - self.spark) * (1.0 - self.infection) ** contacts
        healthy = np.where(status == INFECTED, self.recovery, safe)
        by_action = np.repeat(healthy[:, None], self.size + 1, axis=1)
        by_action[:, person] = np.where(status == INFECTED, self.cure, 1.0)
        flat = by_action.reshape(-1)
        return np.stack([flat, 1.0 - flat], axis=1)
