"""Groups of exchangeable parts of a model.

A part is a few state variables, perhaps with action variables of its own. Parts are exchangeable if
every transposition of two of them, with the matching change of the actions, leaves every table of
the model unchanged: then values depend on how many parts are in each local state, not on which.
One shared action variable may address the parts by its values ("restart machine i").

Candidates come from colour refinement: variables whose tables and neighbours look alike have one
colour, a variable that is alone in its colour is common to all, and what is connected without the
common variables is a part. The claim is then checked on the numbers. Every table of a part is
written in local terms (its own variables by slot, the common variables by number, and "this part",
"another part of the group" or a common value for a shared action); parts are exchangeable if these
forms are equal, bit by bit, and if every table and sum over all parts is symmetric. A group that
fails is dropped and the first difference is reported; missing a group costs no correctness.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from fmdp.errors import InvalidModel, InvalidParameter, TooLarge
from fmdp.model.entries import entries_of, split_cells, split_reward_entries
from fmdp.model.exchangeable.parts import (
    Exchangeable,
    NotExchangeable,
)
from fmdp.model.exchangeable.reading import Reader
from fmdp.model.exchangeable.search import Search
from fmdp.model.expansion import without_all_but
from fmdp.model.factored import FactoredMDP
from fmdp.model.structure import Structure


def exchangeable_parts(
    model: FactoredMDP, declared: Sequence[Sequence[str]] | None = None
) -> tuple[Exchangeable | None, tuple[str, ...]]:
    """Return the groups of exchangeable parts of a model, None without any, and why not others.

    `declared` are groups of names of state variables, one per part; then a group that is not
    exchangeable raises InvalidParameter, which names the difference.
    """
    given = None if declared is None else tuple(map(tuple, declared))
    try:
        return _proven_groups(model, given)
    except (NotExchangeable, InvalidModel, TooLarge) as error:
        if declared is not None:
            raise InvalidParameter(f"the parts are not exchangeable: {error}") from None
        return None, (str(error),)


@lru_cache(maxsize=1)  # the choice of a planner asks before the planner does
def exchangeable_by_alike(structure: Structure) -> Exchangeable | None:
    """Return the parts that are exchangeable in every model of a structure with alike rows.

    They are those of a model with random tables, in which only rows of one class are equal.
    """
    if structure.alike is None:
        return None
    entries, generator = entries_of(structure), np.random.default_rng(0)
    weights = 1.0 + generator.random(len(entries.cell_entry))
    rows = weights / np.add.reduceat(weights, entries.first_cell[:-1])[entries.cell_entry]
    rewards = generator.random(entries.n_entries - entries.n_transition_entries)
    tables = split_cells(structure, rows), split_reward_entries(structure, rewards)
    return exchangeable_parts(FactoredMDP.trusted(structure, *tables))[0]


def _proven_groups(
    model: FactoredMDP, declared: tuple[tuple[str, ...], ...] | None
) -> tuple[Exchangeable | None, tuple[str, ...]]:
    model = without_all_but(model, _members_of_sums(model.structure))
    search = Search(model)
    groups = search.candidates() if declared is None else search.declared(declared)
    reasons: list[str] = []
    while groups:
        try:
            return Reader(model, groups).read(tuple(reasons)), tuple(reasons)
        except NotExchangeable as error:
            if declared is not None:
                raise
            reasons.append(str(error))
            groups = error.left(groups)
    return None, tuple(reasons)


def _members_of_sums(s: Structure) -> tuple[int, ...]:
    """Return the derived variables that are partial sums, or end a chain of them."""
    n = len(s.sizes)
    partial = {v for v, variable in enumerate(s.derived, n) if variable.partial}
    return tuple(
        v
        for v, variable in enumerate(s.derived, n)
        if v in partial or partial.intersection(variable.scope)
    )
