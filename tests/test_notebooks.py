"""Tables in notebooks: one well-formed table each, in which every name is escaped."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

import fmdp

NAME = "<b>x</b> & 'y'"


@pytest.fixture(scope="module")
def model() -> fmdp.FactoredMDP:
    return fmdp.FactoredMDP.from_factors(
        [2],
        [2],
        [([0, 1], np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8], [0.5, 0.5]]))],
        [([0], np.array([1.0, 0.0]))],
        state_names=[NAME],
        state_values=[["<up>", "down"]],
        name="<i>model</i>",
    )


def test_every_result_is_a_table(model: fmdp.FactoredMDP) -> None:
    plan = fmdp.plan(model)
    assert plan.policy is not None
    shown = {
        "model": model,
        "plan": plan,
        "explanation": plan.explain((0,)),
        "evaluation": fmdp.evaluate(model, plan.policy),
        "run": fmdp.simulate(model, plan.policy, 10),
        "summary": plan.summary(),
        "whatif": fmdp.whatif(lambda _: model, price=[1]),
    }
    for name, result in shown.items():
        text = result._repr_html_()  # type: ignore[attr-defined]
        table = ElementTree.fromstring(text)
        assert table.tag == "table", name
        assert table.find("tbody/tr") is not None, name
        assert "<b>" not in text
        assert "<i>" not in text
    words = "".join(ElementTree.fromstring(model._repr_html_()).itertext())
    assert NAME in words
    assert "<up>" in words
