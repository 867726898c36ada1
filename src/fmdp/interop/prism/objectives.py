"""Which reward structure of a PRISM file is optimised, and which ones are only measured.

Reward structures that are not chosen, and labels (1 where they hold, else 0), become quantities:
their long-run averages can be limited and drawn as fronts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fmdp.interop.choosing import check_choice, free_name, minimising, negative_name
from fmdp.interop.prism.program import Program, Rewards
from fmdp.interop.prism.tokens import refuse
from fmdp.model.quantities import TOTAL


@dataclass(frozen=True)
class Objective:
    """The rewards of a model that is read from a file, and the quantities that it measures."""

    name: str
    """Base of the names of reward factors."""
    structure: Rewards | None
    """The reward structure that is optimised; None if there is none."""
    minimised: str | None
    """The structure or label that is minimised; it is measured as well."""
    measured: tuple[tuple[str, Rewards], ...]
    """The others, by names that are different from each other and from reward factors."""

    @property
    def remarks(self) -> list[str]:
        """Remarks on the gain: its sign, or that it is 0 because there are no rewards."""
        if self.structure is None:
            return [
                "no reward structure: all rewards are 0 (rewards=NAME maximises that of a label)"
            ]
        return [] if self.minimised is None else [minimising(self.minimised)]


def objective_of(
    program: Program, rewards: str | None, minimise: str | None, max_states: int | None
) -> Objective:
    """Return the objective of the arguments of `prism.loads`, which are checked."""
    structures = dict(zip(_names(program), (*program.rewards, *program.labels), strict=True))
    check_choice(rewards, minimise, structures, max_states)
    chosen = rewards if minimise is None else minimise
    if chosen is None:
        chosen = _only(program, list(structures))
    main = None if chosen is None else structures[chosen]
    name = TOTAL if chosen is None or main is None or not main.name else chosen
    if minimise is not None:
        name = negative_name(minimise)
    taken = {TOTAL, name}
    measured = []
    for key, structure in structures.items():
        if structure is main and minimise is None:
            continue
        noted = structure.notes[0].content.get("name", key) if structure.is_quantity else key
        measured.append((free_name(noted, taken), structure))
    return Objective(name, main, minimise, tuple(measured))


def _names(program: Program) -> list[str]:
    """Return a name for each reward structure and label, all different."""
    taken: set[str] = set()
    names = [
        free_name(structure.name or f"rewards_{number}", taken)
        for number, structure in enumerate(program.rewards, start=1)
    ]
    return names + [
        free_name(f"label_{label.name}" if label.name in taken else label.name, taken)
        for label in program.labels
    ]


def _only(program: Program, names: Sequence[str]) -> str | None:
    """Return the only reward structure that is not a quantity; refuse if there are several."""
    paying = [
        (name, structure)
        for name, structure in zip(names, program.rewards, strict=False)
        if not structure.is_quantity
    ]
    if len(paying) > 1:
        listed = ", ".join(repr(name) for name, _ in paying)
        refuse(
            paying[1][1].line,
            f"several structures of rewards, {listed}: choose one, as in "
            f"MODEL.prism,rewards={paying[0][0]}",
        )
    return paying[0][0] if paying else None
