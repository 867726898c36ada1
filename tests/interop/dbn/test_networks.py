"""Networks of two slices: what pyAgrum infers from them, there and back, and what is refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp.errors import FileProblem, FmdpError, InvalidModel, InvalidParameter
from fmdp.interop import dbn
from fmdp.model import FactoredMDP
from fmdp.testing import oracles, strategies

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
gum = pytest.importorskip(
    "pyagrum", reason="the extra `dbn` is not installed: networks are not looked at"
)


def models() -> st.SearchStrategy[FactoredMDP]:
    plain = strategies.structures(max_states=12, max_actions=4, alike=True)
    return st.one_of(
        strategies.models(plain),
        strategies.models(strategies.constrained(strategies.structures(max_states=12))),
        strategies.effect_models(max_states=12, max_actions=6),
    )


def inferred(network: Any, model: FactoredMDP) -> Any:
    """P [A, S, S] as pyAgrum's inference has it, from evidence on all that is now."""
    s = model.structure
    for name, size in zip(s.state_names, s.state_sizes, strict=True):
        # Any state may be where one begins: what is sure cannot be evidence of something else.
        network.cpt(f"{name}_0").fillWith([1.0 / size] * size)
    inference = gum.LazyPropagation(network)
    later = [f"{name}_t" for name in s.state_names]
    inference.addJointTarget(set(later))
    P = np.zeros((s.n_actions, s.n_states, s.n_states))
    actions, states = (list(oracles.assignments(own)) for own in (s.action_sizes, s.state_sizes))
    for (a, action), (i, state) in itertools.product(enumerate(actions), enumerate(states)):
        now = dict(zip((f"{name}_0" for name in s.state_names), state, strict=True))
        inference.setEvidence(now | dict(zip(s.action_names, action, strict=True)))
        # Variables of one value may be left in it, although they are evidence.
        law = inference.jointPosterior(set(later)).sumIn(later)
        names = list(reversed(law.names))
        sizes = [s.state_sizes[later.index(name)] for name in names]
        axes = [names.index(name) for name in later]
        P[a, i] = law.toarray().reshape(sizes).transpose(axes).reshape(-1)
    return P


@given(
    strategies.models(
        strategies.structures(min_variables=2, max_variables=3, max_states=8, max_actions=3)
    )
)
@settings(max_examples=15)
def test_inference_finds_our_transitions(model: FactoredMDP) -> None:
    P = inferred(dbn.to_bayesian_network(model), model)
    np.testing.assert_allclose(P, oracles.dense(model).transitions, atol=1e-12)


def test_inference_sees_a_wrong_table() -> None:
    """The control: one row of one node is another."""
    model = fmdp.problem("circle:3,dynamics=guestrin")
    network = dbn.to_bayesian_network(model)
    table = network.cpt("machine_1_t").toarray().reshape(-1)
    table[:2] = [0.9, 0.1]
    network.cpt("machine_1_t").fillWith(table.tolist())
    difference = np.abs(inferred(network, model) - oracles.dense(model).transitions).max()
    assert difference > 1e-3


@given(models())
@settings(max_examples=30)
def test_a_diagram_is_read_as_the_same_model(model: FactoredMDP) -> None:
    assert dbn.from_bayesian_network(dbn.to_influence_diagram(model)) == model


@given(models())
@settings(max_examples=15)
def test_a_bayesian_network_has_the_transitions(model: FactoredMDP) -> None:
    back = dbn.from_bayesian_network(dbn.to_bayesian_network(model))
    assert back.structure.transition_scopes == model.structure.transition_scopes
    assert back.structure.constraints == model.structure.constraints
    assert back.initial_state == model.initial_state
    assert back.structure.l == 0
    for mine, theirs in zip(model.transitions, back.transitions, strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("ending", "most"), [("gum", 0.0), ("bifxml", 1e-6), ("bif", 1e-7)]
)  # six digits are written, single precision is read
@pytest.mark.parametrize("problem", ["circle:4", "jao:3", "random:3,seed=1", "three-leg:4"])
def test_files_hold_what_they_say(problem: str, ending: str, most: float, tmp_path: Path) -> None:
    model = fmdp.problem(problem)
    path = tmp_path / f"model.{ending}"
    left_out = dbn.write(model, [path])
    back = fmdp.problem(path)
    assert back.structure.transition_scopes == model.structure.transition_scopes
    assert back.initial_state == model.initial_state
    for mine, theirs in zip(model.transitions, back.transitions, strict=True):
        assert np.abs(mine - theirs).max() <= most
    if ending == "gum":
        assert left_out == []
        assert back == model
    else:
        assert left_out
    if ending != "bif":
        assert fmdp.plan(back).gain == pytest.approx(fmdp.plan(model).gain, abs=1e-4)


def test_names_and_numbers_out_of_order_come_back(tmp_path: Path) -> None:
    """pyAgrum puts values that are numbers in order when it reads them, without their tables."""
    model = FactoredMDP.from_factors(
        [3, 2],
        [2],
        [([0, 2], np.array([[[0.5, 0.3, 0.2], [1, 0, 0]]] * 3)), ([1], [[0.25, 0.75], [0, 1]])],
        [(["tank 1", "do"], np.arange(6.0) / 7)],
        state_names=["tank 1", "x_t"],
        action_names=["do"],
        reward_names=["x_t"],
        state_values=[["2", "1", "0.5"], ["a|b", "a b"]],
        initial_state=[1, 1],
    )
    path = tmp_path / "model.gum"
    dbn.write(model, [path])
    assert fmdp.problem(path) == model


BIF = """
network "umbrella" { }
variable rain_0 { type discrete[2] {no, yes}; }
variable rain_t { type discrete[2] {no, yes}; }
variable wet_0 { type discrete[2] {dry, wet}; }
variable wet_t { type discrete[2] {dry, wet}; }
variable umbrella { type discrete[2] {home, along}; }
probability (rain_0) { table 1 0; }
probability (wet_0) { table 1 0; }
probability (umbrella) { table 0.5 0.5; }
probability (rain_t | rain_0) { (no) 0.7 0.3; (yes) 0.4 0.6; }
probability (wet_t | umbrella, rain_0) {
  (home, no) 1 0; (home, yes) 0.1 0.9; (along, no) 1 0; (along, yes) 0.95 0.05;
}
"""


def test_a_network_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "umbrella.bif"
    path.write_text(BIF)
    model = fmdp.problem(path)
    s = model.structure
    assert (s.state_names, s.action_names) == (("rain", "wet"), ("umbrella",))
    assert s.transition_scopes == ((0,), (0, 2))
    assert s.action_values == (("home", "along"),)
    row = model.transition_row(1, {"rain": "yes", "wet": "dry"}, {"umbrella": "along"})
    np.testing.assert_allclose(row, [0.95, 0.05], atol=1e-7)
    assert model.name == "umbrella"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rain_t", "storm", "node rain_0 has no node rain_t for its next value"),
        ("wet_0", "moist", "node wet_t has no node wet_0 for its value now"),
        ("table 1 0; }\nprobability (wet", "table 0.5 0.5; }\nprobability (wet",
         "node rain_0 has the law [0.5, 0.5]; must be sure, or initial_state be given"),
        ("rain_t | rain_0)", "rain_t | wet_t)", "node wet_t is a parent of rain_t; only states"),
    ],
)  # fmt: skip
def test_other_networks_are_refused_by_name(old: str, new: str, words: str, tmp_path: Path) -> None:
    assert old in BIF
    path = tmp_path / "other.bif"
    text = BIF.replace(old, new)
    if "wet_t)" in new:
        text = text.replace("{ (no) 0.7 0.3; (yes) 0.4 0.6; }",
                            "{ (dry) 0.7 0.3; (wet) 0.4 0.6; }")  # fmt: skip
    path.write_text(text)
    with pytest.raises(InvalidModel) as caught:
        fmdp.problem(path)
    assert words in str(caught.value)


def test_the_options_of_reading(tmp_path: Path) -> None:
    path = tmp_path / "umbrella.bif"
    path.write_text(BIF.replace("_0", "0").replace("_t", "1").replace("table 1 0", "table 0.5 0.5"))
    network = gum.loadBN(str(path))
    with pytest.raises(InvalidModel, match="no node ends in '_0'"):
        dbn.from_bayesian_network(network)
    model = dbn.from_bayesian_network(
        network, now="0", later="1", initial_state={"rain": "yes", "wet": "dry"}
    )
    assert model.structure.state_names == ("rain", "wet")
    assert model.initial_state == (1, 0)
    with pytest.raises(InvalidModel, match="node umbrella is no action"):
        dbn.from_bayesian_network(network, now="0", later="1", actions=[], initial_state=[0, 0])
    with pytest.raises(InvalidModel, match=r"must be a pyagrum\.BayesNet or"):
        dbn.from_bayesian_network(7)


def test_a_network_without_actions_has_one() -> None:
    network = gum.fastBN("x_0{a|b}->x_t{a|b}")
    network.cpt("x_0").fillWith([0.0, 1.0])
    network.cpt("x_t").fillWith([0.2, 0.8, 0.5, 0.5])
    model = dbn.from_bayesian_network(network)
    assert model.structure.action_values == (("step",),)
    assert model.initial_state == (1,)
    assert model.transitions[0].tolist() == [[0.2, 0.8], [0.5, 0.5]]


def test_what_files_cannot_hold_is_refused(tmp_path: Path) -> None:
    one = FactoredMDP.from_factors([1], [2], [([], [[1.0]])])
    with pytest.raises(InvalidParameter, match="s0 has one value, and pyAgrum reads no such"):
        dbn.write(one, [tmp_path / "one.gum"])
    assert dbn.from_bayesian_network(dbn.to_influence_diagram(one)) == one
    for ending in ("gum", "bifxml", "bif"):
        path = tmp_path / f"broken.{ending}"
        path.write_text("{")
        with pytest.raises(FileProblem, match=r"cannot read it|not valid JSON") as caught:
            fmdp.problem(path)
        assert "\n" not in str(caught.value)
        with pytest.raises(FmdpError, match="missing"):
            fmdp.problem(tmp_path / f"missing.{ending}")


@pytest.mark.parametrize("suffix", ["bif", "bifxml", "gum"])
def test_keywords_of_bif_are_written_as_other_names(suffix: str, tmp_path: Path) -> None:
    """pyAgrum's reader of BIF takes neither nodes nor values that are called `table`."""
    model = FactoredMDP.from_factors(
        [2],
        [2],
        [((0, 1), [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [0.25, 0.75]])],
        state_names=["table"],
        action_names=["default"],
        state_values=[["network", "type"]],
        initial_state=[0],
    )
    path = tmp_path / f"model.{suffix}"
    omitted = dbn.write(model, [path])
    again = fmdp.problem(path)
    np.testing.assert_array_equal(again.transitions[0], model.transitions[0])
    if suffix == "gum":
        assert again == model
    else:
        assert "keywords of BIF" in omitted[-1]
        assert again.structure.names == ("table_", "default_")
        assert again.structure.state_values == (("network_", "type_"),)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("name", []),
        ("states", [{"node": []}]),
        ("actions", [{"node": {}}]),
        ("rewards", [{"node": []}]),
        ("states", 3),
        ("rewards", [[]]),
    ],
)
def test_a_property_of_another_form_is_refused_in_one_line(
    kind: str, value: Any, tmp_path: Path
) -> None:
    network = dbn.to_influence_diagram(fmdp.problem("circle:2"))
    content = json.loads(network.property("fmdp"))
    network.setProperty("fmdp", json.dumps({**content, kind: value}))
    network.saveGUM(str(tmp_path / "m.gum"))
    with pytest.raises(FmdpError) as refused:
        fmdp.problem(tmp_path / "m.gum")
    assert "\n" not in str(refused.value)
