"""Files that lie: models, specs, policies, learners, changed at random, in children with limits.

From the schema: models are changed along what their JSON schema declares, and what it forbids must
be refused. Structured: values and arrays are changed where they stand and the checksum is made
anew, so that what is tried is what a file can say and not only whether a checksum is looked at.
Bytes: flips, cuts and splices of whole files. What is refused must be one line of an FmdpError
that names the file; what is taken must be what it was, or play on without a fault: a child that
ends by a signal has failed. And what is no file, or is larger than it looks, through the command
line.
"""

from __future__ import annotations

import copy
import json
import math
import os
import random
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("FMDP_THREADS", "1")  # children are forked: no threads before

from torture import child
from torture.nursery import Nursery
from torture.trial import SHORT, Trial

SECONDS_A_CASE = 60
SECONDS_A_CHILD = 900
BATCH = 250
COUNTS = {
    "model files, from the schema": 4000,
    "model files, structured": 3000,
    "model files, bytes": 1500,
    "spec files, structured": 1500,
    "spec files, bytes": 500,
    "policy files, structured": 1500,
    "policy files, bytes": 1500,
    "learner files, structured": 1000,
    "learner files, bytes": 500,
}
WARM = (["show", "circle:3"], ["plan", "circle:3"])
PROBLEMS = ("circle:3", "machines:2,topology=circle", "jao:2", "riverswim:1", "random:4,seed=1")


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    """Everything here, `scale` times as often as the whole has it."""
    for name, count in COUNTS.items():
        if scale < SHORT and name.endswith("bytes"):
            continue  # tests/test_archives.py has every bit of one
        yield _in_children(name, seed, max(10, round(count * scale)))
    with tempfile.TemporaryDirectory() as folder, Nursery(Path(folder), WARM) as nursery:
        yield _special_files(nursery, seed, scale)
        yield _small_files(nursery)


def _in_children(name: str, seed: int, count: int) -> Trial:
    """Forked from this process, which has made the sound files once; many to a child."""
    tried, failures = 0, []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        case = folder / "case"
        sound = _sound(name.split(" files, ")[0], folder)
        for first in range(0, count, BATCH):
            size = min(BATCH, count - first)
            case.write_text("the start")
            ended = child.run(
                lambda first=first, size=size: many(name, sound, folder, f"{seed}:{first}", size),  # type: ignore[misc]
                seconds=SECONDS_A_CHILD,
            )
            tried += size
            if ended.bad is None:
                failures += ended.result
            else:
                failures.append(f"seed {seed}:{first}: in {case.read_text()}: {ended.bad}")
    return Trial(name, tried, tuple(failures))


# ---- mutations -----------------------------------------------------------------------------------

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    0.5,
    -0.0,
    1e308,
    -1e308,
    1e-320,
    float("nan"),
    float("inf"),
    2**24,
    2**31,
    2**63,
    2**64,
    10**30,
    "",
    "x",
    "0",
    "\x00",
    "\ud800",
    "a" * 1000,
    [],
    {},
    [[]],
    [0],
    ["s0"],
    [0.5, 0.5],
    {"a": 1},
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inner:
        yield from _places(item, (*path, key))


def mutated_json(document: Any, dice: random.Random) -> Any:
    """One to three places of a JSON value changed."""
    document = copy.deepcopy(document)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        # By depth first: tables have nearly all the places.
        places = [place for place in _places(document) if place]
        if not places:
            return dice.choice(VALUES)
        depth = dice.choice(sorted({len(place) for place in places}))
        *path, last = dice.choice([place for place in places if len(place) == depth])
        inner = document
        for key in path:
            inner = inner[key]
        kind = dice.randrange(6)
        old = inner[last]
        if kind == 0:
            del inner[last]
        elif kind == 1 and isinstance(inner, list):
            inner.insert(dice.randrange(len(inner) + 1), copy.deepcopy(old))
        elif kind == 1 and isinstance(inner, dict):
            inner[dice.choice(("x", "size", "name", "scope", f"{last}s"))] = copy.deepcopy(old)
        elif kind == 2 and isinstance(old, int | float) and not isinstance(old, bool):
            inner[last] = dice.choice((old + 1, -old, old * 2, old + 1e-12, old * 1e300))
        elif kind == 3 and isinstance(old, list) and old:
            inner[last] = old[:-1] if dice.random() < 0.5 else old * 2
        else:
            inner[last] = copy.deepcopy(dice.choice(VALUES))
    return document


def mutated_array(array: Any, dice: random.Random) -> Any:
    kind = dice.randrange(9)
    if kind == 0:
        return array[: dice.randrange(array.size + 1)] if array.ndim == 1 else array.reshape(-1)
    if kind == 1:
        return np.append(array, array[: dice.randrange(1, 4)])
    if kind == 2:
        return array.astype(
            dice.choice(["f4", "f8", "i4", "i8", "u1", "u8", ">f8", "?", "U3", "c16"])
        )
    if kind == 3:
        return array.reshape(1, -1)
    changed = array.copy().reshape(-1)
    if not changed.size:
        return np.array([dice.choice((0, 1, -1))])
    at = dice.randrange(changed.size)
    if kind == 4:
        return np.zeros_like(array)
    if kind == 5 and array.size > 1:
        return changed[np.array(dice.sample(range(changed.size), changed.size))]
    values = (0, 1, -1, 2, 255, 2**31, -(2**31), 2**62, -(2**63))
    if array.dtype.kind == "f":
        values = (0.0, -1.0, math.nan, math.inf, 1e308, -1e308, 1e-320, 1e6)  # type: ignore[assignment]
    with np.errstate(all="ignore"):
        changed[at] = np.array(dice.choice(values)).astype(array.dtype)
    return changed.reshape(array.shape)


def mutated_bytes(content: bytes, dice: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(dice.choice((1, 1, 2, 5))):
        kind = dice.randrange(6)
        at = dice.randrange(len(data) or 1)
        if kind <= 1 and data:
            data[at] ^= 1 << dice.randrange(8)
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at : at + dice.randrange(1, 64)]
        elif kind == 4:
            data[at:at] = dice.randbytes(dice.randrange(1, 64))
        else:
            data[at : at + 8] = data[dice.randrange(len(data) or 1) :][:8]
    return bytes(data)


# ---- in the child --------------------------------------------------------------------------------


def _problem(which: str) -> Any:
    import fmdp

    return fmdp.problem(which)


def _policies() -> list[Any]:
    import fmdp
    from fmdp.planning.policies.randomised import UniformPolicy

    model = _problem("circle:3")
    table = fmdp.plan(model).policy
    assert table is not None
    greedy = [
        fmdp.plan(_problem(which), "alp").policy
        for which in ("circle:17", "machines:9,topology=circle")
    ]
    return [table, *greedy, UniformPolicy.of(model.structure), fmdp.ExploringPolicy(table, 0.1)]


def _learner_files(folder: Path) -> list[bytes]:
    import fmdp

    model = _problem("circle:3")
    made = []
    for text in ("dorl", "psrl", "fsrl", "dorl,targets=vertex", "frmax", "random", "oracle"):
        run = fmdp.simulate(model, text, 40, seed=1)
        run.agent.save(folder / "made")
        made.append((folder / "made").read_bytes())
    for planner in ("alp", "alp,method=factored", "alp,criterion=average"):
        run = fmdp.simulate(model, fmdp.PSRL(planner=planner), 40, seed=1)
        run.agent.save(folder / "made")
        made.append((folder / "made").read_bytes())
    return made


def _parts(content: bytes, folder: Path) -> tuple[Any, dict[str, Any]]:
    (folder / "parts").write_bytes(content)
    with np.load(folder / "parts", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(str(arrays.pop("header"))), arrays


def _lying(content: bytes, folder: Path, dice: random.Random) -> bytes:
    """An archive with other content and the checksum of that."""
    from fmdp._base.archives import pack

    header, arrays = _parts(content, folder)
    for inside in ("policy", "base"):
        held = arrays.get(inside)
        if held is not None and held.dtype == np.uint8 and dice.random() < 0.3:
            lie = np.frombuffer(_lying(held.tobytes(), folder, dice), np.uint8)
            return pack(header, {**arrays, inside: lie})
    if not arrays or dice.random() < 0.4:
        kept = {key: header[key] for key in ("format", "version")}
        header = mutated_json(header, dice)
        header = {**header, **kept} if isinstance(header, dict) else {"lost": header, **kept}
    else:
        name = dice.choice(sorted(arrays))
        if dice.random() < 0.1:
            del arrays[name]
        else:
            arrays[name] = mutated_array(arrays[name], dice)
    return pack(header, arrays)


def _look_at_model(path: Path) -> None:
    import fmdp

    model = fmdp.load(path)
    again = fmdp.model.io.files.loads(fmdp.model.io.files.dumps(model))
    assert again == model


def _look_at_spec(path: Path) -> None:
    from fmdp.experiments.spec import read_spec

    spec = read_spec(path)
    first = next(iter(spec.runs()))
    assert len(spec.hash) == len(first.key) == 64


def _spec() -> dict[str, Any]:
    return {
        "name": "mutated",
        "title": "A title",
        "steps": 20,
        "seeds": [0, 3],
        "problems": ["circle:2", "riverswim:1", "jao:2,delta=0.1"],
        "learners": [
            "random",
            {"name": "psrl", "label": "P", "planner": "exact", "set": {"c": [0.1, 0.75]}},
            {"name": "dorl", "planner": {"name": "exact", "tolerance": 0.01}, "set": {"c": 0.03}},
            {"name": "frmax", "problems": ["circle:2"], "set": {"m": 50}},
        ],
    }


def toml(value: Any, top: bool = True) -> str:
    """A JSON value as TOML would have it; what TOML cannot say is written all the same."""
    if isinstance(value, dict):
        if top:
            return "".join(
                f"{json.dumps(key)} = {toml(one, False)}\n" for key, one in value.items()
            )
        return (
            "{"
            + ", ".join(f"{json.dumps(k)} = {toml(one, False)}" for k, one in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(toml(one, False) for one in value) + "]"
    if isinstance(value, float):
        return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")
    # TOML has no surrogates; a lone one is written all the same.
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _look_at_policy(path: Path) -> None:
    from fmdp.planning.policies.files import load_policy
    from fmdp.planning.policies.randomised import RandomisedPolicy

    policy: Any = load_policy(path)
    for corner in (0, -1):
        state = [(size + corner) % size for size in policy.state_sizes]
        if isinstance(policy, RandomisedPolicy):
            policy.draw(np.random.default_rng(0), 5)
        else:
            action = policy(state)
            assert all(0 <= a < n for a, n in zip(action, policy.action_sizes, strict=True)), action


def _look_at_learner(path: Path) -> None:
    import fmdp
    from fmdp.simulation import Simulation

    agent = fmdp.load_agent(path)
    Simulation(_problem("circle:3"), agent, 0).run(60)


Sound = tuple[list[bytes], Callable[[Path], None]]


def _sound(what: str, folder: Path) -> Sound:
    """Files as they should be, and how one is looked at; it compiles what the children will run."""
    sources: list[bytes]
    if what == "model":
        from fmdp.model.io.files import dumps

        sources, look = [dumps(_problem(which)).encode() for which in PROBLEMS], _look_at_model
    elif what == "spec":
        sources, look = [toml(_spec()).encode()], _look_at_spec
    elif what == "policy":
        from fmdp.planning.policies.archive import policy_bytes

        sources, look = [policy_bytes(policy) for policy in _policies()], _look_at_policy
    else:
        sources, look = _learner_files(folder), _look_at_learner
    for source in sources:
        (folder / "tried").write_bytes(source)
        look(folder / "tried")
    return sources, look


def _cases(
    name: str, sound: Sound, folder: Path, dice: random.Random
) -> Iterator[tuple[bytes, Callable[[Path], None]]]:
    what, how = name.split(" files, ")
    sources, look = sound
    while True:
        source = dice.choice(sources)
        if how == "bytes":
            yield mutated_bytes(source, dice), look
        elif how == "from the schema":
            yield from _by_the_schema(json.loads(source), dice)
        elif what == "spec":
            yield toml(mutated_json(_spec(), dice)).encode("utf-8", "surrogatepass"), look
        elif what == "model":
            text = json.dumps(mutated_json(json.loads(source), dice))
            yield text.encode("utf-8", "surrogatepass"), look
        else:
            yield _lying(source, folder, dice), look


def _by_the_schema(
    document: Any, dice: random.Random
) -> Iterator[tuple[bytes, Callable[[Path], None]]]:
    import jsonschema

    import fmdp
    from torture.schema import changed

    place = Path(fmdp.__file__).parent / "model" / "schema"
    schemas = [json.loads(path.read_text()) for path in sorted(place.glob("*.schema.json"))]
    schema = dice.choice(schemas)
    # An older version's document says what a newer one may say as well.
    made = changed({**document, "version": schema["properties"]["version"]["const"]}, schema, dice)
    valid = any(jsonschema.Draft202012Validator(one).is_valid(made) for one in schemas)

    def look(path: Path) -> None:
        _look_at_model(path)
        assert valid, "the schema forbids it, and it was read"

    yield json.dumps(made).encode("utf-8", "surrogatepass"), look


def many(name: str, sound: Sound, folder: Path, seed: str, count: int) -> list[str]:
    """In a child: try `count` files; what went wrong."""
    from fmdp.errors import FileProblem, FmdpError

    dice = random.Random(f"{name} {seed}")
    cases = _cases(name, sound, folder, dice)
    failures: list[str] = []
    for number in range(count):
        (folder / "case").write_text(f"case {number}")
        content, look = next(cases)
        path = folder / "tried"
        path.write_bytes(content)
        signal.alarm(SECONDS_A_CASE)
        try:
            with np.errstate(all="ignore"):
                look(path)
        except FmdpError as error:
            # One that was taken may be refused later, by a model that it does not fit.
            if "\n" in str(error) or (
                isinstance(error, FileProblem) and str(path) not in str(error)
            ):
                failures.append(f"{seed}, case {number}: {error}")
        except Exception as error:
            failures.append(f"{seed}, case {number}: {type(error).__name__}: {error}")
        signal.alarm(0)
    return failures


# ---- the command line ----------------------------------------------------------------------------


def _special_files(nursery: Nursery, seed: int, scale: float) -> Trial:
    """Devices, pipes, sockets and folders in the place of every file that is read."""
    tried, failures = 0, []
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        os.mkfifo(place / "pipe")
        (place / "folder").mkdir()
        (place / "store").mkdir()
        os.mkfifo(place / "store" / "runs.sqlite")
        here = Path.cwd()
        os.chdir(folder)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("socket")
        os.chdir(here)
        learner = ["learn", "circle:3", "--steps", "5", "--learner", "policy", "--set"]
        cases = [
            words
            for file in ("pipe", "folder", "socket", "/dev/zero", "/dev/null", "/proc/self/mem")
            for name in [file if "/" in file else f"./{file}"]
            for words in (
                ["show", name],
                ["plan", name],
                ["convert", name, "out.json"],
                ["evaluate", "circle:3", name],
                [*learner, f"policy={name}"],
                ["sweep", name, "--out", "out"],
                ["report", name],
            )
        ]
        cases.append(["report", "store"])
        for words in cases if scale >= SHORT else dice.sample(cases, 6):
            tried += 1
            ended = nursery.run(words, folder=place)
            wrong = "took too long" if ended is None else ended.wrong(2)
            if wrong or (ended and ended.output):
                failures.append(f"{' '.join(words)}: {wrong or 'printed something'}")
    return Trial("what is no regular file", tried, tuple(failures))


MOST_MEMORY = 600 << 20
"""Of a child that reads a small file; an idle one has about 200 MB."""


def _small_files(nursery: Nursery) -> Trial:
    """Files of some kilobytes that declare gigabytes: the most memory that a child has had."""
    from fmdp._base.archives import pack

    tried, failures = 0, []
    model: dict[str, Any] = {
        "format": "fmdp-model",
        "version": 1,
        "states": [{"name": "s", "size": 2}],
        "actions": [{"name": "a", "size": 2**24}],
        "transitions": [{"scope": ["s"], "rows": [[0.5, 0.5], [0.5, 0.5]]}],
        "rewards": [{"scope": ["s"], "means": [0, 1]}],
    }
    wide = copy.deepcopy(model)
    wide["actions"] = [{"name": f"a{i}", "size": 2**24} for i in range(200)]
    wide["states"][0]["size"] = 2**24
    table = {"format": "fmdp-policy", "version": 2, "kind": "table", "action_sizes": [2]}
    bomb = pack({**table, "state_sizes": [2] * 30}, {"actions": np.zeros(1 << 30, np.uint8)})
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (
            ("many.json", json.dumps(model).encode()),
            ("wide.json", json.dumps(wide).encode()),
            ("bomb.npz", bomb),
            ("deep.json", b"[" * 100_000),
            ("seeds.toml", toml({**_spec(), "seeds": 2**31}).encode()),
        ):
            (Path(folder) / name).write_bytes(content)
        for words, status in (
            (["show", "many.json"], 0),
            (["convert", "many.json", "out.json"], 0),
            (["show", "wide.json"], 2),
            (["evaluate", "circle:3", "bomb.npz"], 2),
            (["show", "deep.json"], 2),
            (["sweep", "seeds.toml", "--out", "out"], 2),
        ):
            tried += 1
            ended = nursery.run(words, folder=Path(folder))
            wrong = "took too long" if ended is None else ended.wrong(status)
            used = 0 if ended is None or ended.peak_bytes is None else ended.peak_bytes
            if wrong or not 0 < used < MOST_MEMORY:
                failures.append(f"{words}: {wrong}, {used >> 20} MB")
    return Trial("small files that declare gigabytes", tried, tuple(failures))
