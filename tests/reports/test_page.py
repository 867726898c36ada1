"""The page: one file, nothing from the network, no text of the store as markup, numbers intact."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fmdp.experiments.analysis import analyse
from fmdp.experiments.dataset import gather
from fmdp.experiments.store import Store
from fmdp.model import FactoredMDP, Structure
from fmdp.reports import page as page_module
from fmdp.reports.page import Texts, as_script, page

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"&'<!--"


def page_of(
    directory: Path, paragraphs: tuple[str, ...] = (), featured: tuple[str, ...] = ()
) -> str:
    with Store.open(directory) as store:
        runs = gather(store)
        return page(store, runs, analyse(runs), Texts(paper=paragraphs), featured)


class Elements(HTMLParser):
    """Every start tag with its attributes, and the text of every script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.lasttag in ("script", "style"):
            self.inside.append((self.lasttag, data))


def data_of(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def unpacked(packed: dict[str, str]) -> np.ndarray:
    raw = zlib.decompress(base64.b64decode(packed["data"]))
    return np.frombuffer(raw, f"<{packed['type']}")


def test_numbers_of_the_page_are_those_of_the_report(two_problems: Path) -> None:
    data = data_of(page_of(two_problems))
    with Store.open(two_problems) as store:
        runs = gather(store)
        analysis = analyse(runs)
        for problem, shown in zip(runs.problems, data["problems"], strict=True):
            assert shown["name"] == problem.name
            for cell, drawn in zip(problem.cells, shown["cells"], strict=True):
                assert drawn["t"] == cell.t.tolist()
                for measure, values in cell.curves.items():
                    low, median, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
                    for name, exact in (("low", low), ("median", median), ("high", high)):
                        np.testing.assert_allclose(
                            drawn["curves"][measure][name], exact, rtol=1e-5, atol=1e-12
                        )
    shown = [
        (row["problem"], row["label"], row["measure"], row["median"]) for row in data["summaries"]
    ]
    assert sorted(shown) == sorted(
        (found.cell.problem, found.cell.label, measure, summary.median)
        for found in analysis.summaries
        for measure, summary in found.by_measure.items()
    )
    for name in {row["problem"] for row in data["summaries"]}:
        medians = [median for problem, _, _, median in shown if problem == name]
        assert medians == sorted(medians)
    assert [row["adjusted"] for row in data["comparisons"]] == [
        comparison.adjusted for comparison in analysis.comparisons
    ]


def test_the_replay_is_the_recording(two_problems: Path) -> None:
    data = data_of(page_of(two_problems))
    with Store.open(two_problems) as store:
        for problem, shown in zip(gather(store).problems, data["problems"], strict=True):
            for cell, drawn in zip(problem.cells, shown["cells"], strict=True):
                assert cell.recorded is not None
                kept, recording = drawn["replay"], store.recording(cell.recorded.key)
                assert recording is not None
                np.testing.assert_array_equal(unpacked(kept["states"]), recording.states.ravel())
                np.testing.assert_array_equal(unpacked(kept["actions"]), recording.actions.ravel())
                rewards = unpacked(kept["rewards"])
                np.testing.assert_array_equal(rewards, recording.rewards.sum(axis=1))
                # The regret at the end of the replay is the stored one.
                regret = kept["gain"] * kept["steps"] - rewards.sum()
                assert regret == pytest.approx(cell.recorded.measures["regret"])
                assert kept["times"] == recording.times.tolist()


def test_a_long_recording_is_cut_and_says_so(
    two_problems: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "MOST_REPLAYED", 50)
    kept = data_of(page_of(two_problems))["problems"][0]["cells"][0]["replay"]
    assert (kept["steps"], kept["of"]) == (50, 200)
    assert len(unpacked(kept["states"])) == 51 * 3
    assert kept["times"][-1] <= 50
    assert len(kept["uncertainty"]) == len(kept["times"])


def test_the_same_store_gives_the_same_page(two_problems: Path) -> None:
    assert page_of(two_problems) == page_of(two_problems)


def test_the_page_asks_for_nothing(two_problems: Path) -> None:
    text = page_of(two_problems)
    elements = Elements(text)
    for tag, attributes in elements.tags:
        assert tag not in ("img", "iframe", "object", "embed", "link", "base", "form")
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert "style" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}


def test_only_our_script_and_style_may_run(two_problems: Path) -> None:
    elements = Elements(page_of(two_problems))
    policy = next(
        attributes["content"] or ""
        for tag, attributes in elements.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")
    texts = {
        kind: [text for tag, text in elements.inside if tag == kind and text.strip()]
        for kind in ("script", "style")
    }
    assert len(texts["style"]) == 1
    assert len(texts["script"]) == 2  # the data, which is not run, and the script
    for kind, text in (("style", texts["style"][0]), ("script", texts["script"][1])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def evil_model() -> FactoredMDP:
    structure = Structure(
        state_sizes=(2, 2),
        action_sizes=(2,),
        transition_scopes=((0, 2), (0, 1, 2)),
        reward_scopes=((0,),),
        state_names=(EVIL, "other"),
        action_names=(f"act {EVIL}",),
        state_values=((EVIL, "up"), ("0", "1")),
        action_values=((EVIL, "1"),),
    )
    return FactoredMDP(
        structure,
        transitions=[np.full((4, 2), 0.5), np.full((8, 2), 0.5)],
        rewards=[[0.0, 1.0]],
        name=f"problem {EVIL}",
    )


def test_text_from_the_store_is_never_markup(made: ModuleType, tmp_path: Path) -> None:
    learners = [made.MadeLearner(EVIL, EVIL, 1.0, {EVIL: EVIL}, EVIL, {EVIL: EVIL})]
    made.make_store(
        tmp_path,
        problems=[evil_model(), "circle:3"],
        learners=learners,
        steps=20,
        name=EVIL,
        title=EVIL,
        seeds=range(2),
    )
    text = page_of(tmp_path, (EVIL,))
    elements = Elements(text)
    assert [tag for tag, _ in elements.tags if tag in ("script", "img")] == ["script", "script"]
    assert text.count("<script") == text.count("</script>") == 2
    assert "<!--" not in text
    data = data_of(text)
    assert data["problems"][0]["name"] == f"problem {EVIL}"
    assert data["labels"][0]["label"] == EVIL


def test_json_in_a_script_cannot_end_it() -> None:
    assert "<" not in as_script({EVIL: EVIL})
    assert json.loads(as_script({EVIL: [EVIL, 1.5]})) == {EVIL: [EVIL, 1.5]}


def test_a_store_with_nothing_recorded_has_a_page(made: ModuleType, tmp_path: Path) -> None:
    made.make_store(
        tmp_path,
        problems=["circle:3"],
        gap=False,
        missing=[(learner.label, 0) for learner in made.LEARNERS],
    )
    data = data_of(page_of(tmp_path))
    assert [cell["replay"] for cell in data["problems"][0]["cells"]] == [None] * 6
    assert [measure["key"] for measure in data["measures"]] == ["regret"]


def test_of_many_variants_the_best_are_shown_at_first(made: ModuleType, tmp_path: Path) -> None:
    learners = [
        made.MadeLearner(f"{name} {scale}", name, float(scale), {"c": scale})
        for name in ("psrl", "dorl")
        for scale in range(1, 10)
    ]
    made.make_store(tmp_path, problems=["circle:3"], learners=learners, steps=40, seeds=range(2))
    labels = data_of(page_of(tmp_path))["labels"]
    assert len(labels) == 18
    shown = [label["label"] for label in labels if label["shown"]]
    assert {name.split()[0] for name in shown} == {"psrl", "dorl"}
    assert len(shown) <= 4  # the best by realised and by gap regret
    assert "dorl 9" not in shown
    labels = data_of(page_of(tmp_path, featured=("dorl 9",)))["labels"]
    assert {label["label"] for label in labels if label["shown"]} == {*shown, "dorl 9"}


def test_the_replay_has_the_learned_scopes(made: Any, tmp_path: Path) -> None:
    """Frame by frame, how sure a learner is that one machine depends on another."""
    learners = [
        made.MadeLearner("known", "default", 1.0),
        made.MadeLearner("unknown", "default", 1.0, {"scopes": "unknown", "parents": 2}),
    ]
    folder = made.make_store(
        tmp_path / "store",
        problems=["circle:4,dynamics=guestrin"],
        learners=learners,
        seeds=[0],
        steps=1500,
    )
    cells = data_of(page_of(folder))["problems"][0]["cells"]
    by_label = {cell["label"]: cell["replay"] for cell in cells}
    assert by_label["known"]["edges"] is None
    kept = by_label["unknown"]
    assert len(kept["edges"]) == len(kept["times"])
    # Without steps every other machine is a parent with the same probability: one of three sizes,
    # and 1 or 2 of 4 machines.
    assert {sure for _, _, sure in kept["edges"][0]} == {round((1 / 4 + 2 / 4) / 3, 2)}
    assert len(kept["edges"][0]) == 4 * 3
    sure = {(a, b) for a, b, probability in kept["edges"][-1] if probability > 0.9}
    assert sure
    assert sure <= {(i, (i + 1) % 4) for i in range(4)}
