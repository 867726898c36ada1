"""The referee of explanations refereed: honest ones pass, and each wrong one is caught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from referee import explanations
from referee.claims import Case
from referee.explanations import asked, judge_explanation, several_classes, slow, true_values
from referee.ledger import Ledger

SLOW = Case(slow(3))
SEVERAL = Case(several_classes(0))
FIRST_SLOW = [0] * SLOW.recipe.n_states
FIRST_SEVERAL = [0] * SEVERAL.recipe.n_states


def _broken(case: Case, actions: Sequence[int], explain: Any = asked) -> set[str]:
    ledger = Ledger()
    for place in range(case.recipe.n_states):
        judge_explanation(ledger, case, actions, place, explain)
    return ledger.claims_broken


def _changed(change: Callable[[Any], Any]) -> Any:
    """Explain, then change every value that is listed."""

    def explain(case: Case, actions: Sequence[int], place: int) -> Any:
        said = asked(case, actions, place)
        if said is None:
            return None
        return replace(said, values=tuple(change(one) for one in said.values))

    return explain


def test_honest_explanations_pass() -> None:
    assert _broken(SLOW, FIRST_SLOW) == set()
    assert _broken(SEVERAL, FIRST_SEVERAL) == set()


def test_both_kinds_of_states_are_met() -> None:
    """Some states of chains with several classes have values, and others have none."""
    cases = [Case(several_classes(seed)) for seed in range(5)]
    defined = [
        true_values(case, [0] * case.recipe.n_states, place) is not None
        for case in cases
        for place in range(case.recipe.n_states)
    ]
    assert any(defined)
    assert not all(defined)


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        (
            lambda one: replace(one, value=one.value * (1 + 1e-5)),
            "explanation: value within its error bound",
        ),
        (
            lambda one: replace(one, value=one.value * (1 + 1e-5)),
            "explanation: every printed digit of a value",
        ),
        (lambda one: replace(one, gap=one.gap + 1e-3), "explanation: gap"),
    ],
)
def test_a_number_that_is_off_is_caught(change: Any, claim: str) -> None:
    assert claim in _broken(SLOW, FIRST_SLOW, _changed(change))


def test_a_refusal_in_the_wrong_place_is_caught() -> None:
    claim = "explanation: given where values are defined"
    assert claim in _broken(SLOW, FIRST_SLOW, lambda *_: None)


def test_an_answer_in_the_wrong_place_is_caught() -> None:
    def answer(case: Case, actions: Sequence[int], place: int) -> Any:
        return asked(SLOW, FIRST_SLOW, 0)

    claim = "explanation: refused where values are not defined"
    assert claim in _broken(SEVERAL, FIRST_SEVERAL, answer)


def test_a_plain_linear_solve_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What explanations rested on once: LU factors of I - P, whatever the chain is."""

    def solve(case: Case, actions: Sequence[int], place: int) -> Any:
        said = asked(SLOW, FIRST_SLOW, place)
        flat, n = case.flat, case.recipe.n_states
        states = np.arange(n)
        chain, pays = flat.matrices[0, states], flat.rewards[0, states]
        system = np.zeros((n + 1, n + 1))
        system[:n, :n], system[:n, n], system[n, 0] = np.eye(n) - chain, 1.0, 1.0
        h = np.linalg.solve(system, np.append(pays, 0.0))[:n]
        values = flat.rewards[:, place] + flat.matrices[:, place] @ h - h[place]
        assert said is not None
        changed = [
            replace(one, value=float(values[int(next(iter(one.action.values())))]))
            for one in said.values
        ]
        return replace(said, values=tuple(changed))

    assert "explanation: value within its error bound" in _broken(SLOW, FIRST_SLOW, solve)


def test_files_that_answer_otherwise_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = "explanation: `fmdp act` of saved files gives the same"
    ledger = Ledger()
    explanations.judge_saved(ledger, SLOW, FIRST_SLOW, 0)
    assert ledger.claims_broken == set()
    assert ledger.tallies[claim].compared == 1
    other = explanations.asked_by_file(SLOW, FIRST_SLOW, 1)
    monkeypatch.setattr(explanations, "asked_by_file", lambda *_: other)
    explanations.judge_saved(ledger, SLOW, FIRST_SLOW, 0)
    assert ledger.claims_broken == {claim}
