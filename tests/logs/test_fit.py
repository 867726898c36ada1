"""Fitting: the counts of a log, its forms, classes, rewards kept; and every refusal in one line."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.logs import tables
from fmdp.model import Alike, Forbidden

STRUCTURE = fmdp.Structure(
    (2, 3),
    (2,),
    ((0, 2), (0, 1)),
    ((0,),),
    ((-1.0, 3.0),),
    ("pump", "price"),
    ("crew",),
    ("profit",),
    (("worn", "good"), ("low", "mid", "high")),
    (("rest", "fix"),),
)
CSV = """pump,price,crew,profit,next_pump,next_price
good,low,rest,3,good,mid
good,mid,rest,3,worn,mid
worn,mid,fix,-1,good,high
good,high,rest,1,good,low
"""


def log_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(text)
    return path


def test_means_by_hand(tmp_path: Path) -> None:
    fitted = fmdp.fit(log_of(tmp_path, CSV), STRUCTURE, prior=0.5)
    first, second = fitted.model.transitions
    # pump after (worn, rest): never; (worn, fix): good once; (good, rest): worn 1, good 2 times.
    assert first.tolist() == [[0.5, 0.5], [0.25, 0.75], [0.375, 0.625], [0.5, 0.5]]
    # price after (good, low): mid; (good, mid): mid; (good, high): low; (worn, mid): high.
    assert second[3] == pytest.approx([0.2, 0.6, 0.2])
    assert second[1] == pytest.approx([0.2, 0.2, 0.6])
    assert second[0] == pytest.approx([1 / 3] * 3)
    assert fitted.model.rewards[0] == pytest.approx([-1, 7 / 3])
    assert (fitted.steps, fitted.runs, fitted.rows, fitted.rows_seen) == (4, 0, 10, 6)
    assert repr(fitted).startswith("Fit of 4 steps: 6 of 10 rows visited")
    assert fitted.model.name == "log.csv"


def test_without_a_prior_the_frequencies(tmp_path: Path) -> None:
    fitted = fmdp.fit(log_of(tmp_path, CSV), STRUCTURE, prior=0)
    assert fitted.model.transitions[0][2] == pytest.approx([1 / 3, 2 / 3])
    assert fitted.model.transitions[0][0].tolist() == [0.5, 0.5]


STREAM = """run,pump,price,crew,profit
a,good,low,rest,3
a,good,mid,rest,3
a,worn,mid,fix,-1
a,good,high,,
b,good,high,rest,1
b,good,low,,
"""


def same(one: fmdp.Fit, other: fmdp.Fit) -> bool:
    mine, theirs = one.model, other.model
    return mine.intervals == theirs.intervals and all(
        np.array_equal(a, b)
        for a, b in zip(
            mine.transitions + mine.rewards, theirs.transitions + theirs.rewards, strict=True
        )
    )


@pytest.mark.parametrize("rows", [1, 2, 3, 4096])
def test_a_stream_is_the_same_steps_wherever_blocks_end(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the last row of a run the state alone is read."""
    expected = fmdp.fit(log_of(tmp_path, CSV), STRUCTURE)
    monkeypatch.setattr(tables, "ROWS", rows)
    found = fmdp.fit(log_of(tmp_path, STREAM), STRUCTURE)
    assert same(found, expected)
    assert (found.steps, found.runs) == (4, 2)
    assert same(fmdp.fit(log_of(tmp_path, CSV), STRUCTURE), expected)


def test_frames_records_and_other_signs(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    expected = fmdp.fit(log_of(tmp_path, CSV), STRUCTURE)
    frame = pandas.read_csv(io.StringIO(CSV))
    assert same(fmdp.fit(frame, STRUCTURE), expected)
    assert same(fmdp.fit(frame.to_dict("records"), STRUCTURE), expected)
    assert same(fmdp.fit((row for row in frame.to_dict("records")), STRUCTURE), expected)
    for text in (CSV.replace(",", ";"), CSV.replace(",", "\t"), "\ufeff" + CSV, CSV + "\n\n"):
        assert same(fmdp.fit(log_of(tmp_path, text), STRUCTURE), expected)
    by_number = CSV
    for number, name in enumerate(("worn", "good")):
        by_number = by_number.replace(name, str(number))
    assert same(fmdp.fit(log_of(tmp_path, by_number), STRUCTURE), expected)


def test_whole_numbers_that_are_names_are_names(tmp_path: Path) -> None:
    structure = fmdp.Structure(
        (3,), (2,), ((0, 1),), (), (), ("level",), ("a",), (), (("10", "2", "1"),)
    )
    text = "level,a,next_level\n1,0,10\n2,1,1\n"
    fitted = fmdp.fit(log_of(tmp_path, text), structure, prior=0)
    assert fitted.model.transitions[0][4].tolist() == [1, 0, 0]  # level "1" is value 2
    with pytest.raises(InvalidParameter, match=r"line 2, column 'level': there is no value '0'"):
        fmdp.fit(log_of(tmp_path, text.replace("1,0,10", "0,0,10")), structure)


def test_a_recorded_run_is_a_log_of_its_own() -> None:
    pytest.importorskip("pandas")
    model = fmdp.problem("circle:3")
    run = fmdp.simulate(model, "random", 400, seed=2, record=True)
    assert run.trajectory is not None
    fitted = fmdp.fit(run.trajectory.to_frame(), model, prior=0)
    assert (fitted.steps, fitted.runs) == (399, 1)
    agent = fmdp.PSRL().start(model, 0)
    assert fmdp.warm(agent, run.trajectory.to_frame()) == 399
    assert fitted.rows_seen == (agent.statistics.transition_visits > 0).sum()
    estimated = fmdp.estimated_model(agent.statistics)
    for table, other in zip(
        estimated.transitions + estimated.rewards,
        fitted.model.transitions + fitted.model.rewards,
        strict=True,
    ):
        assert table == pytest.approx(other)


def test_alike_rows_are_counted_together() -> None:
    """Two machines of one make: one law, twice the data, narrower intervals."""
    plain = fmdp.Structure((2, 2), (2,), ((0, 2), (1, 2)), ())
    alike = plain.with_factors(
        plain.transition_scopes, (), alike=Alike((np.arange(4), np.arange(4)), ())
    )
    records = [
        {"s0": s, "s1": t, "a0": a, "next_s0": u, "next_s1": v}
        for s, t, a, u, v in np.random.default_rng(0).integers(0, 2, (300, 5)).tolist()
    ]
    one, other = fmdp.fit(records, plain, prior=0), fmdp.fit(records, alike, prior=0)
    assert (one.rows, other.rows) == (8, 4)
    assert np.array_equal(*other.model.transitions)
    for row, (s, a) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        hits = [r[f"next_s{i}"] for r in records for i in (0, 1) if (r[f"s{i}"], r["a0"]) == (s, a)]
        assert other.model.transitions[0][row, 1] == pytest.approx(np.mean(hits))
    widths = [
        (fitted.model.intervals.upper[0] - fitted.model.intervals.lower[0]).mean()  # type: ignore[union-attr]
        for fitted in (one, other)
    ]
    assert widths[1] < 0.75 * widths[0]


def test_rewards_that_a_log_does_not_have_are_the_models(tmp_path: Path) -> None:
    text = "\n".join(
        ",".join(part for place, part in enumerate(line.split(",")) if place != 3)
        for line in CSV.splitlines()
    )
    skeleton = fmdp.FactoredMDP(
        STRUCTURE, [np.full((4, 2), 0.5), np.full((6, 3), 1 / 3)], [[1.5, 2.5]],
        fmdp.Noise("bernoulli"), (1, 2),
    )  # fmt: skip
    fitted = fmdp.fit(log_of(tmp_path, text), skeleton)
    ends = fitted.model.intervals
    assert ends is not None
    for table in (fitted.model.rewards[0], ends.reward_lower[0], ends.reward_upper[0]):
        assert table.tolist() == [1.5, 2.5]
    assert fitted.notes == ("the log has no rewards: those of the model are kept",)
    assert fitted.model.noise == skeleton.noise
    assert fitted.model.initial_state == (1, 2)
    with pytest.raises(InvalidParameter, match="lacks the rewards profit"):
        fmdp.fit(log_of(tmp_path, text), STRUCTURE)


def test_a_strong_prior_stays_inside_its_interval(tmp_path: Path) -> None:
    text = "pump,price,crew,profit,next_pump,next_price\n" + "good,low,rest,3,good,mid\n" * 3000
    fitted = fmdp.fit(log_of(tmp_path, text), STRUCTURE, prior=1000)
    ends = fitted.model.intervals
    assert ends is not None
    assert (ends.lower[0] <= fitted.model.transitions[0]).all()
    assert (fitted.model.transitions[0] <= ends.upper[0]).all()


REFUSED: dict[str, tuple[str, str]] = {
    "an unknown value": (
        CSV.replace("worn,mid,fix", "wron,mid,fix"),
        r"log.csv, line 4, column 'pump': there is no value 'wron'.*good; did you mean \"worn\"",
    ),
    "an unknown next value": (CSV.replace("good,high\n", "good,hihg\n"), "column 'next_price'"),
    "an empty value": (CSV.replace("worn,mid,fix", ",mid,fix"), "line 4, column 'pump': is empty"),
    "a missing column": (
        CSV.replace("price,crew", "prize,crew"),
        "lacks the column 'price' of a state variable.*did you mean \"prize\"",
    ),
    "a missing next column": (CSV.replace("next_price", "nxt_price"), "lacks the column 'next_pri"),
    "a column too much": (
        CSV.replace("profit,", "profit,weather,").replace(",3,", ",3,x,")
        .replace(",-1,", ",-1,x,").replace(",1,", ",1,x,"),
        "column 'weather' is none of the model's variables and rewards",
    ),
    "a repeated column": (CSV.replace("crew,profit", "crew,crew"), "column 'crew' is there twice"),
    "a reward out of its range": (
        CSV.replace("fix,-1", "fix,-2"),
        r"line 4, column 'profit': reward -2 is outside its range \[-1, 3\]",
    ),
    "a reward that is no number": (CSV.replace("fix,-1", "fix,much"), "line 4, column 'profit'"),
    "a reward that is not a number": (CSV.replace("fix,-1", "fix,nan"), "must be a finite number"),
    "a short line": (CSV.replace("worn,mid,fix,-1,good,high", "worn,mid"), "line 4: has 2 values"),
    "a quote without end": (CSV.replace("worn,mid", '"worn,mid'), "is not CSV"),
    "no step": ("pump,price,crew,profit\ngood,low,rest,3\n", "has no step"),
    "two marks": (
        "run,episode,pump,price,crew,profit\n1,1,good,low,rest,3\n1,1,good,low,rest,3\n",
        "both episode and run could say where a stream ends",
    ),
    "nothing": ("", "is empty"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_is_one_line_that_says_where(what: str, tmp_path: Path) -> None:
    text, said = REFUSED[what]
    with pytest.raises(FmdpError, match=said) as caught:
        fmdp.fit(log_of(tmp_path, text), STRUCTURE)
    assert "\n" not in str(caught.value)


def test_other_refusals(tmp_path: Path) -> None:
    log = log_of(tmp_path, CSV)
    with pytest.raises(FileProblem, match="no such file"):
        fmdp.fit(tmp_path / "none.csv", STRUCTURE)
    with pytest.raises(FileProblem, match="no regular file"):
        fmdp.fit(tmp_path, STRUCTURE)
    (tmp_path / "bytes.csv").write_bytes(b"pump\n\xff\xfe\n")
    with pytest.raises(FileProblem, match="not UTF-8"):
        fmdp.fit(tmp_path / "bytes.csv", STRUCTURE)
    with pytest.raises(InvalidParameter, match="a log must be the path"):
        fmdp.fit(5, STRUCTURE)
    record = dict(zip(*(line.split(",") for line in CSV.splitlines()[:2]), strict=True))
    with pytest.raises(InvalidParameter, match="record 1: must have the columns"):
        fmdp.fit([record, {"pomp": "good"}], STRUCTURE)
    with pytest.raises(InvalidParameter, match="must be mappings from columns"):
        fmdp.fit([5], STRUCTURE)
    with pytest.raises(InvalidParameter, match="there is none"):
        fmdp.fit([], STRUCTURE)
    with pytest.raises(InvalidParameter, match="'rho' parameter"):
        fmdp.fit(log, STRUCTURE, rho=1.0)
    with pytest.raises(InvalidParameter, match="'prior' parameter"):
        fmdp.fit(log, STRUCTURE, prior=-1)
    with pytest.raises(InvalidParameter, match="'max_parents' parameter of fit is for"):
        fmdp.fit(log, STRUCTURE, max_parents=3)
    with pytest.raises(InvalidParameter, match=r"no column 'profitt' to ignore.*did you mean"):
        fmdp.fit(log, STRUCTURE, ignore=["profitt"])


def test_an_action_that_is_forbidden(tmp_path: Path) -> None:
    table = np.array([True, False, False, False])  # pump worn: rest is forbidden
    structure = STRUCTURE.with_factors(
        STRUCTURE.transition_scopes,
        STRUCTURE.reward_scopes,
        STRUCTURE.reward_ranges,
        STRUCTURE.reward_names,
        constraints=(Forbidden((0, 2), table, "repair what is worn"),),
    )
    fmdp.fit(log_of(tmp_path, CSV), structure)
    with pytest.raises(InvalidParameter, match='line 4: constraint "repair what is worn" forbids'):
        fmdp.fit(log_of(tmp_path, CSV.replace("mid,fix", "mid,rest")), structure)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    import tracemalloc

    peaks = []
    for lines in (20_000, 80_000):
        path = log_of(tmp_path, CSV[: CSV.index("\n") + 1] + "good,low,rest,3,good,mid\n" * lines)
        tracemalloc.start()
        fmdp.fit(path, STRUCTURE)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_a_warm_learner_is_one_that_looked_on(tmp_path: Path) -> None:
    looked, warmed = (fmdp.PSRL().start(STRUCTURE, 3) for _ in range(2))
    for step in (
        ((1, 0), (0,), (3.0,), (1, 1)),
        ((1, 1), (0,), (3.0,), (0, 1)),
        ((0, 1), (1,), (-1.0,), (1, 2)),
        ((1, 2), (0,), (1.0,), (1, 0)),
    ):
        looked.observe(*step)
    assert fmdp.warm(warmed, log_of(tmp_path, CSV)) == 4
    paths = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for agent, path in zip((looked, warmed), paths, strict=True):
        agent.act((1, 1))
        agent.save(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with pytest.raises(InvalidParameter, match="warm takes an agent"):
        fmdp.warm(fmdp.PSRL(), CSV)  # type: ignore[arg-type]
    text = CSV.replace("profit", "price2")
    agent: Any = fmdp.PSRL().start(STRUCTURE, 0)
    with pytest.raises(InvalidParameter, match="lacks the rewards profit"):
        fmdp.warm(agent, log_of(tmp_path, text), ignore=["price2"])
