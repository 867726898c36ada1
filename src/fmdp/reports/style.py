"""Colours, dashes and markers of learners, the same in every figure and on the page.

Colours are those of Okabe & Ito (2008), which are distinguishable with any colour vision; dashes
and markers differ as well, for grey printers. Where several learners run in a few variants each,
the colour shows the learner and the dash the variant; otherwise every label has its own colour and
dash. The upper and lower ends of every plot are black and grey.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fmdp.experiments.cells import Cell

# (on white, on black): the second is lighter, of the same hue.
COLOURS = (
    ("#0072B2", "#56A9DC"),  # blue
    ("#D55E00", "#F08A4B"),  # vermillion
    ("#009E73", "#35C79B"),  # bluish green
    ("#CC79A7", "#E3A3C6"),  # reddish purple
    ("#E69F00", "#F5C04A"),  # orange
    ("#56B4E9", "#A9DBF8"),  # sky blue
)
BLACK = ("#000000", "#F0F0F0")
GREY = ("#767676", "#9E9E9E")
ENDS = {"upper": BLACK, "lower": GREY}
"""Colours of the two ends, by role."""

# Lengths on and off, in line widths.
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (6, 2, 1.5, 2), (2, 1.5), (9, 2.5))
DOTS: tuple[float, ...] = (1, 3)  # for the ends only
# Matplotlib's names; the page draws the same shapes.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


@dataclass(frozen=True)
class Style:
    """Colours, dash and marker of a label."""

    colour: str
    colour_on_dark: str
    dash: tuple[float, ...]
    marker: str


def styles(cells: Iterable[Cell], among: Iterable[Cell] = ()) -> dict[str, Style]:
    """Return the style of each label.

    `among` are all cells of the report, so that a learner keeps its colour in a figure that draws
    only some of them.
    """
    cells = list(cells)
    learner_of: dict[str, str] = {}
    role_of: dict[str, str] = {}
    for cell in cells:
        learner_of.setdefault(cell.label, cell.learner)
        role_of.setdefault(cell.label, cell.role)
    ranked = [label for label in learner_of if role_of[label] not in ENDS]
    variants: dict[str, list[str]] = {}
    for label in ranked:
        variants.setdefault(learner_of[label], []).append(label)
    learners = [cell.learner for cell in (*among, *cells) if cell.role not in ENDS]
    order = list(dict.fromkeys(learners))
    by_learner = 1 < len(order) <= len(COLOURS) and all(
        len(labels) <= len(DASHES) for labels in variants.values()
    )
    has_variants = any(len(labels) > 1 for labels in variants.values())
    result: dict[str, Style] = {}
    for place, label in enumerate(learner_of):
        learner, role = learner_of[label], role_of[label]
        if role in ENDS:
            colours, dash = ENDS[role], DOTS
        elif by_learner:
            rank = order.index(learner)
            colours = COLOURS[rank]
            # Without variants the dashes distinguish the learners in grey.
            dash = DASHES[variants[learner].index(label) if has_variants else rank % len(DASHES)]
        else:
            index = ranked.index(label)
            colours = COLOURS[index % len(COLOURS)]
            # A second round through the colours has other dashes: 30 labels all differ.
            dash = DASHES[(index + index // len(COLOURS)) % len(DASHES)]
        result[label] = Style(*colours, dash, MARKERS[place % len(MARKERS)])
    return result
