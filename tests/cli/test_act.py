"""`fmdp act`: the action by name, what every action is worth, and one line for a wrong state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fmdp
from fmdp.planning.policies.randomised import UniformPolicy

from ..named import pumps

STATE = {"pump_a": "worn", "pump_b": "broken", "price": "high"}
TEXT = ",".join(map("=".join, STATE.items()))


@pytest.fixture
def saved(tmp_path: Path) -> tuple[str, str]:
    model, policy = tmp_path / "pumps.json", tmp_path / "policy.npz"
    fmdp.save(pumps(), model)
    fmdp.plan(pumps()).policy.save(policy)  # type: ignore[union-attr]
    return str(model), str(policy)


def test_the_action_with_every_value_and_gap(run: Any, saved: tuple[str, str]) -> None:
    plan = fmdp.plan(pumps())
    for text in (TEXT, json.dumps(STATE)):
        found = run("act", *saved, "--state", text, "--json").json
        assert found["state"] == STATE
        assert found["action"] == plan.policy(STATE) == {"crew": "pump_b"}  # type: ignore[misc]
        known = plan.explain(STATE)
        assert [action for action, _, _ in found["values"]] == [one.action for one in known.values]
        for (_, value, gap), one in zip(found["values"], known.values, strict=True):
            assert value == pytest.approx(one.value, abs=1e-5)
            assert gap == pytest.approx(one.gap, abs=1e-5)
        assert "bias of the policy" in found["values_of"]
        assert found["runner_up"] == {"crew": "pump_a"}
        assert found["reason"] is None
        assert len(found["value_errors"]) == len(found["values"])
        assert max(found["value_errors"]) < 1e-12
    said = run("act", *saved, "--state", TEXT)
    assert said.status == 0
    assert "action  crew=pump_b" in said.out
    assert "<- the policy's" in said.out


def test_variables_that_are_left_out_aloud_are_as_in_the_initial_state(
    run: Any, saved: tuple[str, str]
) -> None:
    for text in ("price=high , pump_b=broken,...", "pump_b=broken,price=high , ... "):
        found = run("act", *saved, "--state", text, "--json").json
        assert found["state"] == {"pump_a": "new", "pump_b": "broken", "price": "high"}
    initial = run("act", *saved, "--state", "...", "--json").json["state"]
    assert initial == {"pump_a": "new", "pump_b": "new", "price": "low"}


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (None, "which state? give it by name, as in --state pump_a=new,pump_b=new,price=low"),
        ("pump_a=worn", '"pump_b", "price" are missing'),
        ("pump_a=worn", "or ',...' at the end for the initial one"),
        ("pump_a=wron,pump_b=new,price=low", 'did you mean "worn"?'),
        ("pumpa=worn,pump_b=new,price=low", 'did you mean "pump_a"?'),
        ("1,2,0", '"1" must be name=value'),
        ("pump_a=wron,...", 'did you mean "worn"?'),
        ("pumpa=worn,...", 'did you mean "pump_a"?'),
        ("pump_a=worn,pump_a=new,...", '"pump_a" is given twice'),
        (",...", '"" must be name=value'),
        ("", '"" must be name=value'),
    ],
)
def test_a_state_that_is_none_is_one_line(
    run: Any, saved: tuple[str, str], state: str | None, words: str
) -> None:
    given = [] if state is None else ["--state", state]
    assert words in run("act", *saved, *given).refusal


def test_a_policy_too_large_to_evaluate_is_explained_by_what_it_is_greedy_for(
    run: Any, tmp_path: Path
) -> None:
    model = fmdp.problem("circle:20,dynamics=guestrin")
    plan = fmdp.plan(model, "alp,basis=pairs")
    plan.policy.save(tmp_path / "p.npz")  # type: ignore[union-attr]
    state = ",".join(f"machine_{i}={'down' if i == 3 else 'working'}" for i in range(20))
    arguments = "circle:20,dynamics=guestrin", str(tmp_path / "p.npz"), "--state", state
    found = run("act", *arguments, "--json").json
    assert len(found["values"]) == 21
    assert all(value is None for _, value, _ in found["values"])
    gaps = [gap for _, _, gap in found["values"]]
    assert gaps == pytest.approx([one.gap for one in plan.explain(state).values], abs=1e-8)
    assert "value" not in run("act", *arguments).out.splitlines()[2]


def test_a_policy_whose_gain_depends_on_the_state_has_an_action_all_the_same(
    run: Any, tmp_path: Path
) -> None:
    model = fmdp.FactoredMDP.from_factors(
        [2], [2], [([0, 1], [[[1, 0], [1, 0]], [[0, 1], [0.5, 0.5]]])], [([0], [0.0, 1.0])]
    )
    fmdp.save(model, tmp_path / "m.json")
    fmdp.plan(model).policy.save(tmp_path / "p.npz")  # type: ignore[union-attr]
    arguments = "act", str(tmp_path / "m.json"), str(tmp_path / "p.npz"), "--state", "s0=1"
    found = run(*arguments, "--json").json
    assert found["values"] is None
    assert "depends on the state" in found["reason"]
    assert set(found["action"]) == {"a0"}
    assert "no values: " in run(*arguments).out


def test_a_policy_with_a_horizon_is_explained_at_a_step(
    run: Any, saved: tuple[str, str], tmp_path: Path
) -> None:
    plan = fmdp.plan(pumps(), fmdp.Exact(criterion="finite", horizon=4))
    plan.policy.save(tmp_path / "timed.npz")  # type: ignore[union-attr]
    asked = ("act", saved[0], str(tmp_path / "timed.npz"), "--state", TEXT)
    for step in (0, 3):
        found = run(*asked, "--step", str(step), "--json").json
        known = plan.explain(STATE, step=step)
        assert found["action"] == known.action
        assert found["reason"] is None
        assert [value for _, value, _ in found["values"]] == [one.value for one in known.values]
    assert run(*asked).out == f"{plan.explain(STATE)}\n"
    refused = run("act", *saved, "--state", TEXT, "--step", "2")
    assert refused.status == 2
    assert "a step is for policies with a horizon" in refused.err


def test_a_policy_that_draws_is_refused(run: Any, saved: tuple[str, str], tmp_path: Path) -> None:
    UniformPolicy.of(pumps().structure).save(tmp_path / "u.npz")
    assert "at random" in run("act", saved[0], str(tmp_path / "u.npz"), "--state", TEXT).refusal


def test_a_policy_for_another_problem_is_refused(run: Any, saved: tuple[str, str]) -> None:
    state = "machine_0=down,machine_1=down,machine_2=down"
    assert "policy for state sizes" in run("act", "circle:3", saved[1], "--state", state).refusal


def test_numbers_are_values(run: Any, tmp_path: Path) -> None:
    """One bed is not the second value of the list."""
    model = fmdp.FactoredMDP.from_functions(
        {"beds": [2, 1]},
        {"order": [1, 0]},
        {"beds": ["order"]},
        lambda name, v: v["order"] + 1,
        {"pay": (["beds", "order"], lambda v: float(v["beds"] + v["order"] == 2))},
    )
    fmdp.save(model, tmp_path / "m.json")
    policy: Any = fmdp.plan(model).policy
    policy.save(tmp_path / "p.npz")
    for given in ("beds=1", '{"beds": 1}', '{"beds": "1"}'):
        said = run("act", str(tmp_path / "m.json"), str(tmp_path / "p.npz"), "--state", given,
                   "--json").json  # fmt: skip
        assert said["state"] == {"beds": "1"}
        assert said["action"] == {"order": str(policy({"beds": 1})["order"])}
        assert {type(value) for one in said["values"] for value in one[0].values()} == {str}
    wrong = run("act", str(tmp_path / "m.json"), str(tmp_path / "p.npz"), "--state", '{"beds": 0}')
    assert '--state: "beds" has no value 0; must be one of 2, 1' in wrong.refusal


def test_an_action_that_the_model_forbids_is_refused(
    run: Any, saved: tuple[str, str], tmp_path: Path
) -> None:
    model = pumps()
    strict = model.with_constraints(fmdp.forbid(model, {"crew": "pump_b"}, name="not there"))
    fmdp.save(strict, tmp_path / "strict.json")
    refusal = run("act", str(tmp_path / "strict.json"), saved[1], "--state", TEXT).refusal
    assert 'constraint "not there" forbids crew=pump_b' in refusal
