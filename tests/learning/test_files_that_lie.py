"""Learner files whose checksum is right and whose content is not: none reaches compiled code.

`lengths of warm vectors were not checked`: a saved DORL of circle:9 with a shorter one, loaded and
simulated, ended in SIGSEGV or SIGABRT. So every array is tried shorter, longer, of another type,
with entries that are no numbers or out of range; and what the counts say is compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp import load_agent
from fmdp._base.archives import pack
from fmdp.errors import FileProblem
from fmdp.simulation import Simulation

from .test_learners import MODEL, REFERENCE

LEARNERS: dict[str, Any] = {
    "exact": fmdp.DORL(planner="exact,ties=first"),
    "vertex": fmdp.DORL(targets="vertex"),
    "plain": fmdp.PSRL(),
    "span": fmdp.FSRL(),
    "searched": fmdp.FSRL(budget=2.0, split="search"),
    "cuts": fmdp.DORL(planner="alp"),
    "factored": fmdp.PSRL(planner="alp,method=factored"),
    "average": fmdp.PSRL(planner="alp,criterion=average"),
    "random": fmdp.Random(),
    "oracle": fmdp.Oracle(),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("learners")
    made = {}
    for name, learner in LEARNERS.items():
        agent = learner.start(MODEL, 0)
        Simulation(MODEL, agent, reference=REFERENCE).run(30)
        agent.save(folder / name)
        made[name] = (folder / name).read_bytes()
    return made


def parts(content: bytes, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    (folder / "parts").write_bytes(content)
    with np.load(folder / "parts", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(str(arrays.pop("header"))), arrays


def refused(
    header: dict[str, Any], arrays: dict[str, Any], path: Path, said: str = "learner"
) -> None:
    path.write_bytes(pack(header, arrays))
    with pytest.raises(FileProblem, match=said) as caught:
        load_agent(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def lies(array: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """The array as no other can be in its place."""
    kind = array.dtype
    many = [array[:-1], np.append(array, array[-1:]).astype(kind), array.reshape(1, -1)]
    many += [array.astype(np.float32), array.astype(kind.newbyteorder(">"))]
    if kind.kind == "f":
        many += [array * np.nan, array + np.inf]
    elif kind.kind == "i":
        many += [array - kind.type(100)]
    return [one for one in many if array.size or one.size]


@pytest.mark.parametrize("name", LEARNERS)
def test_no_array_of_another_form_is_taken(
    name: str, files: dict[str, bytes], tmp_path: Path
) -> None:
    header, arrays = parts(files[name], tmp_path)
    path = tmp_path / "learner.npz"
    path.write_bytes(pack(header, arrays))
    assert load_agent(path).steps == 30  # written again as it was, it is a learner
    tried = 0
    for part, array in arrays.items():
        for lie in lies(array):
            if part == "limits" and lie.shape == (0,) and lie.dtype == np.int64:
                continue  # no limits
            if part == "policy" and lie.shape == (array.size + 1,):
                continue  # an archive may have something behind it
            if lie.dtype == array.dtype and np.array_equal(lie, array):
                continue  # a single byte has no order
            refused(header, {**arrays, part: lie}, path)
            tried += 1
    assert tried > 15
    for part in arrays:
        if part == "policy" or part.startswith("counts."):
            refused(header, {own: arrays[own] for own in arrays if own != part}, path, "missing")


def test_a_warm_vector_of_another_length_is_refused(tmp_path: Path) -> None:
    """The report, as it was made: it ended the process."""
    model = fmdp.problem("circle:9")
    agent = fmdp.DORL().start(model, 0)
    agent.act(model.initial_state)
    agent.save(tmp_path / "learner.npz")
    header, arrays = parts((tmp_path / "learner.npz").read_bytes(), tmp_path)
    arrays["warm.nested"] = arrays["warm.nested"][:5]
    refused(
        header, arrays, tmp_path / "learner.npz", r"'nested' has shape \(5,\); must have \(512\)"
    )


Change = Callable[[dict[str, Any], dict[str, Any]], None]


def _set(place: str, value: Any) -> Change:
    def change(header: dict[str, Any], arrays: dict[str, Any]) -> None:
        *path, last = place.split("/")
        inner = header
        for key in path:
            inner = inner[key]
        inner[last] = value

    return change


def _add(part: str, value: float, entry: int = 0) -> Change:
    def change(header: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays[part] = arrays[part].copy()
        arrays[part][entry] += value

    return change


def _huge(header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Statistics of so many rows would be allocated before the counts are compared."""
    header["structure"] |= {"state_sizes": [2, 2, 2**16], "state_values": []}


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("plain", _add("counts.visits", 1), "not of the same number of steps"),
        ("plain", _add("counts.cells", 1), "not those of the visits"),
        ("plain", _add("counts.cells", 2**60), "allowed: 0 to"),
        ("plain", _add("counts.reward_sums", 1e6), "sums of rewards are outside"),
        ("plain", _add("counts.reward_sums", np.nan), "no finite numbers"),
        ("searched", _add("warm.split.nested", 0.5), "must add up to 1|allowed: 0.0 to 1.0"),
        ("exact", _add("warm.nested", 1e305), "allowed"),
        ("cuts", _add("warm.optimistic.first.head0", 1000), "no maxima"),
        ("cuts", _add("warm.optimistic.first.at0", 10**6), "allowed: 0 to"),
        ("cuts", _add("warm.optimistic.first.start0", 1), "does not divide"),
        ("cuts", _add("warm.optimistic.first.columns", 9), "from 0 to 4"),
        ("factored", _add("warm.plain.first.rows", 9), "from 0 to 4"),
        ("plain", _set("state/steps", -1), "'steps' must be a whole number"),
        ("plain", _set("state/steps", 1.5), "'steps' must be a whole number"),
        ("plain", _set("state/steps", 10**400), "'steps' must be a whole number"),
        ("plain", _set("state/length", 0), "'length' must be a whole number"),
        ("plain", _set("state/over", "no"), "'over' must be true or false"),
        ("random", _set("state/length", 3), "must be over after 3 steps; got 30"),
        ("plain", _set("state/drawn", [-1]), "drawn action"),
        ("random", _set("state/drawn", [-1]), "drawn action"),
        ("random", _set("state/drawn", [10**6]), "drawn action"),
        ("random", _set("state/drawn", "x"), "drawn action"),
        ("plain", _set("state/reason", 5), "'reason' must be a text"),
        ("plain", _set("state/memory", 5), "'memory' must be an object"),
        ("span", _set("state/memory", {}), "must have 'doubling'"),
        ("span", _set("state/memory/doubling", {}), "of a budget must be"),
        ("span", _set("state/memory/doubling/budget", float("nan")), "budget of a budget must be"),
        ("span", _set("state/memory/doubling/refuted", 1.5), "refuted of a budget must be a whole"),
        ("plain", _set("generator/bit_generator", "Own"), "unknown bit generator"),
        ("plain", _set("generator/state/inc", 4), "'inc' of its generator"),
        ("plain", _set("generator/state/state", -1), "'state' of its generator"),
        ("plain", _set("generator/has_uint32", 7), "'has_uint32' of its generator"),
        ("plain", _huge, "a factor has"),
        ("plain", _set("structure/transition_scopes", [[0], [1], [99]]), "scope has variable 99"),
        ("plain", _set("structure/reward_ranges", [[0, 0]] * 3), "sums of rewards are outside"),
        ("plain", _set("structure", []), "'structure' must be an object"),
        ("plain", _set("learner", ["psrl"]), "unknown learner"),
        ("plain", _set("settings", []), "'settings' must be an object"),
        ("plain", _set("settings", {"c": [[1]]}), "'c' parameter"),
        ("plain", _set("planner", {"name": "exact", "settings": {"depth": 1}}), "lacks a part"),
        ("plain", _set("planner", {"name": ["exact"], "settings": {}}), "lacks a part"),
        ("plain", _set("planner", {"name": "exact", "settings": {"tolerance": -1}}), "tolerance"),
        ("oracle", _set("model", "{}"), 'its model: key "format" is missing'),
        ("oracle", _set("model", 7), "'model' must be a text"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    name: str, change: Change, said: str, files: dict[str, bytes], tmp_path: Path
) -> None:
    header, arrays = parts(files[name], tmp_path)
    change(header, arrays)
    refused(header, arrays, tmp_path / "learner.npz", said)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [("MT19937", "pos", 10**6), ("MT19937", "pos", -5), ("Philox", "buffer_pos", -(10**6))],
)
def test_numpy_would_read_where_the_position_points(
    name: str, key: str, value: int, tmp_path: Path
) -> None:
    generator = np.random.Generator(getattr(np.random, name)(7))
    fmdp.PSRL().start(MODEL.structure, generator).save(tmp_path / "learner.npz")
    header, arrays = parts((tmp_path / "learner.npz").read_bytes(), tmp_path)
    state = header["generator"]
    (state["state"] if key in state["state"] else state)[key] = value
    refused(header, arrays, tmp_path / "learner.npz", f"'{key}' of its generator is none")


def test_a_flipped_bit_is_refused_or_changes_nothing(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    content = bytearray(files["exact"])
    path = tmp_path / "learner.npz"
    generator = np.random.default_rng(0)
    n_refused = 0
    for bit in generator.choice(8 * len(content), size=300, replace=False).tolist():
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        try:
            agent = load_agent(path)
        except FileProblem:
            n_refused += 1
        else:
            agent.save(path)
            assert path.read_bytes() == files["exact"]
        content[bit // 8] ^= 1 << bit % 8
    assert n_refused > 200
