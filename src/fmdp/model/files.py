"""The model file: one factored MDP as JSON, format "fmdp-model", version 1.

docs/model-file.md describes it, schema/fmdp-model-1.schema.json is its JSON Schema. A file that
is read back gives an equal model, bit for bit, because floats are written with the digits that
identify them. Writing is atomic: the text goes to a new file in the same folder, is forced to
disk, and replaces the old file in one step, so that a failure leaves the old file as it was.
Reading never guesses: every flaw is one line that names the file, the place, the value and what
is allowed. A table of a million rows takes about a second to parse.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fmdp.archives import read_file, reason, refuse_large_json
from fmdp.errors import FileProblem, InvalidModel, InvalidParameter, UnknownName, did_you_mean
from fmdp.model.factored import FactoredMDP, Noise
from fmdp.model.spaces import FloatArray, count, shown
from fmdp.model.structure import MAX_SIZE, Structure, numerals

FORMAT = "fmdp-model"
VERSION = 1

_fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None


def save(model: FactoredMDP, path: str | os.PathLike[str]) -> None:
    """Write a model to a model file (JSON), atomically: whole, or not at all.

    Parameters
    ----------
    model
        What to write.
    path
        Where to. A file that is there is replaced; if writing fails it stays as it was.

    Raises
    ------
    FileProblem
        Where the file cannot be written.
    InvalidParameter
        Where it is no model, or no path.
    """
    if not isinstance(model, FactoredMDP):
        raise InvalidParameter(f"save writes a FactoredMDP; got {shown(model)}")
    path_of(path, "a model file")
    write_atomically(path, dumps(model))


def load(path: str | os.PathLike[str]) -> FactoredMDP:
    """Read a model file (JSON, format "fmdp-model").

    Parameters
    ----------
    path
        Where it is.

    Returns
    -------
    FactoredMDP
        The model, checked.

    Raises
    ------
    FileProblem
        Where the file is missing, no JSON, or of another format or version.
    InvalidModel
        Where what it holds is no model; the text names the factor and the row.
    InvalidParameter
        Where it is no path.
    """
    path_of(path, "a model file")
    return loads(read_text(path, "a model file"), os.fspath(path))


def dumps(model: FactoredMDP) -> str:
    """The text of the model file; tables have one row a line."""
    s = model.structure
    document: dict[str, Any] = {"format": FORMAT, "version": VERSION, "name": model.name}
    for key, sizes, names, values in (
        ("states", s.state_sizes, s.state_names, s.state_values),
        ("actions", s.action_sizes, s.action_names, s.action_values),
    ):
        document[key] = [
            {"name": name, "size": size} | ({} if own == numerals(size) else {"values": own})
            for name, size, own in zip(names, sizes, values, strict=True)
        ]
    document["initial_state"] = model.initial_state
    document["groups"] = [[s.names[v] for v in group] for group in s.groups]
    document["transitions"] = [
        {"state": s.state_names[i], "scope": [s.names[v] for v in scope], "rows": table}
        for i, (scope, table) in enumerate(zip(s.transition_scopes, model.transitions, strict=True))
    ]
    document["rewards"] = [
        {
            "name": s.reward_names[k],
            "scope": [s.names[v] for v in scope],
            "range": s.reward_ranges[k],
            "noise": {"kind": law.kind} | ({"scale": law.scale} if law.scale else {}),
            "means": means,
        }
        for k, (scope, law, means) in enumerate(
            zip(s.reward_scopes, model.noise, model.rewards, strict=True)
        )
    ]
    return _text(document) + "\n"


def _text(value: Any, margin: str = "") -> str:
    """JSON with one key, one list entry, or one row of a table a line; small things on one."""
    inner = margin + "  "
    if isinstance(value, np.ndarray):
        # A table holds only numbers, so the end of a row can be found in the compact text.
        compact = json.dumps(value.tolist(), allow_nan=False)
        end = "], [" if value.ndim == 2 else ", "
        lines = compact[1:-1].replace(end, end.replace(" ", f"\n{inner}"))
        return f"[\n{inner}{lines}\n{margin}]"
    if isinstance(value, dict) and any(isinstance(v, (list, np.ndarray)) for v in value.values()):
        lines = f",\n{inner}".join(
            f"{json.dumps(key)}: {_text(own, inner)}" for key, own in value.items()
        )
        return f"{{\n{inner}{lines}\n{margin}}}"
    if isinstance(value, list) and any(isinstance(own, (dict, list)) for own in value):
        lines = f",\n{inner}".join(_text(own, inner) for own in value)
        return f"[\n{inner}{lines}\n{margin}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def loads(text: str, source: str = "model") -> FactoredMDP:
    """The model in the text of a model file; errors begin with the source."""
    document = parse_json(text, source)
    try:
        return _model(document)
    except FileProblem as error:
        raise FileProblem(f"{source}: {error}") from None
    except InvalidModel as error:
        raise InvalidModel(f"{source}: {error}") from None


def path_of(path: object, what: str) -> Path:
    """The path of a file, or InvalidParameter where it is neither text nor a path."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise InvalidParameter(f"the path of {what} must be a text or a path; got {shown(path)}")
    return Path(path)


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """The text of a UTF-8 file, or FileProblem; `what` says what was expected there."""
    content = read_file(path, what)
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise FileProblem(
            f"{os.fspath(path)}: byte {error.start} is not UTF-8 text; must be {what}"
        ) from None


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replace the file (or create it) in one step; on failure the old file stays, whole.

    The new file keeps the permissions of the old one, and a symbolic link stays a link.
    """
    data = content.encode() if isinstance(content, str) else content
    label = os.fspath(path)
    try:
        target = Path(path).resolve()
        _remove_what_kills_left(target.parent)
        # Replacing a device or a pipe (/dev/null) would destroy it.
        refused = target.exists() and not target.is_file()
        temporary = target.parent / f".fmdp-{secrets.token_hex(8)}.tmp"
        if not refused:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a loop of links
        raise FileProblem(f"{label}: cannot be written ({reason(error)})") from None
    if refused:
        kind = "a directory" if target.is_dir() else "not a regular file"
        raise FileProblem(f"{label}: is {kind}; must be a file, or a new name")
    try:
        with os.fdopen(descriptor, "wb") as file:
            locked(descriptor)  # it is at work, and not what a kill has left
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(OSError):
            temporary.chmod(target.stat().st_mode & 0o7777)
        temporary.replace(target)
        _sync_folder(target.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise FileProblem(f"{label}: cannot be written ({reason(error)})") from None
        raise


def _remove_what_kills_left(folder: Path) -> None:
    """Remove files of a writer that is dead: its lock is free. One that is still empty may just
    have been made, and not have its lock yet."""
    for left in folder.glob(".fmdp-????????????????.tmp"):
        with contextlib.suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY)
            try:
                if os.fstat(descriptor).st_size > 0 and locked(descriptor):
                    left.unlink()
            finally:
                os.close(descriptor)


def locked(descriptor: int) -> bool:
    """Take the lock of an open file or directory, which any death gives back; False if another
    process has it, or there are no such locks."""
    if _fcntl is None:
        return False
    try:
        _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    """Make the new name durable where folders can be synchronised (POSIX)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _Refused(ValueError):
    """Raised inside the JSON parser for what JSON readers usually let pass."""


def parse_json(text: str, source: str) -> Any:
    """Strict JSON: no NaN or Infinity, no repeated keys, nothing that would not fit into memory;
    flaws are FileProblem."""
    refuse_large_json(text, source)

    def constant(name: str) -> Any:
        raise _Refused(f"{name} is not allowed; numbers must be finite")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) < len(items):
            seen: set[str] = set()
            for key, _ in items:
                if key in seen:
                    raise _Refused(f"key {_show(key)} occurs twice in one object; must occur once")
                seen.add(key)
        return result

    try:
        return json.loads(text, parse_constant=constant, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise FileProblem(
            f"{source}: not valid JSON, or cut short: {error.msg} at line {error.lineno}, "
            f"column {error.colno}"
        ) from None
    except _Refused as error:
        raise FileProblem(f"{source}: {error}") from None
    except RecursionError:
        raise FileProblem(f"{source}: not a model file: brackets are nested too deeply") from None
    except ValueError as error:
        # Python refuses to read whole numbers of thousands of digits.
        raise FileProblem(f"{source}: a number cannot be read ({error})") from None


def _model(document: Any) -> FactoredMDP:
    if not isinstance(document, dict):
        raise FileProblem(
            f"is {_show(document)}; must be a JSON object with format {_show(FORMAT)}"
        )
    if "format" not in document:
        raise FileProblem(f'key "format" is missing; must be {_show(FORMAT)}')
    if document["format"] != FORMAT:
        raise FileProblem(f'"format" is {_show(document["format"])}; must be {_show(FORMAT)}')
    if "version" not in document:
        raise FileProblem(f'key "version" is missing; must be {VERSION}')
    version = document["version"]
    if type(version) is not int or version < 1:
        raise FileProblem(f'"version" is {_show(version)}; must be {VERSION}')
    if version > VERSION:
        raise FileProblem(
            f'"version" is {_show(version)}; this fmdp reads up to version {VERSION}: '
            f"a newer fmdp is needed"
        )
    top = _object(
        document,
        "the model",
        required=("format", "version", "states", "actions", "transitions"),
        optional=("name", "rewards", "initial_state", "groups"),
    )
    state_names, state_sizes, state_values = _variables(top["states"], "state")
    action_names, action_sizes, action_values = _variables(top["actions"], "action")
    # Checks names and sizes, on which the scopes below rely, and labels rows in errors.
    variables = Structure(
        tuple(state_sizes),
        tuple(action_sizes),
        ((),) * len(state_sizes),
        (),
        state_names=tuple(state_names),
        action_names=tuple(action_names),
        state_values=tuple(state_values),
        action_values=tuple(action_values),
    )

    entries = _array(top["transitions"], '"transitions"', _is_object, "an object")
    if len(entries) != variables.m:
        raise InvalidModel(
            f'"transitions" has {len(entries)} entries for {variables.m} state variables; '
            f"must have one a state variable, in their order"
        )
    transitions: list[tuple[list[int], FloatArray]] = []
    for i, (entry, state) in enumerate(zip(entries, state_names, strict=True)):
        label = variables.transition_label(i)
        fields = _object(entry, label, required=("scope", "rows"), optional=("state",))
        if fields.get("state", state) != state:
            raise InvalidModel(
                f'{label}: "state" is {_show(fields["state"])}; must be {_show(state)}, as '
                f"transitions are in the order of the states"
            )
        scope = _scope(fields["scope"], variables, label)
        transitions.append((scope, _rows(fields["rows"], variables, scope, state_sizes[i], label)))

    rewards: list[tuple[list[int], FloatArray]] = []
    reward_names: list[str] = []
    reward_ranges: list[tuple[float, float]] = []
    noise: list[Noise] = []
    for k, entry in enumerate(_array(top.get("rewards", []), '"rewards"', _is_object, "an object")):
        label = f"reward factor {k}"
        fields = _object(
            entry, label, required=("scope", "means"), optional=("name", "range", "noise")
        )
        reward_names.append(_string(fields.get("name", f"r{k}"), f'{label}: "name"'))
        label = f"{label} ({_show(reward_names[k])})"
        scope = _scope(fields["scope"], variables, label)
        rewards.append((scope, _means(fields["means"], variables, scope, label)))
        pair = _array(fields.get("range", [0, 1]), f'{label}: "range"', _is_number, "a number")
        if len(pair) != 2:
            raise InvalidModel(f'{label}: "range" is {_show(pair)}; must be [lo, hi]')
        reward_ranges.append((pair[0], pair[1]))
        noise.append(_noise(fields.get("noise", {"kind": "deterministic"}), label))

    groups = _array(top.get("groups", []), '"groups"', _is_array, "an array of names")
    return FactoredMDP.over(
        variables,
        transitions,
        rewards,
        reward_ranges=reward_ranges,
        reward_names=reward_names,
        groups=[_scope(group, variables, f"group {index}") for index, group in enumerate(groups)],
        noise=noise,
        initial_state=_array(
            top.get("initial_state", [0] * len(state_names)),
            '"initial_state"',
            _is_whole,
            "a whole number",
        ),
        name=_string(top.get("name", ""), '"name"'),
    )


def _variables(value: Any, kind: str) -> tuple[list[str], list[int], list[tuple[str, ...]]]:
    names: list[str] = []
    sizes: list[int] = []
    values: list[tuple[str, ...]] = []
    for index, entry in enumerate(_array(value, f'"{kind}s"', _is_object, "an object")):
        label = f"{kind} variable {index}"
        fields = _object(entry, label, required=("name",), optional=("size", "values"))
        names.append(_string(fields["name"], f'{label}: "name"'))
        label = f"{label} ({_show(names[-1])})"
        if "size" not in fields and "values" not in fields:
            raise InvalidModel(f'{label}: key "size" (or "values") is missing')
        own = _array(fields.get("values", []), f'{label}: "values"', _is_string, "a string")
        if "values" in fields and not own:
            raise InvalidModel(f'{label}: "values" is []; must have at least one name')
        size = fields.get("size", len(own))
        if not _is_whole(size) or not 1 <= size <= MAX_SIZE:
            raise InvalidModel(
                f'{label}: "size" is {_show(size)}; must be a whole number in 1..{MAX_SIZE}'
            )
        sizes.append(size)
        values.append(tuple(own))
    return names, sizes, values


def _noise(value: Any, label: str) -> Noise:
    fields = _object(value, f"{label}, noise", required=("kind",), optional=("scale",))
    scale = fields.get("scale", 0.0)
    if not _is_number(scale):
        raise InvalidModel(f'{label}, noise: "scale" is {_show(scale)}; must be a number')
    try:
        return Noise(_string(fields["kind"], f'{label}, noise: "kind"'), scale)  # type: ignore[arg-type]
    except InvalidModel as error:
        raise InvalidModel(f"{label}: {error}") from None


def _scope(value: Any, structure: Structure, label: str) -> list[int]:
    scope = _array(value, f"{label}: scope", _is_string, "the name of a variable")
    try:
        return [structure.variable(name) for name in scope]
    except UnknownName as error:
        raise InvalidModel(f"{label}: {error}") from None


def _rows(
    value: Any, structure: Structure, scope: Sequence[int], size: int, label: str
) -> FloatArray:
    """Transition rows: an array of arrays of numbers, [|X[scope]|, size].

    The type of every entry is looked at, because NumPy would turn "0.5", true and null into
    numbers; sets of types over the whole table keep that fast.
    """
    rows = _array(value, f'{label}: "rows"')
    needed = count(structure.scope_sizes(scope))
    if len(rows) != needed:
        raise InvalidModel(_wrong_length(label, "rows", len(rows), needed, structure, scope))
    if not set(map(type, rows)) <= {list}:
        row = next(r for r, own in enumerate(rows) if type(own) is not list)
        raise InvalidModel(
            f"{label}, {structure.row_label(scope, row)}: is {_show(rows[row])}; "
            f"must be an array of {size} numbers"
        )
    if not set(map(len, rows)) <= {size}:
        row = next(r for r, own in enumerate(rows) if len(own) != size)
        raise InvalidModel(
            f"{label}, {structure.row_label(scope, row)}: has {len(rows[row])} probabilities; "
            f"must have {size}"
        )
    entries = list(itertools.chain.from_iterable(rows))
    return _numbers(
        entries,
        lambda place: (
            f"{label}, {structure.row_label(scope, place // size)}: "
            f"probability of value {place % size}"
        ),
    ).reshape(needed, size)


def _means(value: Any, structure: Structure, scope: Sequence[int], label: str) -> FloatArray:
    """Reward means: an array of numbers, [|X[scope]|]."""
    means = _array(value, f'{label}: "means"')
    needed = count(structure.scope_sizes(scope))
    if len(means) != needed:
        raise InvalidModel(_wrong_length(label, "means", len(means), needed, structure, scope))
    return _numbers(means, lambda place: f"{label}, {structure.row_label(scope, place)}: mean")


def _wrong_length(
    label: str, key: str, given: int, needed: int, structure: Structure, scope: Sequence[int]
) -> str:
    named = ", ".join(f"{structure.names[v]} of size {structure.sizes[v]}" for v in scope)
    return f'{label}: "{key}" has {given} rows; must have {shown(needed)}, for scope ({named})'


def _numbers(entries: list[Any], place_label: Callable[[int], str]) -> FloatArray:
    if set(map(type, entries)) <= {int, float}:
        with contextlib.suppress(OverflowError):
            return np.fromiter(entries, dtype=np.float64, count=len(entries))
    place = next(p for p, entry in enumerate(entries) if not _is_number(entry))
    raise InvalidModel(f"{place_label(place)} is {_show(entries[place])}; must be a number")


def _object(
    value: Any, label: str, required: Sequence[str], optional: Sequence[str]
) -> dict[str, Any]:
    """A JSON object with exactly these keys."""
    if not isinstance(value, dict):
        raise InvalidModel(f"{label} is {_show(value)}; must be an object")
    known = (*required, *optional)
    for key in value:
        if key not in known:
            raise InvalidModel(
                f"{label}: unknown key {_show(key)}; must be one of {', '.join(known)}"
                f"{did_you_mean(key, known)}"
            )
    for key in required:
        if key not in value:
            raise InvalidModel(f"{label}: key {_show(key)} is missing")
    return value


def _array(
    value: Any, label: str, allowed: Callable[[Any], bool] | None = None, what: str = ""
) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidModel(f"{label} is {_show(value)}; must be an array")
    if allowed is not None:
        for index, item in enumerate(value):
            if not allowed(item):
                raise InvalidModel(f"{label}, entry {index} is {_show(item)}; must be {what}")
    return value


def _string(value: Any, label: str) -> str:
    if not isinstance(value, str):
        raise InvalidModel(f"{label} is {_show(value)}; must be a string")
    return value


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_array(value: Any) -> bool:
    return isinstance(value, list)


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return type(value) is int


def _is_number(value: Any) -> bool:
    """A JSON number that a float can hold."""
    return type(value) is float or (type(value) is int and abs(value) < 2**1023)


def _show(value: Any) -> str:
    """A JSON value as it stands in the file, cut to a length that fits a message."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list) and (
        len(value) > 8 or any(isinstance(item, (list, dict)) for item in value)
    ):
        return f"an array of {len(value)}"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
