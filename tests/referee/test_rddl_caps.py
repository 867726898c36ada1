"""RDDL round trips with caps: the comparison, and that it can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from referee import rddl_caps
from referee.ledger import Ledger
from referee.rddl_caps import Cap, Capped

pytest.importorskip("pyRDDLGym")


def nothing_disagrees(short: bool) -> None:
    ledger = rddl_caps.play(short)
    assert set(ledger.tallies) == set(rddl_caps.CLAIMS.values())
    shown = [str(one) for claim in sorted(ledger.claims_broken) for one in ledger.smallest(claim)]
    assert not shown, "\n".join(["", ledger.table(), *shown])


@pytest.mark.referee
def test_a_few_models() -> None:
    nothing_disagrees(True)


@pytest.mark.slow
@pytest.mark.referee
def test_many_models() -> None:
    nothing_disagrees(False)


def test_the_recipes_have_every_kind_of_cap() -> None:
    found = [rddl_caps.recipe(seed) for seed in range(40)]
    wholes = [one.whole for one in found]
    most = {None if cap is None else cap.most for cap in wholes}
    assert {None, 0, 1, 2} <= most
    assert any(cap is not None and any(cap.idle) for cap in wholes)
    assert any(len(one.caps) > 1 for one in found)
    assert any(one.whole is not None and one.whole.most == 0 and one.forbidden for one in found)


BOTH = (rddl_caps.BOOLEAN, rddl_caps.BOOLEAN)
CONTROL = Capped("control", (rddl_caps.BOOLEAN,), BOTH, (Cap((0, 1), 1, (0, 0)),), ())


@pytest.mark.parametrize(
    "read",
    [
        replace(CONTROL, caps=()),
        replace(CONTROL, caps=(Cap((0, 1), 0, (0, 0)),)),
        replace(CONTROL, caps=(Cap((0, 1), 1, (0, 1)),)),
        replace(CONTROL, forbidden=(((0, 1), frozenset({(1, 1)})),)),
    ],
    ids=["cap lost", "cap too small", "another idle value", "a condition too many"],
)
def test_a_wrong_reading_is_found(read: Capped) -> None:
    ledger = Ledger()
    rddl_caps.judge(ledger, "right", CONTROL, CONTROL.build())
    assert not ledger.disagreements
    rddl_caps.judge(ledger, "wrong", CONTROL, read.build())
    assert ledger.claims_broken == {"wrong"}
