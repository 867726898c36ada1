"""fmdp against the referee: a few models of each family here, all of them in `make referee`."""

from __future__ import annotations

import pytest

from referee.game import ROUNDS, kinds, play


def _nothing_disagrees(short: bool, name: str) -> None:
    ledger = play(short, {name})
    assert ledger.compared > 0
    shown = [str(item) for claim in sorted(ledger.claims_broken) for item in ledger.smallest(claim)]
    assert not shown, "\n".join(["", ledger.table(), *shown])


@pytest.mark.referee
@pytest.mark.parametrize("name", ROUNDS)
def test_a_few_models_of_each_family(name: str) -> None:
    _nothing_disagrees(True, name)


@pytest.mark.slow
@pytest.mark.referee
@pytest.mark.parametrize("name", ROUNDS)
def test_all_models(name: str) -> None:
    _nothing_disagrees(False, name)


def test_both_forms_have_every_family() -> None:
    assert set(kinds(True)) == set(kinds(False))
    assert sum(kinds(False).values()) > 150
