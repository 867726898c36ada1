"""Multi-agent SysAdmin: every machine has a status, a load and its own action variable.

Status: good, fail, dead. Load: idle, loaded, done. Action: leave or reboot. A reboot makes the
machine good and idle. Otherwise, with b the mean over its neighbours of .2 (fail) or .4 (dead):
good -> fail with .1 + b, fail -> dead with .3 + b, dead stays; and, by its current status, idle ->
loaded with .4 unless dead, loaded -> done with .4 (good) or .3 (fail), loaded -> idle if dead, done
-> idle. A machine that is loaded and left alone pays .4 (good) or .3 (fail).

Tables: 3^(1 + neighbours) 2 rows for a status, 18 for a load and for a reward. There are 2^n joint
actions, so this problem is for planners that do not enumerate them. `crew` limits the reboots per
step; without neighbours (topology=none) it is all that machines share.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fmdp._base.parameters import REQUIRED
from fmdp._base.settings import setting
from fmdp.model.alike import Alike
from fmdp.model.constraints import AtMost
from fmdp.model.factored import FactoredMDP
from fmdp.model.spaces import FloatArray, IndexArray, all_assignments
from fmdp.model.structure import Structure
from fmdp.problems.family import (
    Problem,
    alike_setting,
    crew_setting,
    refuse_if_too_large,
    reward_divisor,
    reward_setting,
    unshared,
)
from fmdp.problems.topologies import Parents, bi_ring, circle, mesh, separate, star

STATUSES = ("good", "fail", "dead")
LOADS = ("idle", "loaded", "done")
ACTIONS = ("leave", "reboot")
GOOD, FAIL, DEAD = range(3)
IDLE, LOADED, DONE = range(3)
LEAVE, REBOOT = range(2)

PAY = np.array([0.4, 0.3, 0.0])  # reward of a loaded machine, by status
BURDEN = np.array([0.0, 0.2, 0.4])  # burden by a neighbour, by its status
FINISH = np.array([0.4, 0.3, 0.0])  # P(loaded -> done), by status

TOPOLOGIES: dict[str, Callable[[int], Parents]] = {
    "circle": circle,
    "bi-ring": bi_ring,
    "star": star,
    "grid": mesh,
    "none": separate,
}


def _status_table(position: int, scope_size: int) -> FloatArray:
    """Return [(statuses of the scope, action), next status]; `own` is the machine's position in the
    scope."""
    statuses = all_assignments((3,) * scope_size)  # [V, machines of the scope]
    burdens = BURDEN[np.delete(statuses, position, axis=1)]  # [V, neighbours]
    b = burdens.mean(axis=1) if scope_size > 1 else np.zeros(len(statuses))
    self_status = statuses[:, position]
    worse = np.select([self_status == GOOD, self_status == FAIL], [0.1 + b, 0.3 + b], 0.0)
    rows = np.arange(len(statuses))
    table = np.zeros((len(statuses), 2, 3))
    table[rows, LEAVE, self_status] = 1.0 - worse
    table[rows, LEAVE, np.minimum(self_status + 1, DEAD)] += worse
    table[:, REBOOT, GOOD] = 1.0
    return table.reshape(-1, 3)


def _load_table() -> FloatArray:
    """Return [(status, load, action), next load]."""
    table = np.zeros((3, 3, 2, 3))
    arrive = np.array([0.4, 0.4, 0.0])
    table[:, IDLE, LEAVE, LOADED] = arrive
    table[:, IDLE, LEAVE, IDLE] = 1.0 - arrive
    table[:, LOADED, LEAVE, DONE] = FINISH
    table[:, LOADED, LEAVE, LOADED] = 1.0 - FINISH
    table[DEAD, LOADED, LEAVE] = np.eye(3)[IDLE]
    table[:, DONE, LEAVE, IDLE] = 1.0
    table[:, :, REBOOT, IDLE] = 1.0
    return table.reshape(-1, 3)


# Class numbers of the rows that a rule does not distinguish; 0 for a reboot. Machines with
# different numbers of neighbours have different mean burdens.


def _status_classes(position: int, scope_size: int) -> IndexArray:
    statuses = all_assignments((3,) * scope_size)
    self_status = statuses[:, position]
    burden = statuses.sum(axis=1) - self_status  # in fifths
    neighbours = scope_size - 1
    first = 2 + 2 * neighbours * neighbours  # each smaller number k of neighbours takes 2 (2 k + 1)
    left = np.where(self_status == DEAD, 1, first + 2 * burden + self_status)
    return np.stack([left, np.zeros_like(left)], axis=1).reshape(-1)


def _load_classes() -> IndexArray:
    left = np.empty((3, 3), dtype=np.int64)  # [status, load]
    left[:, IDLE] = (1, 1, 2)
    left[:, LOADED] = (3, 4, 5)
    left[:, DONE] = 6
    return np.stack([left, np.zeros_like(left)], axis=2).reshape(-1)


def _pay_classes() -> IndexArray:
    left = np.zeros((3, 3), dtype=np.int64)
    left[:, LOADED] = (1, 2, 3)
    return np.stack([left, np.zeros_like(left)], axis=2).reshape(-1)


class Machines(Problem):
    """Multi-agent SysAdmin: a status, a load and an action for each machine."""

    summary = "multi-agent SysAdmin: a status, a load and an action for each machine"
    example = "machines:3,topology=star"

    size: int = setting(REQUIRED, "number of machines", low=1)
    topology: str = setting("circle", "who the neighbours are", choices=tuple(TOPOLOGIES))
    reward: str = reward_setting()
    alike: str = alike_setting("rows", "machines")
    crew: int | None = crew_setting()

    def build(self) -> FactoredMDP:
        n = self.size
        refuse_if_too_large(str(self), n * (6 + 54 + 18), 3 * n)
        neighbours = TOPOLOGIES[self.topology](n)
        refuse_if_too_large(
            str(self), sum(2 * 3 ** (2 + len(others)) + 54 + 18 for others in neighbours), 3 * n
        )
        divisor = reward_divisor(self.reward, n)
        load_table = _load_table()
        pay = np.zeros((3, 3, 2))
        pay[:, LOADED, LEAVE] = PAY / divisor

        scopes: list[tuple[int, ...]] = []
        transitions: list[FloatArray] = []
        for i, others in enumerate(neighbours):
            machines = sorted((i, *others))
            scopes += [(*(2 * j for j in machines), 2 * n + i), (2 * i, 2 * i + 1, 2 * n + i)]
            transitions += [_status_table(machines.index(i), len(machines)), load_table]

        cap: tuple[AtMost, ...] = ()
        if self.crew is not None and self.crew < n:
            cap = (AtMost(tuple(range(2 * n, 3 * n)), self.crew, name="crew"),)
        structure = Structure(
            state_sizes=(3,) * (2 * n),
            action_sizes=(2,) * n,
            transition_scopes=tuple(scopes),
            reward_scopes=tuple((2 * i, 2 * i + 1, 2 * n + i) for i in range(n)),
            reward_ranges=((0.0, float(PAY.max()) / divisor),) * n,
            state_names=tuple(f"{what}_{i}" for i in range(n) for what in ("status", "load")),
            action_names=tuple(f"action_{i}" for i in range(n)),
            reward_names=tuple(f"reward_{i}" for i in range(n)),
            state_values=(STATUSES, LOADS) * n,
            action_values=(ACTIONS,) * n,
            groups=tuple((2 * i, 2 * i + 1) for i in range(n)),
            alike=self._alike(neighbours),
            constraints=cap,
        )
        return FactoredMDP(
            structure,
            transitions=transitions,
            rewards=[pay.reshape(-1)] * n,
            initial_state=(GOOD, IDLE) * n,
            name=str(self),
        )

    def _alike(self, neighbours: Parents) -> Alike | None:
        if self.alike == "none":
            return None
        transitions: list[IndexArray] = []
        for i, others in enumerate(neighbours):
            status = _status_classes(sorted((i, *others)).index(i), 1 + len(others))
            # Odd numbers for statuses, even ones for loads: both have three values.
            transitions += [2 * status + 1, 2 * _load_classes()]
        rewards = [_pay_classes() for _ in neighbours]
        if self.alike == "rows":
            transitions, rewards = unshared(transitions), unshared(rewards)
        return Alike(tuple(transitions), tuple(rewards))
