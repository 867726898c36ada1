"""Model files: exact round trips, atomic writing, and one-line errors for every kind of flaw."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmdp.errors import FileProblem, FmdpError, InvalidModel
from fmdp.model import FactoredMDP, Noise, Structure, builder, load, save, tables
from fmdp.model.io import files
from fmdp.model.io.files import dumps, loads, write_atomically
from fmdp.problems import problem
from fmdp.testing.strategies import models

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(
    (package_files("fmdp.model") / "schema" / "fmdp-model-1.schema.json").read_text()
)
NAMES = st.text(
    st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=6
)  # printable, any script, quotes and backslashes included


@st.composite
def dressed_models(draw: st.DrawFn) -> FactoredMDP:
    """Models with drawn names of variables, values and factors, groups, and odd floats."""
    model = draw(models())
    s = model.structure
    names = draw(st.lists(NAMES, min_size=len(s.sizes), max_size=len(s.sizes), unique=True))
    structure = replace(
        s,
        state_names=tuple(names[: s.m]),
        action_names=tuple(names[s.m :]),
        reward_names=tuple(draw(st.lists(NAMES, min_size=s.l, max_size=s.l, unique=True))),
        state_values=tuple(
            tuple(draw(st.lists(NAMES, min_size=size, max_size=size, unique=True)))
            for size in s.state_sizes
        ),
        groups=tuple((i,) for i in range(s.m) if draw(st.booleans())),
    )
    noise = [draw(st.sampled_from([Noise(), Noise("gaussian", 0.1 + 0.2)])) for _ in range(s.l)]
    return FactoredMDP(
        structure, model.transitions, model.rewards, noise, model.initial_state, draw(NAMES)
    )


def same_bits(a: FactoredMDP, b: FactoredMDP) -> bool:
    tables = zip(a.transitions + a.rewards, b.transitions + b.rewards, strict=True)
    return a == b and all(x.tobytes() == y.tobytes() for x, y in tables)


@given(st.one_of(models(), dressed_models()))
def test_the_text_of_a_model_gives_the_model_back_bit_for_bit(model: FactoredMDP) -> None:
    text = dumps(model)
    jsonschema.validate(json.loads(text), SCHEMA)
    again = loads(text)
    assert same_bits(again, model)
    assert again.content_hash == model.content_hash
    assert dumps(again) == text


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from([1e-300, 1e-3, 1.0, 50.0]))
def test_any_floats_survive_the_file(seed: int, size: int, concentration: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(size, max(concentration, 0.01)), size=4) + 5e-324
    structure = Structure((size, 4), (1,), ((1,), ()), ((1,),), ((-1e300, 1e300),))
    means = rng.normal(size=4) * 10.0 ** rng.integers(-300, 290, size=4)
    model = FactoredMDP(structure, [rows, [1, 0, 0, 0]], [means])
    assert same_bits(loads(dumps(model)), model)


def test_save_and_load(tmp_path: Path) -> None:
    model = loads(document_text())
    path = tmp_path / "machine.json"
    save(model, path)
    assert load(path) == model
    assert load(str(path)) == model
    assert [p.name for p in tmp_path.iterdir()] == ["machine.json"]


def test_tables_have_one_row_a_line() -> None:
    lines = dumps(loads(document_text())).splitlines()
    assert "        [0.2, 0.8]," in lines
    assert '    {"name": "machine", "size": 2, "values": ["down", "up"]}' in lines


def document_text() -> str:
    """The example of docs/model-file.md, so that the page stays true."""
    page = (ROOT / "docs" / "model-file.md").read_text(encoding="utf-8")
    return page.split("```json\n")[1].split("```")[0]


def document() -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(document_text())
    return parsed


def test_the_documented_example() -> None:
    jsonschema.validate(document(), SCHEMA)
    model = loads(document_text())
    assert model.name == "one machine"
    assert model.initial_state == (1,)
    assert model.transition_row(0, (0,), (1,)).tolist() == [0.2, 0.8]
    assert model.transition_row(0, (1,), (0,)).tolist() == [0.1, 0.9]
    assert model.structure.state_values == (("down", "up"),)
    assert model.structure.reward_names == ("output", "cost")
    assert model.structure.reward_ranges == ((0.0, 1.0), (-0.5, 0.0))
    assert model.noise == (Noise(), Noise("gaussian", 0.1))
    assert model.expected_reward((1,), (1,)) == 0.7


def test_the_documented_error_message() -> None:
    page = (ROOT / "docs" / "model-file.md").read_text(encoding="utf-8")
    flawed = document()
    flawed["transitions"][0]["rows"][2] = [0.1, 0.8]
    with pytest.raises(InvalidModel) as caught:
        loads(json.dumps(flawed), "machine.json")
    assert f"  {caught.value}\n" in page


def test_optional_keys_have_defaults() -> None:
    small = {
        "format": "fmdp-model",
        "version": 1,
        "states": [{"name": "x", "size": 2}, {"name": "y", "size": 1}],
        "actions": [{"name": "a", "values": ["stop", "go"]}],
        "transitions": [{"scope": [], "rows": [[0.5, 0.5]]}, {"scope": [], "rows": [[1]]}],
    }
    jsonschema.validate(small, SCHEMA)
    model = loads(json.dumps(small))
    assert (model.name, model.initial_state, model.structure.l) == ("", (0, 0), 0)
    assert model.structure.action_sizes == (2,)
    assert model.structure.state_values == (("0", "1"), ("0",))


def test_scopes_may_be_in_any_order() -> None:
    swapped = document()
    factor = swapped["transitions"][0]
    factor["scope"] = ["act", "machine"]
    factor["rows"] = [factor["rows"][row] for row in (0, 2, 1, 3)]
    assert loads(json.dumps(swapped)) == loads(document_text())


def test_a_load_checks_every_part_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = problem("circle:3")
    text = dumps(model)
    checked: list[str] = []

    def watched(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def watching(*arguments: Any) -> Any:
            checked.append(name)
            return original(*arguments)

        monkeypatch.setattr(owner, name, watching)

    watched(tables, "as_distributions")
    watched(builder, "reward_table")
    watched(Structure, "_check_variables")
    assert loads(text) == model
    assert checked.count("_check_variables") == 1
    assert checked.count("as_distributions") == model.structure.m
    assert checked.count("reward_table") == model.structure.l


def test_errors_count_rows_as_the_file_does() -> None:
    swapped = document()
    swapped["transitions"][0] |= {"scope": ["act", "machine"]}
    swapped["transitions"][0]["rows"][1] = [0.5, 0.6]
    with pytest.raises(InvalidModel, match=r"row 1 \(act=wait, machine=up\): sums to 1\.1"):
        loads(json.dumps(swapped))


Edit = Callable[[dict[str, Any]], Any]


def put(*path: Any, value: Any) -> Edit:
    """An edit of the example: document[path...] = value."""

    def edit(target: Any) -> None:
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value

    return edit


def drop(*path: Any) -> Edit:
    def edit(target: Any) -> None:
        for key in path[:-1]:
            target = target[key]
        del target[path[-1]]

    return edit


FACTOR = 'transition factor 0 ("machine")'
ROW = ("transitions", 0, "rows")


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (drop("format"), ['"format" is missing', "fmdp-model"]),
        (put("format", value="fmdp-policy"), ['"fmdp-policy"', '"fmdp-model"']),
        (drop("version"), ['"version" is missing']),
        (put("version", value=4), ['"version" is 4', "up to version 3", "newer fmdp"]),
        (put("version", value=0), ['"version" is 0']),
        (put("version", value=True), ['"version" is true']),
        (put("version", value="1"), ['"version" is "1"']),
        (put("state", value=[]), ['unknown key "state"', 'did you mean "states"?']),
        (drop("states"), ['key "states" is missing']),
        (put("states", value={}), ['"states" is an object', "array"]),
        (put("states", value=[]), ["no state variable"]),
        (put("states", 0, value="machine"), ['"states", entry 0 is "machine"', "object"]),
        (drop("states", 0, "name"), ["state variable 0", '"name" is missing']),
        (drop("states", 0, "values"), ['state variable 0 ("machine")', '"size" (or "values")']),
        (put("states", 0, "size", value=3), ['"machine"', "2 value names", "must have 3"]),
        (put("states", 0, "size", value=2.0), ['("machine")', '"size" is 2.0', "whole number"]),
        (put("states", 0, "size", value=-1), ['("machine")', '"size" is -1']),
        (put("states", 0, "size", value=10**12), ['("machine")', "1000000000000", "1..16777216"]),
        (put("states", 0, "values", value=[]), ['("machine")', '"values" is []', "at least one"]),
        (put("states", 0, "values", 0, value=[1]), ['"values", entry 0 is [1]', "string"]),
        (put("states", 0, "valeus", value=1), ['unknown key "valeus"', 'did you mean "values"?']),
        (put("actions", 0, "name", value="machine"), ['"machine"', "twice"]),
        (put("actions", 0, "name", value=7), ["action variable 0", '"name" is 7', "string"]),
        (put("name", value=None), ['"name" is null', "string"]),
        (put("initial_state", value=[2]), ["initial state (2,)", '"machine" is 2', "0..1"]),
        (put("initial_state", value=[True]), ['"initial_state", entry 0 is true']),
        (put("initial_state", value=["u"]), ['"machine" has no value "u"', 'mean "up"?']),
        (put("initial_state", value="up"), ['"initial_state" is "up"; must be an array']),
        (put("initial_state", value=[[0]]), ['"initial_state", entry 0', "name of a value"]),
        (put("initial_state", value={}), ['initial state: "machine" is missing']),
        (put("initial_state", value={"machine": 2}), ['"machine" is 2; must be in 0..1']),
        (put("initial_state", value={"machin": 1}), ['called "machin"', 'mean "machine"?']),
        (put("initial_state", value={"machine": None}), ['"machine" is None; must be in 0..1']),
        (put("groups", value=[["act"]]), ["group 0", "0..0"]),
        (put("groups", value=[["machin"]]), ["group 0", '"machin"', 'did you mean "machine"?']),
        (put("groups", value=["machine"]), ['"groups", entry 0 is "machine"', "array"]),
        (put("transitions", value=[]), ["0 entries", "1 state variables"]),
        (put("transitions", 0, value=[]), ['"transitions", entry 0', "object"]),
        (put("transitions", 0, "state", value="x"), [FACTOR, '"state" is "x"', '"machine"']),
        (drop("transitions", 0, "rows"), [FACTOR, '"rows" is missing']),
        (put("transitions", 0, "row", value=1), [FACTOR, '"row"', 'did you mean "rows"?']),
        (put("transitions", 0, "scope", 1, value="at"), [FACTOR, '"at"', 'did you mean "act"?']),
        (put("transitions", 0, "scope", 1, value=0), [FACTOR, "scope, entry 1 is 0", "name"]),
        (put("transitions", 0, "scope", 1, value="machine"), [FACTOR, "twice"]),
        (put("transitions", 0, "scope", value="act"), [FACTOR, '"act"', "array"]),
        (put(*ROW, value=3), [FACTOR, '"rows" is 3', "array"]),
        (put(*ROW, value=[[1, 0]]), [FACTOR, "1 rows; must have 4", "act of size 2"]),
        (
            put(*ROW, 1, value=0.5),
            [FACTOR, "row 1 (machine=down, act=repair)", "0.5", "array of 2"],
        ),
        (put(*ROW, 2, value=[1]), [FACTOR, "row 2 (machine=up, act=wait)", "1 prob", "have 2"]),
        (put(*ROW, 2, 0, value="0.1"), [FACTOR, "row 2", 'value 0 is "0.1"', "number"]),
        (put(*ROW, 2, 1, value=None), [FACTOR, "row 2", "value 1 is null"]),
        (put(*ROW, 3, 1, value=True), [FACTOR, "row 3", "value 1 is true"]),
        (put(*ROW, 3, 1, value=[1]), [FACTOR, "row 3", "value 1 is [1]"]),
        (put(*ROW, 3, 1, value=10**400), [FACTOR, "row 3", "value 1 is 1000", "number"]),
        (put(*ROW, 3, value=[-0.25, 1.25]), [FACTOR, "row 3 (machine=up, act=repair)", "-0.25"]),
        (put(*ROW, value=[[[1]]] * 4), [FACTOR, "row 0", "1 prob"]),
        (put("rewards", value=None), ['"rewards" is null', "array"]),
        (put("rewards", 0, "mean", value=0), ["reward factor 0", 'did you mean "means"?']),
        (put("rewards", 0, "name", value="cost"), ["reward name", '"cost"', "twice"]),
        (put("rewards", 1, "means", 1, value=-0.6), ['1 ("cost"), row 1 (act=repair)', "-0.6"]),
        (put("rewards", 1, "means", 1, value="a"), ['1 ("cost"), row 1 (act=repair)', '"a"']),
        (put("rewards", 1, "means", value=[0]), ['1 ("cost")', '"means" has 1 rows', "have 2"]),
        (put("rewards", 1, "range", value=[0]), ['1 ("cost")', '"range" is [0]', "[lo, hi]"]),
        (put("rewards", 1, "range", value=[0, "1"]), ['1 ("cost")', '"range", entry 1 is "1"']),
        (put("rewards", 1, "range", value=[1, 0]), ['1 ("cost")', "[1.0, 0.0]", "lo <= hi"]),
        (put("rewards", 1, "noise", value="none"), ['1 ("cost"), noise is "none"', "object"]),
        (put("rewards", 1, "noise", "kind", value="normal"), ['1 ("cost")', "'normal'", "one of"]),
        (put("rewards", 1, "noise", "scale", value=0), ['1 ("cost")', "scale is 0.0", "above 0"]),
        (put("rewards", 1, "noise", "scale", value="1"), ['1 ("cost")', '"scale" is "1"']),
    ],
)
def test_errors_name_the_culprit(edit: Edit, words: list[str]) -> None:
    flawed = document()
    edit(flawed)
    with pytest.raises((FileProblem, InvalidModel)) as caught:
        loads(json.dumps(flawed), "the-file.json")
    message = str(caught.value)
    assert message.startswith("the-file.json: ")
    assert "\n" not in message
    assert len(message) < 400
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["not valid JSON", "line 1, column 1"]),
        ('{\n"format": "fmdp-model",', ["not valid JSON, or cut short", "line 2, column"]),
        ("not json", ["not valid JSON", "line 1"]),
        ("[1, 2]", ["is [1, 2]", "must be a JSON object"]),
        ("null", ["is null"]),
        ('{"format": NaN}', ["NaN", "finite"]),
        ('{"format": -Infinity}', ["-Infinity", "finite"]),
        ('{"format": 1, "version": 1, "format": 2}', ['key "format" occurs twice']),
        ('{"a": {"x\\n": 1, "x\\n": 1}}', ["occurs twice"]),
        ("[" * 100_000, ["nested too deeply"]),
        ("1" * 5000, ["number cannot be read"]),
    ],
)
def test_text_that_is_no_model_file(text: str, words: list[str]) -> None:
    with pytest.raises(FileProblem) as caught:
        loads(text, "the-file.json")
    message = str(caught.value)
    assert message.startswith("the-file.json: ")
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_number_beyond_floats_is_named() -> None:
    text = document_text().replace("[0.2, 0.8]", "[0.2, 1e999]")
    with pytest.raises(InvalidModel, match=r"row 1 \(machine=down, act=repair\).* value 1 is inf"):
        loads(text)


def read_or_refused_in_one_line(text: str) -> bool:
    """Any other exception than ours goes through and fails the test."""
    try:
        loads(text, "f")
    except FmdpError as error:
        return str(error).startswith("f: ") and "\n" not in str(error)
    return True


@given(st.data())
def test_whatever_is_cut_or_replaced_the_error_is_ours(data: st.DataObject) -> None:
    """Random damage to a good file: either it still reads, or it is one line of our own."""
    text = document_text()
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 40)))
    scraps = st.sampled_from(
        ["", "0", "-1", '"x"', "null", "[]", "{}", "[[]]", "1e400", "true", ","]
    )
    damaged = text[:start] + data.draw(scraps) + text[stop:]
    assert read_or_refused_in_one_line(damaged)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
PLACES = [
    ("name",),
    ("states",),
    ("states", 0),
    ("states", 0, "name"),
    ("states", 0, "values"),
    ("actions",),
    ("actions", 0, "size"),
    ("initial_state",),
    ("groups",),
    ("transitions",),
    ("transitions", 0),
    ("transitions", 0, "scope"),
    ROW,
    (*ROW, 0),
    (*ROW, 0, 0),
    ("rewards",),
    ("rewards", 0),
    ("rewards", 0, "range"),
    ("rewards", 0, "noise"),
    ("rewards", 0, "means"),
    ("rewards", 1, "noise", "kind"),
    ("rewards", 1, "noise", "scale"),
]


@given(st.sampled_from(PLACES), JSON)
def test_any_json_in_any_place_is_read_or_refused_in_one_line(
    place: tuple[Any, ...], value: Any
) -> None:
    changed = document()
    put(*place, value=value)(changed)
    assert read_or_refused_in_one_line(json.dumps(changed))


def test_missing_file_directory_and_bytes_that_are_not_text(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match=r"nowhere\.json: no such file; must be a model file"):
        load(tmp_path / "nowhere.json")
    with pytest.raises(FileProblem, match="is a directory; must be a model file"):
        load(tmp_path)
    binary = tmp_path / "binary.json"
    binary.write_bytes(b'{"format": "\xff"}')
    with pytest.raises(FileProblem, match=r"binary\.json: byte 12 is not UTF-8"):
        load(binary)
    with pytest.raises(FileProblem, match="cannot be read"):
        load(binary / "below")
    with pytest.raises(FileProblem, match=r"\\udcff: no such file"):
        load(os.fsdecode(b"\xff"))
    with pytest.raises(FileProblem, match="cannot be read"):
        load("nul\0byte.json")


def test_a_byte_order_mark_is_no_flaw(tmp_path: Path) -> None:
    path = tmp_path / "marked.json"
    path.write_text(document_text(), encoding="utf-8-sig")
    assert load(path) == loads(document_text())


def test_saving_where_one_cannot(tmp_path: Path) -> None:
    model = loads(document_text())
    with pytest.raises(FileProblem, match="is a directory; must be a file, or a new name"):
        save(model, tmp_path)
    with pytest.raises(FileProblem, match=r"model\.json: cannot be written \(No such file"):
        save(model, tmp_path / "nowhere" / "model.json")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(FileProblem, match="cannot be written"):
        save(model, loop)
    assert list(tmp_path.iterdir()) == [loop]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "model.json"
    path.write_text("the old content")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(FileProblem, match=r"model\.json: cannot be written \(No space left"):
        save(loads(document_text()), path)
    assert path.read_text() == "the old content"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_write_leaves_the_old_file_and_is_not_swallowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.json"
    path.write_text("the old content")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new")
    assert path.read_text() == "the old content"
    assert list(tmp_path.iterdir()) == [path]


def test_writing_keeps_permissions_and_links(tmp_path: Path) -> None:
    path, link = tmp_path / "model.json", tmp_path / "link.json"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_pipe_or_device_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileProblem, match="pipe: is not a regular file"):
        write_atomically(pipe, "content")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    write_atomically(tmp_path / "written", b"bytes")
    assert (tmp_path / "written").read_bytes() == b"bytes"
    assert (tmp_path / "written").stat().st_mode == ordinary.stat().st_mode


def test_a_long_file_name_leaves_room_for_the_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 127)  # 254 bytes
    write_atomically(path, "content")
    assert path.read_text() == "content"


def test_a_model_of_many_variables(tmp_path: Path) -> None:
    n = 2000
    model = FactoredMDP.from_factors(
        (2,) * n, (2,), [([i, (i + 1) % n], np.full((2, 2, 2), 0.5)) for i in range(n)]
    )
    save(model, tmp_path / "ring.json")
    assert load(tmp_path / "ring.json") == model


def test_what_a_kill_has_left_is_removed_by_the_next_writer(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import os, signal, sys
        from fmdp.model.io import files
        os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
        files.write_atomically(sys.argv[1], "half of it")
    """)
    target = tmp_path / "model.json"
    target.write_text("old")
    words = [sys.executable, "-c", program, str(target)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert target.read_text() == "old"
    (left,) = tmp_path.glob(".fmdp-*.tmp")
    with left.open("rb") as held:  # by a writer that is at work
        assert files.locked(held.fileno())
        files.write_atomically(target, "new")
        assert left.exists()
    files.write_atomically(target, "newer")
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]
    assert target.read_text() == "newer"
