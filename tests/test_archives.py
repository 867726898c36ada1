"""Files that lie: what they are, how large they are, and what they hold; each refused in a line."""

from __future__ import annotations

import io
import json
import os
import pickle
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp import TablePolicy
from fmdp._base import archives
from fmdp._base.archives import pack, read_file, unpack
from fmdp.errors import FileProblem, FmdpError
from fmdp.model.io.files import parse_json
from fmdp.planning.policies.archive import policy_digest
from fmdp.planning.policies.files import load_policy

HEADER = {"format": "box", "version": 1, "name": "x"}
ARRAYS = {"a": np.arange(6).reshape(2, 3), "b": np.array([True, False]), "empty": np.zeros(0)}


def opened(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    return unpack(content, "FILE", what="box", form="box", version=1)


def refused(content: bytes) -> str:
    with pytest.raises(FileProblem) as caught:
        opened(content)
    assert "FILE" in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_goes_in_comes_out_and_is_the_same_file_every_time() -> None:
    content = pack(HEADER, ARRAYS)
    header, arrays = opened(content)
    assert header == HEADER
    assert arrays.keys() == ARRAYS.keys()
    assert all(np.array_equal(arrays[name], ARRAYS[name]) for name in ARRAYS)
    assert all(arrays[name].dtype == ARRAYS[name].dtype for name in ARRAYS)
    assert pack(HEADER, ARRAYS) == content
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:  # anybody can read it
        assert json.loads(str(archive["header"]))["digest"].startswith("sha256:")


def test_every_flipped_bit_and_every_cut_is_refused_or_changes_nothing() -> None:
    content = bytearray(pack(HEADER, ARRAYS))
    n_refused = 0
    for bit in range(8 * len(content)):
        content[bit // 8] ^= 1 << bit % 8
        try:
            header, arrays = opened(bytes(content))
        except FileProblem:
            n_refused += 1
        else:  # the hour in the directory, the version of the packer
            assert header == HEADER
            assert all(np.array_equal(arrays[name], ARRAYS[name]) for name in ARRAYS)
        content[bit // 8] ^= 1 << bit % 8
    assert n_refused > 4 * len(content)
    for length in range(len(content)):
        refused(bytes(content[:length]))


def rezipped(content: bytes, change: Callable[[str, bytes], bytes], **how: Any) -> bytes:
    """The archive with other members, zipped as anybody can."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w", **how) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return stream.getvalue()


def test_content_that_was_changed_is_not_that_of_the_checksum() -> None:
    def flip(name: str, data: bytes) -> bytes:
        return data[:-1] + bytes([data[-1] ^ 1]) if name == "a.npy" else data

    assert "damaged: its checksum" in refused(rezipped(pack(HEADER, ARRAYS), flip))


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", "no plain array|array of"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999,), }\n", "another size"),
        ("{'descr': '<f8', 'fortran_order': True, 'shape': (1,), }\n", "no plain array"),
        ("{'descr': [('x', '<f8')], 'fortran_order': False, 'shape': (1,), }\n", "no plain array"),
        ("__import__('os').abort()\n", "no plain array"),
    ],
)
def test_an_array_that_is_none_is_refused_before_it_is_made(layout: str, said: str) -> None:
    def lie(name: str, data: bytes) -> bytes:
        text = layout.encode()
        return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + b"\0" * 8

    with pytest.raises(FileProblem, match=said):
        opened(rezipped(pack(HEADER, {}), lie))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_another_packing_is_refused(method: int) -> None:
    content = rezipped(pack(HEADER, ARRAYS), lambda _, data: data, compression=method)
    assert "packed in a way" in refused(content)


def test_a_header_is_an_object_of_its_format_and_version() -> None:
    for text in ("[]", "1", "NaN", "{", "[" * 100_000, "9" * 5000):
        arrays = {"header": np.array(text)}
        stream = io.BytesIO()
        np.savez(stream, **arrays)  # type: ignore[arg-type]
        assert "is not a box file" in refused(stream.getvalue())
    assert "its format is not box" in refused(pack(HEADER | {"format": "bag"}, {}))
    assert "has box version 7; this fmdp reads 1" in refused(pack(HEADER | {"version": 7}, {}))


def test_arrays_of_objects_are_not_written() -> None:
    with pytest.raises(TypeError, match="array of object"):
        pack(HEADER, {"a": np.array([{}], dtype=object)})


# ---- sizes ---------------------------------------------------------------------------------------


def test_a_small_file_that_is_large_unpacked_is_refused_by_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = TablePolicy((2,) * 22, (2,), np.zeros(1 << 22, dtype=np.uint8))
    policy.save(tmp_path / "policy.npz")
    assert (tmp_path / "policy.npz").stat().st_size < 1 << 14
    monkeypatch.setattr(archives, "available_memory", lambda: 1 << 22)
    monkeypatch.setattr(np, "empty", lambda *_, **__: pytest.fail("allocated"))
    with pytest.raises(FileProblem, match=r"policy.npz: reading it takes about .* MB; must be at"):
        load_policy(tmp_path / "policy.npz")


def test_a_large_file_is_refused_by_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.json"
    with path.open("wb") as file:
        file.truncate(1 << 42)  # a hole: nothing is on the disk
    for reader in (fmdp.load, load_policy, fmdp.load_agent):
        with pytest.raises(FileProblem, match="reading it takes about 4 TB"):
            reader(path)
    path.write_text("[" + "[]," * 100_000 + "[]]")
    monkeypatch.setattr(archives, "available_memory", lambda: 8 << 20)
    with pytest.raises(FileProblem, match=r"model.json: reading it takes about 13.* MB"):
        fmdp.load(path)


def test_the_memory_that_a_json_text_takes_is_not_underestimated() -> None:
    """Measured in a process of its own, for the texts that grow most."""
    code = (
        "import sys, tracemalloc, json\n"
        "from fmdp._base import archives\n"
        "text = eval(sys.argv[1])\n"
        "found = []\n"
        "archives._refuse_large = lambda needed, label: found.append(needed)\n"
        "archives.refuse_large_json(text, '')\n"
        "tracemalloc.start()\n"
        "document = json.loads(text)\n"
        "print(found[0] / tracemalloc.get_traced_memory()[1])\n"
    )
    for text in (
        "'[' + '[],' * 50000 + '0]'",
        "'[' + '{},' * 50000 + '0]'",
        """'[' + '{"a":1},' * 50000 + '0]'""",
        "'[' + '0.1,' * 50000 + '0]'",
        "'[' + ','.join(f'\"{i}\"' for i in range(50000)) + ']'",
        "'{' + ','.join(f'\"{i}\":{i}' for i in range(50000)) + '}'",
    ):
        ran = subprocess.run(
            [sys.executable, "-c", code, text], capture_output=True, text=True, check=True
        )
        assert 0.9 < float(ran.stdout) < 8.0, text


def test_a_limit_of_the_process_is_a_limit(tmp_path: Path) -> None:
    """Under ulimit -v a policy that would not fit is refused, not killed."""
    path = tmp_path / "policy.npz"
    TablePolicy((2,) * 28, (2,), np.zeros(1 << 28, dtype=np.uint8)).save(path)
    code = (
        "import resource, sys, fmdp\n"
        "from fmdp._base.memory import available_memory\n"
        "from fmdp.planning.policies.files import load_policy\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20),) * 2)\n"
        "assert 0 < available_memory() <= 600 << 20\n"
        "try:\n"
        "    load_policy(sys.argv[1])\n"
        "except fmdp.FmdpError as error:\n"
        "    print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert "reading it takes about" in ran.stdout, ran.stderr


def test_an_action_of_16_million_values_has_no_16_million_names() -> None:
    many = 1 << 24
    model = fmdp.FactoredMDP.from_factors((2,), (many,), [((0,), [[0.5, 0.5]] * 2)])
    names = model.structure.action_values[0]
    assert sys.getsizeof(names) < 1000
    assert (len(names), names[5], names[-1], names[3:5]) == (many, "5", "16777215", ("3", "4"))
    again = parse_json(fmdp.model.io.files.dumps(model), "")
    assert again["actions"] == [{"name": "a0", "size": many}]


def test_names_that_are_numerals_are_equal_however_they_were_given() -> None:
    size = 5000
    models = [
        fmdp.FactoredMDP.from_factors((2,), (size,), [((0,), [[0.5, 0.5]] * 2)], action_values=own)
        for own in ((), [tuple(map(str, range(size)))])
    ]
    assert models[0] == models[1]
    assert hash(models[0].structure) == hash(models[1].structure)
    assert models[0].content_hash == models[1].content_hash
    assert pickle.loads(pickle.dumps(models[0])) == models[1]


# ---- what is no regular file ---------------------------------------------------------------------


def special(kind: str, folder: Path) -> Path:
    path = folder / "file"
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    elif kind == "a directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a directory", "a device"])
def test_only_regular_files_are_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    special(kind, Path())
    for reader, what in (
        (fmdp.load, "a model file"),
        (load_policy, "a policy file"),
        (fmdp.load_agent, "a learner file"),
        (lambda path: read_file(path, "a sweep spec"), "a sweep spec"),
    ):
        with pytest.raises(FileProblem, match=f"^file: is {kind}; must be {what}$"):
            reader("file")


# ---- policies ------------------------------------------------------------------------------------


def greedy(problem: str = "circle:17") -> Any:
    policy = fmdp.plan(fmdp.problem(problem), "alp,basis=local").policy
    assert type(policy).__name__ == "GreedyPolicy"
    return policy


def lying(policy: Any, path: Path, header: dict[str, Any], **arrays: Any) -> Path:
    """Its file with other content, the checksum right."""
    from fmdp.planning.policies.archive import FORMAT, VERSION

    own, held = policy.parts()
    whole = {"format": FORMAT, "version": VERSION, "kind": policy.kind, **own, **header}
    kept = {name: array for name, array in {**held, **arrays}.items() if array is not None}
    path.write_bytes(pack(json.loads(json.dumps(whole)), kept))
    return path


TABLE = TablePolicy((2, 3), (4,), np.array([0, 1, 2, 3, 0, 1]))


@pytest.mark.parametrize(
    ("header", "arrays", "said"),
    [
        ({}, {"actions": None}, "its parts must be 'actions'"),
        ({}, {"actions": np.zeros(5, np.uint8)}, r"has shape \(5,\); must have \(6\)"),
        ({}, {"actions": np.zeros(6)}, "is of float64; must be of unsigned"),
        ({}, {"actions": np.full(6, np.nan)}, "is of float64"),
        ({}, {"actions": np.full(6, 4, np.uint8)}, "the action of state 0 is 4; allowed: 0 to 3"),
        ({"state_sizes": [6]}, {}, "is a policy for state sizes"),
        ({"state_sizes": [-2, -3]}, {}, "is a policy for state sizes|from 1 to"),
        ({"state_sizes": [2, 3.5]}, {}, "is a policy for state sizes|from 1 to"),
        ({"state_sizes": "23"}, {}, "is a policy for state sizes|must be a list"),
        ({"action_sizes": [2**40]}, {}, "is a policy for action sizes|from 1 to"),
        ({"kind": "quantum"}, {}, "unknown kind 'quantum'"),
        ({"kind": ["table"]}, {}, "unknown kind"),
        ({"kind": "greedy"}, {}, "its decision_sizes must be a list"),
        ({"kind": "exploring"}, {}, "its part 'base' is missing"),
    ],
)
def test_a_table_that_lies(
    header: dict[str, Any], arrays: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = lying(TABLE, tmp_path / "policy.npz", header, **arrays)
    structure = fmdp.Structure((2, 3), (4,), ((), ()), ())
    for told in (structure, None):
        if told is None and header.get("state_sizes") == [6]:
            continue  # another policy, and a good one
        with pytest.raises(FileProblem, match=said) as caught:
            load_policy(path, told)
        assert str(path) in str(caught.value)


def test_what_does_not_fit_is_refused_before_it_is_inflated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of 2^26 states in the place of one of 6, or beside it."""
    many = np.zeros(1 << 26, np.uint8)
    path = tmp_path / "policy.npz"
    for header, arrays in (({}, {"actions": many}), ({}, {"more": many})):
        lying(TABLE, path, header, **arrays)
        monkeypatch.setattr(archives, "checksum", lambda *_: pytest.fail("inflated"))
        with pytest.raises(FileProblem, match="holds no policy"):
            load_policy(path)
        monkeypatch.undo()
    TablePolicy((2,) * 26, (4,), many).save(path)
    monkeypatch.setattr(archives, "checksum", lambda *_: pytest.fail("inflated"))
    with pytest.raises(FileProblem, match="is a policy for state sizes"):
        load_policy(path, fmdp.Structure((2, 3), (4,), ((), ()), ()))


def test_what_an_exploring_policy_plays_is_what_its_base_is(tmp_path: Path) -> None:
    """The header said other sizes than the base, and the header was believed."""
    policy = fmdp.ExploringPolicy(TABLE, 0.5)
    path = tmp_path / "policy.npz"
    policy.save(path)
    assert load_policy(path).base == TABLE  # type: ignore[attr-defined]
    lying(policy, path, {"state_sizes": [200, 300]})
    with pytest.raises(FileProblem, match="its base is a policy for other sizes"):
        load_policy(path)
    nested = np.frombuffer(path.read_bytes(), np.uint8)
    lying(policy, path, {}, base=nested)
    with pytest.raises(FileProblem, match="its base holds a policy of unknown kind 'exploring'"):
        load_policy(path)


@pytest.mark.parametrize("problem", ["circle:17", "machines:9,topology=circle"])
def test_a_greedy_policy_that_lies(problem: str, tmp_path: Path) -> None:
    """Every array shortened, lengthened, moved out of its range: none reaches compiled code."""
    try:
        policy = greedy(problem)
    except FmdpError:
        pytest.skip("no such problem")
    path = tmp_path / "policy.npz"
    policy.save(path)
    again = load_policy(path)
    state = tuple(size - 1 for size in policy.state_sizes)
    assert again(state) == policy(state)
    assert policy_digest(again) == policy_digest(policy)
    _, arrays = policy.parts()
    for name, array in arrays.items():
        for lie in (
            array[:-1],
            np.append(array, array[-1:] if array.size else [0]),
            array.astype(np.float32),
            array.reshape(1, -1),
            array + array.dtype.type(10**9) if array.dtype.kind == "i" else array * np.nan,
            array - array.dtype.type(10**9) if array.dtype.kind == "i" else array + np.inf,
            None,
        ):
            if lie is not None and lie.shape == array.shape and array.size == 0:
                continue
            lying(policy, path, {}, **{name: lie})
            with pytest.raises(FileProblem, match="holds no policy"):
                load_policy(path)
    for header in (
        {"ties": "never"},
        {"tie_seed": 2**70},
        {"tie_seed": "1"},
        {"decision_sizes": [1]},
        {"state_sizes": [2] * 16},
        {"state_sizes": [3] * 17},
    ):
        lying(policy, path, header)
        with pytest.raises(FileProblem, match="holds no policy"):
            load_policy(path)
