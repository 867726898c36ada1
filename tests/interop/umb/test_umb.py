"""UMB files: numbers by hand, round trips with fmdp and with Storm, and what is refused."""

from __future__ import annotations

import contextlib
import json
import tarfile
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import fmdp
from fmdp.cli import main
from fmdp.errors import FileProblem, FmdpError, InvalidModel, InvalidParameter, TooLarge
from fmdp.interop import prism, storm, umb
from fmdp.model import FactoredMDP
from fmdp.testing import oracles, strategies

from ..prism.test_exploring import CLIENTS, QUEUE

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
umbi = pytest.importorskip("umbi", reason="the extra `umb` is not installed")


def start_of(model: FactoredMDP) -> int:
    index = 0
    for value, size in zip(model.initial_state, model.structure.state_sizes, strict=True):
        index = index * size + value
    return index


def small(folder: Path, change: Any = None) -> Path:
    """An MDP of two states: `go` leads there, or back with 1/4; the other state is stuck."""
    ats = umbi.ats.ExplicitAts()
    ats.num_players = 1
    ats.add_state(), ats.add_state()
    ats.set_initial_states([0])
    ats.num_choice_actions, ats.choice_action_to_name = 2, ["wait", "go"]
    wait, go = ats.add_state_choice(0), ats.add_state_choice(0)
    wait.action, go.action = 0, 1
    wait.add_branch(0, Fraction(1))
    go.add_branch(0, Fraction(1, 4))
    go.add_branch(1, Fraction(3, 4))
    pay = ats.add_reward_annotation("pay")
    pay.set_state_values([1.0, 10.0])
    pay.set_choice_values([0.5, 0.0])
    pay.set_branch_values([0.0, 4.0, 8.0])
    if change is not None:
        change(ats)
    path = folder / "small.umb"
    umbi.ats.write(ats, path)
    return path


def test_an_mdp_by_hand(tmp_path: Path) -> None:
    model = umb.load(small(tmp_path))
    s = model.structure
    assert s.state_names == ("state",)
    assert s.state_values == (("0", "1"),)
    assert s.action_values == (("wait", "go", "stay"),)
    assert model.transition_row(0, (0,), ["go"]).tolist() == [0.25, 0.75]
    assert model.expected_reward((0,), ["wait"]) == 1.5
    assert model.expected_reward((0,), ["go"]) == 1.0 + 0.25 * 4 + 0.75 * 8
    assert model.expected_reward((1,), ["stay"]) == 10.0
    assert s.allowed_actions((0,)).tolist() == [0, 1]
    assert s.allowed_actions((1,)).tolist() == [2]
    assert model.name == "small"
    assert model.remarks[0] == "states without a choice get a self-loop: 1, e.g. state 1"
    assert oracles.optimal(oracles.dense(model)).gain[0] == pytest.approx(10.0)
    least = umb.load(tmp_path / "small.umb", minimise="pay")
    assert least.structure.reward_names == ("minus_pay",)
    assert (least.quantities[0].name, least.quantities[0].table.max()) == ("pay", 10.0)
    assert oracles.optimal(oracles.dense(least)).gain[0] == pytest.approx(-1.5)


def test_a_chain_in_continuous_time_by_hand(tmp_path: Path) -> None:
    """Rates 2 and 3: 3/5 of the time in state 0; a step from state 1 pays 4, so 3 * 4 * 2/5."""
    ats = umbi.ats.ExplicitAts()
    ats.time = umbi.ats.TimeType.STOCHASTIC
    ats.add_state(), ats.add_state()
    ats.set_initial_states([1])
    ats.state_to_exit_rate = [2.0, 3.0]
    ats.add_state_choice(0).add_branch(1, 1.0)
    ats.add_state_choice(1).add_branch(0, 1.0)
    ats.add_reward_annotation("pay").set_choice_values([0.0, 4.0])
    umbi.ats.write(ats, tmp_path / "chain.umb")
    model = umb.load(tmp_path / "chain.umb")
    assert model.initial_state == (1,)
    assert model.transitions[0].tolist() == pytest.approx(np.array([[1 / 3, 2 / 3], [1, 0]]))
    assert model.structure.action_values == (("step",),)
    assert fmdp.plan(model).gain == pytest.approx(24 / 5)
    assert "continuous time, uniformised at rate 3" in model.remarks[1]


def test_arrays_that_are_left_out_have_their_defaults(tmp_path: Path) -> None:
    """One choice per state, one branch per choice, and action 0."""
    ats = umbi.ats.ExplicitAts()
    ats.num_players = 1
    ats.add_state(), ats.add_state()
    ats.set_initial_states([0])
    ats.num_choice_actions, ats.choice_action_to_name = 1, ["move"]
    for state in range(2):
        choice = ats.add_state_choice(state)
        choice.action = 0
        choice.add_branch(1 - state, 1.0)
    for name, value in (("gold", [0.0, 3.0]), ("label_gold", [0.0, 5.0])):
        ats.add_reward_annotation(name).set_state_values(value)
    ats.add_ap_annotation("gold").set_state_values([True, False])
    paths = tmp_path / "model.umb", tmp_path / "short" / "model.umb"
    paths[1].parent.mkdir()
    umbi.ats.write(ats, paths[0])
    optional = {"state-to-choices.bin", "choice-to-branches.bin", "actions/choices/values.bin"}
    with tarfile.open(paths[0]) as whole, tarfile.open(paths[1], "w") as short:
        assert optional <= set(whole.getnames())
        for part in whole:
            if part.name not in optional:
                short.addfile(part, whole.extractfile(part))
    model = umb.load(paths[1], rewards="gold")
    assert model == umb.load(paths[0], rewards="gold")
    assert fmdp.plan(model).gain == pytest.approx(1.5)
    # A proposition of a name that is taken gets another one.
    assert [q.name for q in model.quantities] == ["label_gold", "label_gold_"]


@pytest.mark.parametrize("constants", [{"c": 2}, {"c": 5}])
def test_files_that_are_listed_anyway_come_back_equal(
    tmp_path: Path, constants: dict[str, int]
) -> None:
    model = prism.loads(QUEUE.replace(' "served"', ' "reward"'), constants, "reward", "queue")
    umb.save(model, tmp_path / "queue.umb")
    first = (tmp_path / "queue.umb").read_bytes()
    assert umb.load(tmp_path / "queue.umb") == model
    umb.save(umb.load(tmp_path / "queue.umb"), tmp_path / "queue.umb")
    assert (tmp_path / "queue.umb").read_bytes() == first


@given(strategies.models(strategies.constrained(strategies.structures(max_states=12))))
@settings(max_examples=30)
def test_a_written_model_has_the_same_gain(model: FactoredMDP) -> None:
    with tempfile.TemporaryDirectory() as folder:
        umb.save(model, Path(folder) / "model.umb")
        again = umb.load(Path(folder) / "model.umb")
    mine = oracles.optimal(oracles.dense(model)).gain[start_of(model)]
    theirs = oracles.optimal(oracles.dense(again)).gain[start_of(again)]
    assert theirs == pytest.approx(mine, abs=1e-9)
    assert again.structure.n_states == model.structure.n_states


def test_the_command_line_there_and_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "circle:3,dynamics=guestrin", "circle.umb"]) == 0
    out = capsys.readouterr().out
    assert "left out, because UMB cannot express it: the scopes of variables" in out
    assert main(["plan", "circle.umb", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    exact = fmdp.plan(fmdp.problem("circle:3,dynamics=guestrin")).gain
    assert result["gain"] == pytest.approx(exact, abs=1e-9)
    assert result["remarks"] == [
        "8 states, as the values of one variable, machine_0/machine_1/machine_2"
    ]
    assert main(["convert", "circle.umb", "circle.prism"]) == 0
    assert fmdp.problem("circle.prism").structure.n_states == 8


def two_starts(ats: Any) -> None:
    ats.set_initial_states([0, 1])


def a_game(ats: Any) -> None:
    ats.num_players, ats.state_to_player, ats.player_to_name = 2, [0, 1], ["one", "two"]


def hidden(ats: Any) -> None:
    ats.add_observation_annotation(1).set_state_values([0, 0])


def an_automaton(ats: Any) -> None:
    ats.time = umbi.ats.TimeType.URGENT_STOCHASTIC
    ats.set_markovian_states([])
    ats.state_to_exit_rate = [1.0, 1.0]


def too_little(ats: Any) -> None:
    next(iter(ats.choices)).branches[0].prob = Fraction(1, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (two_starts, "there are 2 initial states; must be one"),
        (a_game, "the model is a game of 2 players; must be an MDP or a Markov chain"),
        (hidden, "the model is partially observable; must be"),
        (an_automaton, r"the model is a Markov automaton \(time urgent-stochastic\); must be"),
        (too_little, "probabilities of choice 0, of state 0, sum to 0.5; must be at least 0 and"),
    ],
)
def test_other_models_are_refused_by_name(tmp_path: Path, change: Any, words: str) -> None:
    path = small(tmp_path, change)
    with pytest.raises(InvalidModel, match=words) as caught:
        umb.load(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_settings_that_do_not_fit(folder: Path) -> None:
    small(folder)
    for text, words in (
        ("small.umb,rewards=par", "no rewards called 'par', only 'pay'; did you mean \"pay\""),
        ("small.umb,rewards=pay,min=pay", "one structure is optimised; give one of them"),
        ("small.umb,N=3", "'N' must be rewards=NAME, min=NAME or max-states=N"),
        ("small.umb,max-states=x", "max-states must be a whole number; got 'x'"),
    ):
        with pytest.raises(InvalidParameter) as caught:
            fmdp.problem(text)
        assert words in str(caught.value)
    with pytest.raises(TooLarge, match=r"small\.umb: 2 states; at most 1, and max-states=N allows"):
        fmdp.problem("small.umb,max-states=1")
    umb.save(prism.loads(CLIENTS, rewards="taken"), "clients.umb")
    content = umbi.umb.umb_to_tar.UmbDecoder("clients.umb")
    assert b'"alias": "reward"' in content["index.json"]
    content["index.json"] = content["index.json"].replace(b'"alias": "reward"', b'"alias": "first"')
    content.write("clients.umb")
    with pytest.raises(InvalidParameter, match="several rewards, 'first', 'alone': choose one"):
        umb.load("clients.umb")


def test_files_that_are_none(folder: Path) -> None:
    (folder / "text.umb").write_text("mdp")
    with pytest.raises(FileProblem, match=r"is no archive of a UMB file \(ReadError: [^:\n]*\)$"):
        umb.load("text.umb")
    with pytest.raises(FileProblem, match=r"missing.umb"):
        umb.load("missing.umb")
    with pytest.raises(InvalidParameter, match=r"the name must end in \.umb"):
        umb.write(fmdp.problem("circle:3"), [Path("model.umb,x=1")])
    umb.save(fmdp.problem("circle:3"), "circle.umb")
    content = Path("circle.umb").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        spoilt = bytearray(content)
        spoilt[rng.integers(len(content))] ^= int(rng.integers(1, 256))
        Path("spoilt.umb").write_bytes(spoilt[: rng.integers(len(content) // 2, len(content) + 1)])
        with contextlib.suppress(FmdpError):
            umb.load("spoilt.umb")
    decoder = umbi.umb.umb_to_tar.UmbDecoder("circle.umb")
    for part in [part for part in decoder if not part.startswith("actions/")]:
        kept = decoder.pop(part)
        decoder.write("part.umb")
        with pytest.raises(FmdpError) as caught:
            umb.load("part.umb")
        assert str(caught.value).startswith("part.umb: ")
        decoder[part] = kept


# ---- Storm ---------------------------------------------------------------------------------------


def by_storm(path: Path, sense: str = "max") -> float:
    stormpy = pytest.importorskip("stormpy", reason="the extra `storm` is not installed")
    model = stormpy.build_model_from_umb(str(path))
    (question,) = stormpy.parse_properties(f'R{{"reward"}}{sense}=? [ LRA ]')
    answer = stormpy.model_checking(model, question)
    return float(answer.get_value(model.initial_states[0]))


@pytest.mark.parametrize("problem", ["circle:4", "three-leg:4"])
def test_storm_reads_what_is_written(tmp_path: Path, problem: str) -> None:
    model = fmdp.problem(problem)
    umb.save(model, tmp_path / "model.umb")
    assert by_storm(tmp_path / "model.umb") == pytest.approx(fmdp.plan(model).gain, rel=4e-6)


@pytest.mark.parametrize(
    ("text", "of", "constants"),
    [(QUEUE, "served", {"c": 4}), (QUEUE, "full", {"c": 4}), (CLIENTS, "taken", {})],
)
def test_what_storm_writes_is_read(
    tmp_path: Path, text: str, of: str, constants: dict[str, int]
) -> None:
    """Storm explores the PRISM file and writes it; states, rewards and bounds are those of ours."""
    stormpy = pytest.importorskip("stormpy", reason="the extra `storm` is not installed")
    (tmp_path / "model.prism").write_text(text)
    program = stormpy.parse_prism_program(str(tmp_path / "model.prism"), prism_compatibility=True)
    if constants:
        program, _ = stormpy.instantiate_constants(program, constants)
    built = stormpy.build_model(program, options=stormpy.BuilderOptions(build_full=True))
    options = stormpy.io.UmbExportOptions()
    options.allow_choice_labeling_as_actions = True
    stormpy.io.export_to_umb(built, str(tmp_path / "model.umb"), options=options)
    theirs = umb.load(tmp_path / "model.umb", of)
    mine = prism.loads(text, constants, of)

    kept = theirs.structure.state_names[0].split("/")  # Storm drops what never changes

    def states(model: FactoredMDP) -> set[frozenset[str]]:
        names = model.structure.state_names[0].split("/")
        return {
            frozenset(
                f"{name}={part}"
                for name, part in zip(names, value.split("/"), strict=True)
                if name in kept
            )
            for value in model.structure.state_values[0]
        }

    assert states(theirs) == states(mine)
    assert theirs.structure.n_states == mine.structure.n_states
    gains = [
        oracles.optimal(oracles.dense(model)).gain[start_of(model)] for model in (mine, theirs)
    ]
    assert gains[0] == pytest.approx(gains[1], abs=1e-9)
    assert gains[0] == pytest.approx(storm.average(text, of, constants), abs=4e-6)
    # And back: Storm reads again what fmdp read from Storm.
    umb.save(theirs, tmp_path / "again.umb")
    sense = "max" if mine.structure.n_actions > 1 else ""
    assert by_storm(tmp_path / "again.umb", sense) == pytest.approx(gains[0], abs=4e-5)
