"""What was compared, how often, how often it disagreed, and by how much at worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from referee.recipes import Recipe


@dataclass(frozen=True)
class Disagreement:
    claim: str
    recipe: Recipe
    deviation: float
    detail: str

    def __str__(self) -> str:
        return f"{self.claim}: {self.recipe.name}: {self.detail}"


@dataclass
class Tally:
    compared: int = 0
    disagreed: int = 0
    worst: float = 0.0
    """In the unit of the rewards of the model; infinite where it is not a matter of degree."""


@dataclass
class Ledger:
    tallies: dict[str, Tally] = field(default_factory=dict)
    disagreements: list[Disagreement] = field(default_factory=list)

    def judge(
        self, claim: str, recipe: Recipe, holds: bool, deviation: float = 0.0, detail: str = ""
    ) -> None:
        """One comparison. `deviation` is by how much the printed number is on the wrong side."""
        tally = self.tallies.setdefault(claim, Tally())
        tally.compared += 1
        if not holds:
            tally.disagreed += 1
            tally.worst = max(tally.worst, deviation)
            self.disagreements.append(Disagreement(claim, recipe, deviation, detail))

    def add(self, other: Ledger) -> None:
        """Enter the comparisons of another ledger after those of this one."""
        for claim, theirs in other.tallies.items():
            tally = self.tallies.setdefault(claim, Tally())
            tally.compared += theirs.compared
            tally.disagreed += theirs.disagreed
            tally.worst = max(tally.worst, theirs.worst)
        self.disagreements += other.disagreements

    @property
    def compared(self) -> int:
        return sum(tally.compared for tally in self.tallies.values())

    @property
    def claims_broken(self) -> set[str]:
        return {found.claim for found in self.disagreements}

    def table(self) -> str:
        """The closing table, one line a claim."""
        rows = [("what was compared", "times", "disagreed", "worst, in reward units")]
        kinds = list(dict.fromkeys(claim.partition(":")[0] for claim in self.tallies))
        order = sorted(self.tallies, key=lambda claim: kinds.index(claim.partition(":")[0]))
        for claim, tally in ((claim, self.tallies[claim]) for claim in order):
            worst = "" if not tally.disagreed else f"{tally.worst:.3g}"
            rows.append((claim, f"{tally.compared:,}", f"{tally.disagreed:,}", worst))
        rows.append(("all", f"{self.compared:,}", f"{len(self.disagreements):,}", ""))
        return lines(rows)

    def smallest(self, claim: str, most: int = 3) -> list[Disagreement]:
        """The disagreements on the smallest models, one a base model."""
        found = [item for item in self.disagreements if item.claim == claim]
        found.sort(key=lambda item: item.recipe.n_states * item.recipe.n_actions)
        kept: dict[str, Disagreement] = {}
        for item in found:
            kept.setdefault(item.recipe.name.split(" in units of ")[0], item)
        return list(kept.values())[:most]


def lines(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    text = []
    for number, row in enumerate(rows):
        first = row[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        text.append("  ".join((first, *rest)).rstrip())
        if number in (0, len(rows) - 2):
            text.append("-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(text)
