"""`fmdp show`: sizes and scopes of known problems, and the numbers of a known table."""

from __future__ import annotations

from typing import Any

import pytest

import fmdp
from fmdp.cli.show import description, print_model
from fmdp.model import FactoredMDP, at_most, budget, forbid, save


def test_the_circle_of_four(run: Any) -> None:
    shown = run("show", "circle:4", "--json").json
    sizes = {key: shown[key] for key in ("states", "actions", "m", "l", "L", "W")}
    assert sizes == {"states": 16, "actions": 5, "m": 4, "l": 4, "L": 20, "W": 2}
    assert shown["initial_state"] == [1, 1, 1, 1]
    first = shown["state_variables"][0]
    assert first["scope"] == [
        shown["state_variables"][0]["name"],
        shown["state_variables"][3]["name"],
        shown["action_variables"][0]["name"],
    ]
    assert first["rows"] == 20


def test_classes_of_alike_rows(run: Any) -> None:
    name = "circle:4,dynamics=guestrin,alike={}"
    untold = run("show", name.format("none"), "--json").json
    assert untold["L"] == 20
    assert untold["transition_classes"] is None
    assert untold["state_variables"][0]["classes"] is None
    # Restarted, or one of four by the machine and its parent; a machine pays if it works.
    for alike, classes, rewards in (("rows", 20, 8), ("machines", 5, 2)):
        told = run("show", name.format(alike), "--json").json
        assert (told["L"], told["transition_classes"], told["reward_classes"]) == (
            5,
            classes,
            rewards,
        )
        assert [one["classes"] for one in told["state_variables"]] == [5] * 4
        assert [one["classes"] for one in told["reward_factors"]] == [2] * 4
    text = run("show", name.format("machines")).out
    assert "5 classes of 80 transition rows, 2 of 8 reward rows" in text
    assert run("measure", name.format("rows"), "--json").json["L"] == 5


def test_sizes_are_exact_however_long(run: Any) -> None:
    """Longer than the integers that Python reads without being told: 2^20000 has 6,021 digits."""
    assert "GiB of tables" in run("show", "circle:20000,dynamics=guestrin", "--json").refusal
    assert run("show", "jao:10000", "--json").json["states"] == 2**10000
    text = run("show", "jao:20000", "--json").out
    digits = text.partition('"states": ')[2].partition(",")[0]
    assert len(digits) == 6021
    assert int(digits[-18:]) == 2**20000 % 10**18


def test_the_network_is_drawn(run: Any) -> None:
    text = run("show", "three-leg:4").out
    assert text.count("─┬→") == 1
    assert text.count("├→") == 1
    assert text.count("└→") == 1


def test_a_table_of_transitions(run: Any) -> None:
    """Guestrin's numbers, by (machine 0, machine 1): without a restart of machine 1."""
    table = run("show", "circle:2,dynamics=guestrin", "--table", "machine_1", "--json").json[
        "table"
    ]
    assert table["scope_sizes"] == [2, 2, 3]
    works = [row[1] for row in table["rows"]]
    assert works[0::3] == pytest.approx([0.02375, 0.475, 0.0475, 0.95])
    assert works[1::3] == [1.0] * 4


def test_a_long_table_is_cut_and_says_so(run: Any) -> None:
    text = run("show", "circle:4", "--table", "machine_0", "--rows", "2").out
    assert "... 18 more rows" in text
    assert (
        len(run("show", "circle:4", "--table", "machine_0", "--rows", "0").out.splitlines()) == 22
    )


def test_an_unknown_factor_is_refused_with_a_suggestion(run: Any) -> None:
    assert 'did you mean "machine_0"?' in run("show", "circle:4", "--table", "machne_0").refusal


def test_a_name_of_two_factors_needs_a_prefix(run: Any, tmp_path: Any) -> None:
    model = FactoredMDP.from_factors(
        [2],
        [2],
        [(["x"], [[0.5, 0.5], [1, 0]])],
        [(["x"], [0, 1])],
        state_names=["x"],
        reward_names=["x"],
    )
    save(model, tmp_path / "model.json")
    path = str(tmp_path / "model.json")
    assert '"reward:x"' in run("show", path, "--table", "x").refusal
    assert run("show", path, "--table", "reward:x", "--json").json["table"]["rows"] == [0, 1]


def test_constraints_are_listed(capsys: Any, run: Any) -> None:
    model = fmdp.problem("machines:3")
    first, second, _ = model.structure.action_names
    bound = model.with_constraints(
        at_most(model, 2, name="crews"),
        forbid(model, {first: 1, second: 1}, {"status_0": "good", first: 1}),
        budget(model, 2.5, {second: {"reboot": 1.5}}),
    )
    told = description(bound)["constraints"]
    assert told[0] == {
        "name": "crews",
        "scope": list(model.structure.action_names),
        "at_most": 2,
        "idle": ["leave"] * 3,
    }
    assert told[1]["scope"] == ["status_0", first, second]
    assert (told[1]["forbidden"], told[1]["rows"]) == (4, 12)
    assert told[2] == {"name": "", "scope": [second], "budget": 2.5, "costs": ((0, 1.5),)}
    print_model(bound)
    text = capsys.readouterr().out
    assert "costs of 1 actions at most 2.5" in text
    assert "at most 2 of 3 not at leave" in text
    assert "good reboot leave; good reboot reboot; fail reboot reboot; 1 more" in text
    assert run("show", "circle:3", "--json").json["constraints"] == []
    assert "constraint" not in run("show", "circle:3").out


def test_the_findings_about_a_model(run: Any) -> None:
    """Rewards of the circle are equal and not declared alike; with alike rows nothing is found."""
    shown = run("show", "circle:3", "--check", "--json").json
    assert [finding["kind"] for finding in shown["findings"]] == ["equal_factors"]
    assert "are not declared alike" in " ".join(run("show", "circle:3", "--check").out.split())
    assert (
        "nothing found" in run("show", "circle:3,dynamics=guestrin,alike=machines", "--check").out
    )
    refused = run("show", "circle:3", "--check", "--table", "machine_0")
    assert "give one of them" in refused.refusal


def test_a_saved_learner_with_the_scopes_that_it_learned(run: Any, tmp_path: Any) -> None:
    path = str(tmp_path / "learner.npz")
    problem = "circle:4,dynamics=guestrin"
    options = ("--learner", "default,scopes=unknown", "--steps", "800", "--out", path)
    learned = run("learn", problem, *options, "--json").json["scopes"]
    text = run("learn", problem, *options).out
    assert f"the planner was prepared {learned['preparations']} times" in " ".join(text.split())
    shown = run("show", path, "--json").json
    assert (shown["learner"], shown["steps"]) == ("default", 800)
    assert shown["scopes"] == learned
    assert learned["scopes"]["machine_1"] == ["machine_0", "machine_1", "restart"]
    assert learned["edges"]["machine_1"]["machine_0"] > 0.95
    text = run("show", path).out
    assert "machine_0 1.00" in text
    assert "machine_0 → machine_1" in text
    assert "a learner has neither" in run("show", path, "--check").refusal
    assert shown["scope_findings"] == []
    words = (*options[:2], "--set", "parents=1", "--steps", "3000", *options[4:], "--json")
    too_small = run("learn", problem, *words)
    findings = too_small.json["scope_findings"]
    assert findings[0]["reason"].endswith("the bound of 1 parent is too small")
    assert "the scopes may be wrong: the next value of 'machine_" in too_small.err
    assert f"; likewise {findings[1]['variable']}" in too_small.err
    assert run("show", path, "--json").json["scope_findings"] == findings
    assert "the bound of 1 parent is too small" in " ".join(run("show", path).out.split())
    run("learn", problem, "--steps", "50", "--out", path)
    assert "known" in run("show", path).out
    assert run("show", path, "--json").json["scopes"] is None
