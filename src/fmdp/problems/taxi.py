"""Taxi, modified to run for ever (Dietterich 2000; Talebi, Jonsson and Maillard 2021).

A taxi on a grid of 5 x 5 cells with four stations, or of 3 x 3 with three, moves up, down, right or
left; a move succeeds with probability .8 unless there is a wall. The passenger waits at a station,
rides, or has arrived. Picking up where the passenger waits and putting down at a station always
work; a passenger who is put down at another station than the destination waits there. One step
after an arrival everything is drawn anew: the cell, the station of the passenger, the destination.
There is no effect otherwise.

An arrival pays 21/15, and every step 9/15 unless it is a pick-up or put-down in vain. That is 20
for an arrival, -1 for other steps and -9 more for those in vain, moved and divided by 15, as in the
public code of Talebi, Jonsson and Maillard. It has .3333, .3333, .3334 for one third, and draws the
first state.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter
from fmdp.model.factored import FactoredMDP
from fmdp.model.spaces import FloatArray
from fmdp.problems.family import Problem

UP, DOWN, FORWARD, BACK, PICK, PUT = range(6)
ACTIONS = ("up", "down", "right", "left", "pick up", "put down")
MOVES = 0.8
"""Probability that a move without a wall succeeds."""
UNIT = 15.0
"""The public code divides all rewards by this."""

Cell = tuple[int, int]


class Town(NamedTuple):
    """Stations, and the cells (x, y) with a wall on their right."""

    stations: tuple[Cell, ...]
    walls: frozenset[Cell]


TOWNS = {
    3: Town(((0, 2), (2, 0), (0, 0)), frozenset({(0, 0), (0, 2), (1, 0)})),
    5: Town(
        ((0, 4), (3, 0), (4, 4), (0, 0)),
        frozenset({(0, 0), (0, 1), (1, 3), (1, 4), (2, 0), (2, 1)}),
    ),
}


class _Tables:
    """The tables of one town, by assignments of their scopes."""

    def __init__(self, side: int) -> None:
        self.side, self.town = side, TOWNS[side]
        self.places = len(self.town.stations)
        self.riding, self.arrived = self.places, self.places + 1
        self.passengers = self.places + 2

    def _next_x(self, x: int, y: int, action: int) -> int:
        if action == FORWARD and x < self.side - 1 and (x, y) not in self.town.walls:
            return x + 1
        if action == BACK and x > 0 and (x - 1, y) not in self.town.walls:
            return x - 1
        return x

    def _next_y(self, y: int, action: int) -> int:
        steps = {UP: 1, DOWN: -1}.get(action, 0)
        return min(max(y + steps, 0), self.side - 1)

    def _moved(self, here: int, there: int) -> FloatArray:
        row = np.zeros(self.side)
        row[here] = 1.0 - MOVES
        row[there] += MOVES if there != here else 1.0 - row[here]
        return row

    def _uniform(self, size: int, over: int) -> FloatArray:
        row = np.zeros(size)
        row[:over] = 1.0 / over
        return row

    def x(self) -> FloatArray:
        """Return the next x by (x, y, passenger, action)."""
        table = np.empty((self.side, self.side, self.passengers, 6, self.side))
        for x, y, passenger, action in np.ndindex(table.shape[:-1]):
            table[x, y, passenger, action] = (
                self._uniform(self.side, self.side)
                if passenger == self.arrived
                else self._moved(x, self._next_x(x, y, action))
            )
        return table

    def y(self) -> FloatArray:
        """Return the next y by (y, passenger, action)."""
        table = np.empty((self.side, self.passengers, 6, self.side))
        for y, passenger, action in np.ndindex(table.shape[:-1]):
            table[y, passenger, action] = (
                self._uniform(self.side, self.side)
                if passenger == self.arrived
                else self._moved(y, self._next_y(y, action))
            )
        return table

    def passenger(self) -> FloatArray:
        """Return the next place of the passenger by (x, y, passenger, destination, action)."""
        shape = (self.side, self.side, self.passengers, self.places, 6, self.passengers)
        table = np.zeros(shape)
        for x, y, passenger, destination, action in np.ndindex(shape[:-1]):
            row = table[x, y, passenger, destination, action]
            if passenger == self.arrived:
                row[: self.places] = 1.0 / self.places
            elif action == PICK and not self.in_vain(x, y, passenger, action):
                row[self.riding] = 1.0
            elif action == PUT and not self.in_vain(x, y, passenger, action):
                station = self.town.stations.index((x, y))
                row[self.arrived if station == destination else station] = 1.0
            else:
                row[passenger] = 1.0
        return table

    def destination(self) -> FloatArray:
        """Return the next destination by (passenger, destination)."""
        table = np.zeros((self.passengers, self.places, self.places))
        table[:] = np.eye(self.places)
        table[self.arrived] = 1.0 / self.places
        return table

    def in_vain(self, x: int, y: int, passenger: int, action: int) -> bool:
        """Return whether this is a pick-up or put-down without effect, while one is possible."""
        if action not in (PICK, PUT) or passenger == self.arrived:
            return False
        if (x, y) not in self.town.stations:
            return True
        waits_here = passenger == self.town.stations.index((x, y))
        return not (waits_here if action == PICK else passenger == self.riding)

    def fine(self) -> FloatArray:
        """Return the reward by (x, y, passenger, action): 9/15 unless it is in vain."""
        shape = (self.side, self.side, self.passengers, 6)
        vain = [self.in_vain(*assignment) for assignment in itertools.product(*map(range, shape))]
        return np.where(np.reshape(vain, shape), 0.0, 9.0 / UNIT)


class Taxi(Problem):
    """A taxi that takes passengers to their destinations, again and again."""

    name = "taxi"
    summary = "a taxi takes passengers to their destinations, again and again"
    example = "taxi:3"

    size: int = setting(5, "cells of a side: 3 (three stations) or 5 (four)", low=3, high=5)

    def check(self) -> None:
        if self.size not in TOWNS:
            raise InvalidParameter(f"the size of {self.owner()} must be 3 or 5; got {self.size}")

    def build(self) -> FactoredMDP:
        tables = _Tables(self.size)
        arrival = np.zeros(tables.passengers)
        arrival[tables.arrived] = 21.0 / UNIT
        stations = tuple(f"station {k}" for k in range(tables.places))
        return FactoredMDP.from_factors(
            (self.size, self.size, tables.passengers, tables.places),
            (6,),
            [
                ((0, 1, 2, 4), tables.x()),
                ((1, 2, 4), tables.y()),
                ((0, 1, 2, 3, 4), tables.passenger()),
                ((2, 3), tables.destination()),
            ],
            [((0, 1, 2, 4), tables.fine()), ((2,), arrival)],
            reward_ranges=[(0.0, 9.0 / UNIT), (0.0, 21.0 / UNIT)],
            state_names=("x", "y", "passenger", "destination"),
            action_names=("action",),
            reward_names=("not in vain", "arrival"),
            state_values=(
                tuple(map(str, range(self.size))),
                tuple(map(str, range(self.size))),
                (*stations, "rides", "arrived"),
                stations,
            ),
            action_values=(ACTIONS,),
            initial_state=(0, 0, 0, 1),
            name=str(self),
        )
