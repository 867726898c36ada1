"""Models as plain tables, and generators of the kinds on which planners go wrong.

A recipe is what a user would write: sizes, (scope, table) pairs, ranges, a start. Everything that
is true of the model is computed from it, not from the object that fmdp makes of it. Every family
is seeded; every recipe can be put into another unit of reward (scale, shift).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

import fmdp

Floats = NDArray[np.float64]
Factor = tuple[tuple[int, ...], Floats]


@dataclass(frozen=True, eq=False)
class Recipe:
    """A factored MDP written out. Scopes are sorted, tables are [rows, values] and [rows]."""

    name: str
    family: str
    state_sizes: tuple[int, ...]
    action_sizes: tuple[int, ...]
    transitions: tuple[Factor, ...]
    rewards: tuple[Factor, ...]
    ranges: tuple[tuple[float, float], ...]
    start: tuple[int, ...]
    noise: str = "deterministic"
    """gaussian: of a fifth of the unit."""
    forbidden: tuple[tuple[tuple[int, ...], NDArray[np.bool_]], ...] = ()
    """What may not be done: sorted scopes, and a table [rows] each."""

    @property
    def n_states(self) -> int:
        return int(np.prod(self.state_sizes))

    @property
    def n_actions(self) -> int:
        return int(np.prod(self.action_sizes))

    @property
    def unit(self) -> float:
        """The largest range of a reward factor, as the documentation defines the unit."""
        widths = [hi - lo for lo, hi in self.ranges]
        sizes = [max(abs(lo), abs(hi)) for lo, hi in self.ranges]
        return max(widths) or max(sizes) or 1.0

    @property
    def reward_size(self) -> float:
        """The largest |reward| of a step."""
        return sum(max(abs(lo), abs(hi)) for lo, hi in self.ranges)

    def build(self) -> fmdp.FactoredMDP:
        return fmdp.FactoredMDP.from_factors(
            self.state_sizes,
            self.action_sizes,
            self.transitions,
            self.rewards,
            reward_ranges=self.ranges,
            initial_state=self.start,
            noise=fmdp.Noise(self.noise, 0.2 * self.unit * (self.noise == "gaussian")),
            name=self.name,
            constraints=[fmdp.Forbidden(scope, table) for scope, table in self.forbidden],
        )

    def allows(self, state: Sequence[int], action: Sequence[int]) -> bool:
        joint, sizes = (*state, *action), self.state_sizes + self.action_sizes
        for scope, table in self.forbidden:
            row = 0
            for v in scope:
                row = row * sizes[v] + joint[v]
            if table[row]:
                return False
        return True

    def in_unit(self, scale: float, shift: float = 0.0) -> Recipe:
        """The same model with rewards r * scale + shift * scale; a power of two loses nothing."""

        def moved(table: Floats) -> Floats:
            return table * scale + shift * scale

        if scale == 1.0 and shift == 0.0:
            return self
        more = f" + {shift:g}" if shift else ""
        return replace(
            self,
            name=f"{self.name} in units of {scale:g}{more}",
            rewards=tuple((scope, moved(table)) for scope, table in self.rewards),
            ranges=tuple(
                (lo * scale + shift * scale, hi * scale + shift * scale) for lo, hi in self.ranges
            ),
        )

    def snippet(self) -> str:
        """Python that makes the model, to paste."""

        def pairs(factors: Sequence[Factor]) -> str:
            return "[" + ", ".join(f"({scope}, {table.tolist()})" for scope, table in factors) + "]"

        rules = [f"fmdp.Forbidden({scope}, {table.tolist()})" for scope, table in self.forbidden]
        return (
            f"model = fmdp.FactoredMDP.from_factors(\n"
            f"    {self.state_sizes}, {self.action_sizes},\n"
            f"    {pairs(self.transitions)},\n"
            f"    {pairs(self.rewards)},\n"
            f"    reward_ranges={self.ranges}, initial_state={self.start},\n"
            f"    constraints=[{', '.join(rules)}],\n"
            f")"
        )


def flat(
    name: str,
    family: str,
    transitions: Floats,
    rewards: Floats,
    start: int = 0,
    ranges: tuple[float, float] | None = None,
) -> Recipe:
    """One state variable and one action variable: transitions [S, A, S], rewards [S, A]."""
    states, actions, _ = transitions.shape
    span = (min(0.0, float(rewards.min())), max(0.0, float(rewards.max())))
    return Recipe(
        name,
        family,
        (states,),
        (actions,),
        (((0, 1), transitions.reshape(-1, states)),),
        (((0, 1), rewards.reshape(-1)),),
        (ranges or span,),
        (start,),
    )


def corridor(length: int, left: float, right: float, start: int = 0) -> Recipe:
    """Step left or right, surely; staying at an end pays."""
    moves = np.zeros((length, 2, length))
    pays = np.zeros((length, 2))
    for s in range(length):
        moves[s, 0, max(s - 1, 0)] = 1.0
        moves[s, 1, min(s + 1, length - 1)] = 1.0
    pays[0, 0], pays[-1, 1] = left, right
    return flat(
        f"corridor {length} {left:g} {right:g} from {start}", "corridor", moves, pays, start
    )


def riverswim(length: int, left: float, start: int = 0) -> Recipe:
    """The RiverSwim of the documentation with another length and another small reward."""
    moves = np.zeros((length, 2, length))
    pays = np.zeros((length, 2))
    for s in range(length):
        moves[s, 0, max(s - 1, 0)] = 1.0
        if s == 0:
            moves[s, 1, :2] = 0.4, 0.6
        elif s == length - 1:
            moves[s, 1, s - 1 :] = 0.4, 0.6
        else:
            moves[s, 1, s - 1 : s + 2] = 0.05, 0.6, 0.35
    pays[0, 0], pays[-1, 1] = left, 1.0
    return flat(f"riverswim {length} {left:g} from {start}", "riverswim", moves, pays, start)


def islands(leak: float, kind: str, seed: int) -> Recipe:
    """Two islands of two states; between them only a leak, so that everything is slow.

    chosen: one action tries to leave, the other stays. forced: every action leaks, the gain is a
    mixture of the islands. oneway: the worse island leaks into the better one and never back.
    """
    draw = np.random.default_rng(seed)
    moves = np.zeros((4, 2, 4))
    for s in range(4):
        home = 2 * (s // 2)
        away = 2 - home
        for a in range(2):
            inside = draw.dirichlet((1.0, 1.0))
            rate = leak if kind != "chosen" or a == 1 else 0.0
            if kind == "oneway" and home == 0:
                rate = 0.0
            if kind == "forced" and home == 0:
                rate *= 0.5
            moves[s, a, home : home + 2] = inside * (1.0 - rate)
            moves[s, a, away] += rate
    pays = draw.uniform(0.0, 1.0, (4, 2))
    pays[:2] = 0.5 * pays[:2] + 0.5
    return flat(f"islands {kind} {leak:g} seed {seed}", "leak", moves, pays, 3)


def leaking_class(leak: float, seed: int) -> Recipe:
    """A class variable that flips with a leak beside a random variable: slow and factored."""
    draw = np.random.default_rng(seed)
    flips = np.zeros((2, 2, 2))  # class, action -> class
    for c, a in itertools.product(range(2), range(2)):
        rate = leak if a == 1 else leak * 0.25
        flips[c, a, c], flips[c, a, 1 - c] = 1.0 - rate, rate
    other = draw.dirichlet((1.0, 1.0, 1.0), size=(2, 3, 2))
    pays = draw.uniform(0.0, 1.0, (2, 3))
    return Recipe(
        f"leaking class {leak:g} seed {seed}",
        "leak",
        (2, 3),
        (2,),
        (((0, 2), flips.reshape(-1, 2)), ((0, 1, 2), other.reshape(-1, 3))),
        (((0, 1), pays.reshape(-1)), ((2,), np.array([0.05, 0.0]))),
        ((0.0, 1.0), (0.0, 0.1)),
        (0, 0),
    )


def rooms(gains: Sequence[float], seed: int, chooser: bool) -> Recipe:
    """Closed rooms of two states, one for each gain; a hall chooses one, where there is a hall.

    Both states of a room pay its gain, so that equal gains are equal to the last bit.
    """
    draw = np.random.default_rng(seed)
    n = len(gains)
    states = 2 * n + chooser
    moves = np.zeros((states, 2, states))
    pays = np.zeros((states, 2))
    for room, gain in enumerate(gains):
        for s in (2 * room, 2 * room + 1):
            for a in range(2):
                moves[s, a, 2 * room : 2 * room + 2] = draw.dirichlet((1.0, 1.0))
            pays[s] = gain
    if chooser:
        moves[-1, 0, 0] = 1.0
        moves[-1, 1, [2 * room for room in range(n)]] = 1.0 / n
    kind = "one gain" if len(set(gains)) == 1 else "multichain"
    ranges = (min(0.0, *gains), max(1.0, *gains))
    name = f"rooms {' '.join(f'{gain:g}' for gain in gains)}{' and a hall' * chooser} seed {seed}"
    return flat(name, kind, moves, pays, states - 1, ranges)


def class_beside(seed: int, equal: bool) -> Recipe:
    """A variable that never changes beside one that does: multichain in factors.

    equal: the class does not enter the reward, and the gain is one number all the same.
    """
    draw = np.random.default_rng(seed)
    stays = np.eye(2)
    moves = draw.dirichlet((1.0, 1.0), size=(2, 2))
    if not equal:
        pays = draw.uniform(0.0, 1.0, (2, 2)).reshape(-1)
        reward: Factor = ((0, 1), pays)
    else:
        reward = ((1,), draw.uniform(0.0, 1.0, 2))
    return Recipe(
        f"class beside, {'one gain' if equal else 'two gains'}, seed {seed}",
        "one gain" if equal else "multichain",
        (2, 2),
        (2,),
        (((0,), stays), ((1, 2), moves.reshape(-1, 2))),
        (reward,),
        ((0.0, 1.0),),
        (1, 0),
    )


def circles(lengths: Sequence[int], pays_twice: bool = False) -> Recipe:
    """A product of circles, back or forward surely: periodic, and of infinite diameter where two
    lengths are even. Paid in 0."""
    m = len(lengths)
    transitions: list[Factor] = []
    rewards: list[Factor] = []
    for i, length in enumerate(lengths):
        table = np.zeros((length, 2, length))
        for s in range(length):
            table[s, 0, (s - 1) % length] = 1.0
            table[s, 1, (s + 1) % length] = 1.0
        transitions.append(((i, m + i), table.reshape(-1, length)))
        means = np.zeros(length)
        means[0] = 1.0
        if pays_twice:
            means[length // 2] = 0.75
        rewards.append(((i,), means))
    name = f"circles {' '.join(map(str, lengths))}{' paid twice' * pays_twice}"
    sizes = tuple(lengths)
    return Recipe(
        name,
        "periodic",
        sizes,
        (2,) * m,
        tuple(transitions),
        tuple(rewards),
        ((0.0, 1.0),) * m,
        (1,) * m,
    )


def wheel(length: int, seed: int) -> Recipe:
    """One cycle with two speeds of pay: every policy has the period of the cycle."""
    draw = np.random.default_rng(seed)
    moves = np.zeros((length, 2, length))
    for s in range(length):
        moves[s, :, (s + 1) % length] = 1.0
    pays = draw.uniform(0.0, 1.0, (length, 2))
    return flat(f"wheel {length} seed {seed}", "periodic", moves, pays)


def random_factored(seed: int, rows: str = "dense", pay: str = "uniform") -> Recipe:
    """1 to 4 variables of 2 or 3 values, 1 or 2 action variables, random scopes.

    rows: dense (all positive), sparse (zeros among them), sure (deterministic).
    pay: uniform, coarse (many ties), zero, constant, negative.
    """
    draw = np.random.default_rng((seed, len(rows), len(pay)))
    m, n_action = int(draw.integers(1, 5)), int(draw.integers(1, 3))
    state_sizes = tuple(int(size) for size in draw.integers(2, 4, m))
    action_sizes = tuple(
        int(size) for size in draw.integers(2, 4 if n_action == 1 else 3, n_action)
    )
    sizes = state_sizes + action_sizes

    def scope(must: Sequence[int]) -> tuple[int, ...]:
        extra = draw.choice(len(sizes), size=int(draw.integers(1, 3)), replace=False)
        return tuple(sorted({*must, *(int(v) for v in extra)}))

    transitions: list[Factor] = []
    for i, size in enumerate(state_sizes):
        own = scope((i, m + int(draw.integers(n_action))))
        n_rows = int(np.prod([sizes[v] for v in own]))
        table = draw.dirichlet(np.ones(size), size=n_rows)
        if rows == "sparse":
            keep = draw.random((n_rows, size)) < 0.6
            keep[np.arange(n_rows), draw.integers(size, size=n_rows)] = True
            table = table * keep
            table /= table.sum(axis=1, keepdims=True)
        elif rows == "sure":
            table = np.eye(size)[draw.integers(size, size=n_rows)]
        transitions.append((own, table))
    rewards: list[Factor] = []
    ranges: list[tuple[float, float]] = []
    for _ in range(int(draw.integers(1, 4))):
        own = scope(())
        n_rows = int(np.prod([sizes[v] for v in own]))
        means = draw.uniform(0.0, 1.0, n_rows)
        span = (0.0, 1.0)
        if pay == "coarse":
            means = draw.integers(0, 3, n_rows) / 2.0
        elif pay == "zero":
            means = np.zeros(n_rows)
        elif pay == "constant":
            means, span = np.full(n_rows, 0.7), (0.7, 0.7)
        elif pay == "negative":
            means, span = -means, (-1.0, 0.0)
        rewards.append((own, means))
        ranges.append(span)
    start = tuple(int(draw.integers(size)) for size in state_sizes)
    family = {"zero": "no reward", "constant": "constant", "negative": "negative"}.get(
        pay, f"random {rows}"
    )
    return Recipe(
        f"random {rows} {pay} seed {seed}",
        family,
        state_sizes,
        action_sizes,
        tuple(transitions),
        tuple(rewards),
        tuple(ranges),
        start,
    )


def constrained(seed: int, rows: str = "dense") -> Recipe:
    """A random model in which about half of what could be done may not: by a state variable and the
    actions, and by the actions alone."""
    free = random_factored(seed, rows)
    draw = np.random.default_rng((seed, 7))
    m, sizes = len(free.state_sizes), free.state_sizes + free.action_sizes
    acting = tuple(range(m, len(sizes)))
    looked_at = int(draw.integers(m))
    by_state = draw.random((sizes[looked_at], free.n_actions)) < 0.5
    by_action = draw.random(free.n_actions) < 0.3
    kept = draw.integers(free.n_actions, size=sizes[looked_at])
    by_state[np.arange(len(kept)), kept] = False
    by_action[kept] = False
    return replace(
        free,
        name=f"constrained {rows} seed {seed}",
        family="constrained",
        forbidden=(((looked_at, *acting), by_state.reshape(-1)), (acting, by_action)),
    )


LEAKS = tuple(10.0**-k for k in range(3, 13))


def base(short: bool) -> list[Recipe]:
    """Every family, each in its own unit; the short form has a few of each."""
    few: Callable[[int, int], int] = lambda small, large: small if short else large  # noqa: E731
    found = [corridor(4, 0.99, 1.0), riverswim(6, 0.005), riverswim(10, 0.42)]
    found += [circles((4, 4)), circles((4,)), wheel(3, 0)]
    if not short:
        found += [corridor(4, 0.99, 1.0, start=3), corridor(4, 1.0, 1.0), corridor(12, 0.9, 1.0)]
        found += [corridor(20, 0.999, 1.0), corridor(30, 0.5, 0.51), corridor(3, -1.0, -0.5)]
        found += [riverswim(10, 0.42, start=9), riverswim(12, 0.3), riverswim(8, 0.4286)]
        found += [circles((3,)), circles((2, 4)), circles((3, 4)), circles((4, 4), True)]
        found += [circles((6,), True), circles((5, 3)), *(wheel(n, n) for n in (2, 4, 7))]
    leaks = LEAKS[::4] if short else LEAKS
    for number, leak in enumerate(leaks):
        kinds = ("chosen", "forced", "oneway")
        for kind in kinds if not short else (kinds[number % 3],):
            found.append(islands(leak, kind, number))
        if not short or number == 1:
            found.append(leaking_class(leak, number))
    found += [rooms((0.2, 0.7), 0, False), rooms((0.5, 0.5), 1, False), class_beside(0, False)]
    if not short:
        found += [rooms((0.2, 0.7), 2, True), rooms((0.7, 0.2), 3, True)]
        found += [rooms((0.1, 0.2, 0.3), 4, True), rooms((0.5, 0.5000001), 5, False)]
        found += [rooms((0.5, 0.5), 6, True), rooms((0.3, 0.3, 0.3), 7, True)]
        found += [class_beside(seed, equal) for seed in range(1, 4) for equal in (False, True)]
    found += [random_factored(seed) for seed in range(few(3, 24))]
    found += [random_factored(seed, "sparse") for seed in range(few(2, 24))]
    found += [random_factored(seed, "sparse", "coarse") for seed in range(few(1, 12))]
    found += [random_factored(seed, "sure") for seed in range(few(2, 12))]
    for rows in ("dense", "sparse", "sure"):
        found += [constrained(seed, rows) for seed in range(few(2, 8))]
    for pay in ("zero", "constant", "negative"):
        found += [random_factored(seed, "dense", pay) for seed in range(few(1, 3))]
        found += [random_factored(seed, "sparse", pay) for seed in range(few(0, 3))]
    return found


UNITS = (1e-9, 1e-3, 1e3, 1e8)


def units_of(recipe: Recipe, short: bool, turn: int) -> Iterator[Recipe]:
    """The recipe in its own unit and in others; which, in the short form, goes by turns."""
    yield recipe
    other = [recipe.in_unit(scale) for scale in UNITS]
    other += [recipe.in_unit(1.0, 100.0), recipe.in_unit(1.0, -3.0), recipe.in_unit(1e-3, 1e4)]
    if short:
        yield other[turn % len(other)]
    else:
        yield from other
