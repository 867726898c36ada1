"""What is written is read back: the same variables, laws, mean rewards and allowed actions."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from fmdp.errors import TooLarge
from fmdp.interop.rddl import read, write
from fmdp.interop.rddl.writing import identifiers, number, texts
from fmdp.model import FactoredMDP
from fmdp.model.constraints import AtMost, Budget
from fmdp.model.products import flatten
from fmdp.problems import problem
from fmdp.testing import strategies

pytest.importorskip("pyRDDLGym")


def again(model: FactoredMDP, folder: Path) -> FactoredMDP:
    paths = [folder / "domain.rddl", folder / "instance.rddl"]
    write(model, paths)
    return read("+".join(map(str, paths)))


@pytest.mark.parametrize(
    "name",
    [
        "circle:3",
        "circle:4,dynamics=guestrin,reward=mean",
        "jao:2",
        "riverswim:2",
        "machines:2",
        "maintenance:2",
        "rddl:SysAdmin_MDP_ippc2011:1",
    ],
)
def test_a_model_reads_back(name: str, tmp_path: Path) -> None:
    model = problem(name)
    found = again(model, tmp_path)
    one, two = model.structure, found.structure
    assert two.transition_scopes == one.transition_scopes
    assert two.state_values == one.state_values
    assert two.action_values == one.action_values
    if not name.startswith("rddl:"):  # three underscores are pyRDDLGym's own
        assert two.names == one.names
    for written, back in zip(model.transitions, found.transitions, strict=True):
        np.testing.assert_allclose(back, written, rtol=0, atol=1e-15)
    assert found.initial_state == model.initial_state
    generator = np.random.default_rng(0)
    for _ in range(50):
        x = [int(generator.integers(size)) for size in one.sizes]
        state, action = x[: one.m], x[one.m :]
        mean = model.expected_reward(state, action)
        assert found.expected_reward(state, action) == pytest.approx(mean, abs=1e-12)


def test_constraints_read_back(tmp_path: Path) -> None:
    model = problem("machines:3")
    m, n = model.structure.m, len(model.structure.sizes)
    capped = model.with_constraints(
        AtMost(tuple(range(m, n)), 2),
        AtMost((m, m + 1), 1),
        Budget((m, m + 2), 2.4, ((0, 1), (1.5, 0.5))),
    )
    found = again(capped, tmp_path)
    generator = np.random.default_rng(1)
    for _ in range(60):
        x = [int(generator.integers(size)) for size in capped.structure.sizes]
        state, action = tuple(x[:m]), tuple(x[m:])
        assert found.structure.allowed(state, action) == capped.structure.allowed(state, action)


def test_several_caps_on_all_actions_read_back(tmp_path: Path) -> None:
    """RDDL has a place for one of them; the others, and idle values of their own, are written out.

    At most two of three machines are rebooted, and at most two are not: one or two are."""
    model = problem("machines:3")
    m, n = model.structure.m, len(model.structure.sizes)
    everything = tuple(range(m, n))
    capped = model.with_constraints(
        AtMost(everything, 2), AtMost(everything, 2, (1, 1, 1)), AtMost((m,), 0, (1,))
    )
    found = again(capped, tmp_path).structure
    state = model.initial_state
    allowed = [a for a in itertools.product((0, 1), repeat=3) if found.allowed(state, a)]
    assert allowed == [(1, 0, 0), (1, 0, 1), (1, 1, 0)]


def test_values_of_one_name_in_several_types_stay_apart(tmp_path: Path) -> None:
    model = FactoredMDP.from_factors(
        (2, 3),
        (2,),
        [([0, 2], [[[0.5, 0.5], [1, 0]], [[0, 1], [0.25, 0.75]]]), ([0], [[0.2, 0.3, 0.5]] * 2)],
        [([0], [0.0, 1.0])],
        state_values=(("0", "1"), ("0", "1", "2")),
    )
    assert "values-2--0" in texts(model)[0]
    assert again(model, tmp_path).structure.state_values == model.structure.state_values


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(model=strategies.models())
def test_any_model_has_the_same_laws_when_it_is_read_back(
    model: FactoredMDP, tmp_path: Path
) -> None:
    found = again(model, tmp_path)
    own = {name: index for index, name in enumerate(found.structure.state_names)}
    names = identifiers(model.structure.names, "v")
    generator = np.random.default_rng(0)
    s = model.structure
    for _ in range(20):
        x = [int(generator.integers(size)) for size in s.sizes]
        state, action = x[: s.m], x[s.m :]
        named = dict(zip(names, (s.values[v][value] for v, value in enumerate(x)), strict=True))
        try:
            back_state = tuple(
                found.structure.state_values[i].index(named[name]) for name, i in own.items()
            )
        except ValueError:
            continue  # a value that is never reached
        by_name = zip(found.structure.action_names, found.structure.action_values, strict=True)
        # Where no law reads an action there is one that does nothing.
        back_action = tuple(
            values.index(named[name]) if name in named else 0 for name, values in by_name
        )
        for i in range(s.m):
            if names[i] not in own:
                continue
            row = model.transition_row(i, state, action)
            back = found.transition_row(own[names[i]], back_state, back_action)
            told = dict(zip(found.structure.state_values[own[names[i]]], back, strict=True))
            if any(state[v] != model.initial_state[v] for v in range(s.m) if names[v] not in own):
                continue  # of a variable that never changes, at another value
            expected = dict(zip(s.values[i], row, strict=True))
            for value, chance in told.items():
                assert chance == pytest.approx(expected[value], abs=1e-12)


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    paths = [tmp_path / "d.rddl", tmp_path / "i.rddl"]
    assert write(problem("circle:3"), paths) == []
    assert write(problem("rddl:SysAdmin:1"), paths) == ["which rows are alike"]


def test_numbers_have_no_exponent() -> None:
    assert number(1e-7) == "0.0000001"
    assert number(3.0) == "3.0"
    assert float(number(0.1 + 0.2)) == 0.1 + 0.2


def test_names_become_identifiers_that_differ() -> None:
    assert identifiers(["pump 1", "pump-1", "reward", "9", "a___b"], "v") == [
        "pump-1",
        "pump-1-2",
        "reward-2",
        "v-9",
        "a-of-b",
    ]


def test_a_model_of_too_many_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match="rows; at most"):
        write(problem("random:20,parents=12,seed=0,actions=30"), [tmp_path / "a", tmp_path / "b"])
    assert list(tmp_path.iterdir()) == []


def test_derived_variables_are_intermediate_fluents(tmp_path: Path) -> None:
    """A drawn one decides two state variables, so that no text without it has the same law."""

    def level(name: str, v: dict[str, object]) -> int:
        change = (v["rain"] == "some") - int(v["flow"] == "yes") * (name == "upper")
        return max(0, min(2, int(str(v[name])) + change))

    model = FactoredMDP.from_functions(
        states={"upper": range(3), "lower": range(3)},
        actions={"valve": ["shut", "open"]},
        derived={
            "rain": (["upper"], lambda v: {"none": 0.7, "some": 0.3}),
            "flow": (["upper", "valve"], lambda v: "yes" if v["valve"] == "open" else "no"),
        },
        parents={"upper": ["upper", "flow", "rain"], "lower": ["lower", "flow", "rain"]},
        transition=level,
        reward={"supply": (["lower", "rain"], lambda v: v["lower"] + (v["rain"] == "some"))},
    )
    domain, _ = texts(model)
    assert domain.count("interm-fluent") == 2
    back = again(model, tmp_path)
    assert [variable.name for variable in back.structure.derived] == ["rain"]
    before, after = flatten(model), flatten(back)
    np.testing.assert_allclose(after.transitions, before.transitions, atol=1e-12)
    np.testing.assert_allclose(after.rewards, before.rewards, atol=1e-12)
