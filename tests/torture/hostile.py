"""Small files that ask for too much, given to every command that reads them.

Each entry of `FILES` makes one file (or several) that is valid in form, but whose numbers, nesting
or names would take hours or gigabytes. A command has to refuse it in one line, or work, within the
limits of its child process. tests/test_hostile_files.py runs the same table without the limits.
"""

from __future__ import annotations

import importlib.util
import json
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torture import child
from torture.nursery import Nursery
from torture.trial import SHORT, Trial

SECONDS = 10.0
"""Most processor time of a command, with room for a busy machine; it should take one or two."""
MEMORY_BYTES = 3 << 30
"""Most address space of a command; a warm program has about 1.5 GB."""
RESIDENT_BYTES = 700 << 20


@dataclass(frozen=True)
class Hostile:
    """Files, and the commands that read them."""

    name: str
    write: Callable[[Path], None]
    commands: Sequence[Sequence[str]]
    needs: str = ""
    """A package without which the commands are skipped."""

    @property
    def accepted(self) -> bool:
        return self.name in ACCEPTED


ACCEPTED = (
    "RDDL: a sum of 20,000 terms",
    "RDDL: a negative power of a fluent",
    "PRISM: 20,000 modules",
    "model: 100,000 constraints",
    "model: 63 action variables",
    "model: 70 action variables",
    "model: 2,000 action variables",
    "model: 2^64 pairs of states and actions",
    "model: 2^63 states",
    "model: 2^64 states",
    "model: 2^2000 states",
    "model: a constraint over 64 variables",
    "model: a chain of 5,000 likes",
    "model: 20,000 states",
    "model: 20,000 rewards",
)
"""Large but valid: they must be read. Everything else must be refused."""
LARGE = ("PRISM: 20,000 modules", "model: 100,000 constraints", "model: 2^2000 states",
         "model: 2,000 action variables", "model: a chain of 5,000 likes", "model: 20,000 states",
         "model: 20,000 rewards")  # fmt: skip
"""Valid ones with which learning or planning may take as long as it needs; they are only read."""
READ_ONLY = ("show", "convert", "evaluate")


# ---- models --------------------------------------------------------------------------------------


def model(states: Any, actions: Any, transitions: Any, **more: Any) -> dict[str, Any]:
    head = {"format": "fmdp-model", "version": 2, "states": states, "actions": actions}
    return {**head, "transitions": transitions, **more}


def binary(prefix: str, n: int) -> list[dict[str, Any]]:
    return [{"name": f"{prefix}{i}", "size": 2} for i in range(n)]


def coins(n: int, actions: Any = None, **more: Any) -> dict[str, Any]:
    """Fair coins, one of them paid for."""
    more.setdefault("rewards", [{"scope": ["s0"], "means": [0, 1]}])
    rows = [{"scope": [], "rows": [[0.5, 0.5]]} for _ in range(n)]
    return model(binary("s", n), actions or binary("a", 1), rows, **more)


def saved(name: str, document: Callable[[], Any]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        made = document()
        text = made if isinstance(made, str | bytes) else json.dumps(made)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return write


def reading(name: str) -> list[list[str]]:
    """Return the commands that read a model, given the files of `companions`."""
    return [
        ["show", name],
        ["plan", name, "--max-seconds", "2"],
        ["convert", name, "out.json"],
        ["learn", name, "--steps", "10", "--learner", "psrl"],
        ["measure", name],
        ["sweep", "sweep.toml", "--out", "out"],
        ["evaluate", name, "circle.npz"],
        ["act", name, "circle.npz"],
        ["fit", "log.csv", "--model", name, "--out", "fitted.json"],
        ["serve", "--model", name, "--learner", "random", "--dir", "served"],
    ]


# ---- foreign formats -----------------------------------------------------------------------------


def rddl(reward: str = "0", law: str = "s' = go;", fluents: str = "", types: str = "",
         objects: str = "", rest: str = "") -> Callable[[Path], None]:  # fmt: skip
    def write(folder: Path) -> None:
        told = f"objects {{ {objects} }};" if objects else ""
        (folder / "d.rddl").write_text(
            f"domain d {{ types {{ {types} }}; pvariables {{ {fluents} "
            f"s : {{state-fluent, bool, default = false}}; "
            f"go : {{action-fluent, bool, default = false}}; }}; cpfs {{ {law} }}; "
            f"reward = {reward}; {rest} }}\n"
        )
        (folder / "i.rddl").write_text(
            f"non-fluents n {{ domain = d; {told} }}\n"
            f"instance i {{ domain = d; non-fluents = n; max-nondef-actions = 1; horizon = 7; "
            f"discount = 0.9; }}\n"
        )

    return write


def over(n_variables: int, n_objects: int, aggregation: str = "sum", inner: str = "s") -> Any:
    bound = ", ".join(f"?x{i} : o" for i in range(n_variables))
    objects = ", ".join(f"o{i}" for i in range(n_objects))
    return rddl(
        f"{aggregation}_{{{bound}}} [{inner}]", types="o : object;", objects=f"o : {{{objects}}};"
    )


RDDL = {
    "an unknown @value": rddl("(s == @nobody)"),
    "an unknown @value in a law": rddl(law="s' = (s == @nobody);"),
    "brackets nested 3,000 deep": rddl("(" * 3000 + "s" + ")" * 3000),
    "negations nested 20,000 deep": rddl("s + " + "-" * 20_000 + "1"),
    "conditions nested 2,000 deep": rddl("if (s) then 1 else " * 2000 + "0"),
    "a sum of 20,000 terms": rddl(" + ".join(["s"] * 20_000)),
    "a chain of 2,000 powers": rddl("pow[s, " * 2000 + "2" + "]" * 2000),
    "a sum over seven variables": over(7, 20),
    "a forall over seven variables": over(7, 20, "forall", "s | go"),
    "a maximum over seven variables": over(7, 20, "max", "1"),
    "sums inside sums": over(4, 20, "sum", "sum_{?y0 : o, ?y1 : o, ?y2 : o, ?y3 : o} [1]"),
    "a power of a power": rddl("pow[10,pow[10,10]]"),
    "a large power": rddl("pow[7,1000000]"),
    "a large power of a fluent": rddl("pow[7, 1000000 * s]"),
    "a negative power of a fluent": rddl("pow[2, s - 3]"),
    "a division by a fluent": rddl("div[7, s]"),
    "an object of another type": rddl(
        "f(@q1)", fluents="f(p) : {state-fluent, bool, default = false};",
        types="p : {@p1, @p2}; q : {@q1};", law="s' = go; f'(?x) = go;",
    ),
    "a value of an unknown type": rddl(
        "(f == @p1)",
        fluents="f : {non-fluent, nothing, default = @a};", types="p : {@p1, @p2};",
    ),
    "a default of an unknown type": rddl("f", fluents="f : {non-fluent, nothing};"),
    "the next value of an action": rddl("go'"),
    "the next value of a state in a law": rddl(law="s' = ~s';"),
    "an unknown case": rddl("switch (f) {case @p1 : 1, case @q7 : 2}",
        fluents="f : {state-fluent, p, default = @p1};", types="p : {@p1, @p2};",
        law="s' = go; f' = if (go) then @p2 else @p1;",
    ),
    "a Discrete of unknown values": rddl(
        fluents="f : {state-fluent, p, default = @p1};", types="p : {@p1, @p2};",
        law="s' = go; f' = Discrete(p, @p1 : 0.5, @q9 : 0.5);",
    ),
    "a product of large powers": rddl("*".join(["pow[9,19]"] * 200)),
    "a product over objects": over(3, 100, "prod", "10"),
    "a number of 10,000 digits": rddl("9" * 10_000),
    "a number of 300 digits times a fluent": rddl("9" * 300 + " * s"),
    "a number of 1e400": rddl("1e400 * s"),
    "an exponential without end": rddl("exp[exp[exp[10]]]"),
    "a fluent of eight parameters": rddl(
        fluents="f(o,o,o,o,o,o,o,o) : {state-fluent, bool, default = false};",
        types="o : object;", objects="o : {" + ", ".join(f"o{i}" for i in range(40)) + "};",
    ),
    "a counter of large powers": rddl(
        "k", fluents="k : {state-fluent, int, default = 2};", law="s' = go; k' = k * k;"
    ),
    "a counter without end": rddl(
        "k", fluents="k : {state-fluent, int, default = 0};", law="s' = go; k' = k + 1;"
    ),
    "a law that reads itself": rddl(
        "f", fluents="f : {interm-fluent, bool};", law="s' = f; f = f;"
    ),
    "a chain of 3,000 laws": rddl(
        "f0",
        fluents=" ".join(f"f{i} : {{interm-fluent, bool}};" for i in range(3000)),
        law="s' = f0; " + " ".join(f"f{i} = f{i + 1} | s;" for i in range(2999)) + " f2999 = go;",
    ),
    "sums that double": rddl(
        "f30",
        fluents=" ".join(f"f{i} : {{interm-fluent, int}};" for i in range(31)),
        law="s' = go; f0 = s; " + " ".join(f"f{i + 1} = f{i} + f{i};" for i in range(30)),
    ),
}  # fmt: skip


def prism(body: str, module: str = "x : [0..1]; [] true -> (x'=1-x);") -> str:
    return f"mdp\n{body}\nmodule m\n {module}\nendmodule\n"


def _formulas(n: int, backwards: bool = False) -> str:
    made = [f"formula f{i} = f{i - 1} + 1;" if i else "formula f0 = 1;" for i in range(n)]
    used = f"x : [0..1]; [] f{n - 1} > 0 -> (x'=1-x);"
    return prism("\n".join(reversed(made) if backwards else made), used)


def _constants(n: int) -> str:
    made = [f"const int c{i} = c{i - 1} + 1;" if i else "const int c0 = 1;" for i in range(n)]
    return prism("\n".join(reversed(made)), f"x : [0..1]; [] c{n - 1} > 0 -> (x'=1-x);")


def _doubling(n: int) -> str:
    made = [f"formula f{i} = f{i - 1} + f{i - 1};" if i else "formula f0 = 1;" for i in range(n)]
    return prism("\n".join(made), f"x : [0..1]; [] f{n - 1} > 0 -> (x'=1-x);")


def _modules(n: int, noted: bool = False) -> str:
    note = '//: constraint {{"a": {i}}}\n' if noted else ""
    parts = [
        f"module m{i}\n{note.format(i=i)} x{i} : bool; [go] true -> (x{i}'=!x{i});\nendmodule"
        for i in range(n)
    ]
    return "mdp\n" + "\n".join(parts)


PRISM: dict[str, Callable[[], str]] = {
    "a chain of 5,000 formulas": lambda: _formulas(5000),
    "a chain of 5,000 formulas, backwards": lambda: _formulas(5000, backwards=True),
    "a chain of 5,000 constants, backwards": lambda: _constants(5000),
    "formulas that double": lambda: _doubling(60),
    "20,000 modules": lambda: _modules(20_000),
    "20,000 modules with notes": lambda: _modules(20_000, noted=True),
    "a power of a power": lambda: prism("const int c = pow(10, pow(10, 10));"),
    "a large power": lambda: prism("const int c = pow(7, 1000000);"),
    "a large product": lambda: prism("const int c = " + "*".join(["9999999999"] * 99) + ";"),
    "a number of 1,000 digits": lambda: prism("const int c = " + "9" * 1000 + ";"),
    "a number of 1e400": lambda: prism("const double c = 1e400;"),
    "brackets nested 5,000 deep": lambda: prism(
        "const int c = " + "(" * 5000 + "1" + ")" * 5000 + ";"
    ),
    "negations nested 50,000 deep": lambda: prism("const int c = " + "-" * 50_000 + "1;"),
    "conditions nested 5,000 deep": lambda: prism(
        "const int c = " + "true ? 1 : " * 5000 + "1;"
    ),
    "10^15 states, one by one": lambda: prism(
        "", "x : [0..999999999999999]; [] x<999999999999999 -> (x'=x+1);"
    ),
    "a counter without an end": lambda: prism("", "x : int; [] true -> (x'=x+1);"),
    "2^200 states": lambda: prism(
        "",
        " ".join(f"x{i} : bool;" for i in range(200))
        + " ".join(f"[] true -> (x{i}'=!x{i});" for i in range(200)),
    ),
    "2^200 successors of one state": lambda: prism(
        " ".join(
            f"module m{i} x{i} : [0..3]; [] x{i}=3 -> true;"
            f"[a] true -> 0.5 : (x{i}'=1) + 0.5 : (x{i}'=2); endmodule"
            for i in range(200)
        )
    ),
    "2^200 choices of one state": lambda: prism(
        " ".join(
            f"module m{i} x{i} : bool; [a] true -> (x{i}'=true); [a] true -> true; endmodule"
            for i in range(200)
        )
    ),
    "a nested note": lambda: prism('//: model {"a": ' + "[" * 50_000),
}  # fmt: skip


# ---- networks ------------------------------------------------------------------------------------


def bifxml(value: str) -> str:
    values = "<OUTCOME>a</OUTCOME><OUTCOME>b</OUTCOME>"
    node = f'<VARIABLE TYPE="{{t}}"><NAME>{{n}}</NAME>{values}</VARIABLE>'
    return (
        '<?xml version="1.0"?><BIF VERSION="0.3"><NETWORK><NAME>n</NAME>'
        + node.format(t="nature", n="x_0") + node.format(t="nature", n="x_t")
        + "<DEFINITION><FOR>x_0</FOR><TABLE>1 0</TABLE></DEFINITION>"
        + f"<DEFINITION><FOR>x_t</FOR><GIVEN>x_0</GIVEN><TABLE>0.5 0.5 {value} 0.5</TABLE>"
        + "</DEFINITION></NETWORK></BIF>"
    )  # fmt: skip


NETWORKS: dict[str, tuple[str, Callable[[], str | bytes]]] = {
    "1e400 in BIFXML": ("n.bifxml", lambda: bifxml("1e400")),
    "1e400000000 in BIFXML": ("n.bifxml", lambda: bifxml("1e400000000")),
    "BIFXML that is not UTF-8": ("n.bifxml", lambda: bifxml("0.5").encode() + b"\xff\xfe"),
    "BIF that is not UTF-8": ("n.bif", lambda: b"network \xff\xfe {}"),
    "GUM that is not UTF-8": ("n.gum", lambda: b"\xff\xfe{}"),
    "GUM nested deeply": ("n.gum", lambda: "[" * 100_000),
    "an empty network": ("n.gum", lambda: "{}"),
}


# ---- logs, specs, models, learners ---------------------------------------------------------------


def _long_line(folder: Path) -> None:
    """3 GB without an end of line; the file is sparse."""
    with (folder / "log.csv").open("wb") as file:
        file.write(b"s0,a0,next_s0,")
        file.truncate(3 << 30)


def log(n_columns: int) -> str:
    names = ",".join(f"c{i}" for i in range(n_columns))
    return f"{names}\n{','.join('0' * n_columns)}\n{','.join('1' * n_columns)}\n"


def fitting() -> list[list[str]]:
    learn = ["--structure", "learn", "--actions", "c0", "--rewards", "c1"]
    return [
        ["fit", "log.csv", "--model", "circle:3", "--out", "fitted.json"],
        ["fit", "log.csv", *learn, "--out", "fitted.json"],
        ["learn", "circle:3", "--learner", "psrl", "--steps", "10", "--from", "log.csv"],
    ]


def spec(**changed: Any) -> str:
    from torture.files import toml

    learner = {"name": "psrl", "set": {}}
    base = {"steps": 10, "seeds": 2, "problems": ["circle:2"], "learners": [learner]}
    return toml({**base, **changed})


def grid(**lists: int) -> Any:
    values = {name: [0.01 + i / 1000 for i in range(n)] for name, n in lists.items()}
    return [{"name": "psrl", "set": values}]


SPECS: dict[str, Callable[[], str]] = {
    "a grid of 10^9 runs": lambda: spec(learners=grid(c=1000, prior=1000), seeds=1000),
    "a grid of 10^6 cells": lambda: spec(learners=grid(c=1000, prior=1000)),
    "a grid of planners": lambda: spec(
        learners=[{
            "name": "psrl", "set": {"c": [i / 1000 + 0.01 for i in range(1000)]},
            "planner": {"name": "exact", "tolerance": [0.001 + i / 10_000 for i in range(1000)],
                        "max_iterations": list(range(1, 1000))},
        }]
    ),
    "20,000 learners": lambda: spec(
        learners=[{"name": "psrl", "set": {"c": 0.01 + i / 10_000}} for i in range(20_000)]
    ),
    "arrays nested deeply": lambda: "steps = " + "[" * 50_000,
    "dotted keys nested deeply": lambda: "a." * 20_000 + "a = 1",
    "a number of 10,000 digits": lambda: f"steps = {'9' * 10_000}",
    "a hexadecimal number of 100,000 digits": lambda: f"steps = 0x{'f' * 100_000}",
}  # fmt: skip


def _constraints(n: int) -> Any:
    forbid = [{"a0": 1, "s0": 0}]
    return coins(2, constraints=[{"forbid": forbid, "name": f"c{i}"} for i in range(n)])


def _tree_text(depth: int) -> str:
    head = json.dumps(coins(1)).replace('{"scope": [], "rows": [[0.5, 0.5]]}', "TREE")
    return head.replace("TREE", '{"scope": ["s0"], "tree": ' + '{"on": "s0", "else": ' * depth
                        + "[0.5, 0.5]" + "}" * depth + "}")  # fmt: skip


MODELS: dict[str, Callable[[], Any]] = {
    "100,000 constraints": lambda: _constraints(100_000),
    "63 action variables": lambda: coins(2, binary("a", 63)),
    "70 action variables": lambda: coins(2, binary("a", 70)),
    "2,000 action variables": lambda: coins(2, binary("a", 2000)),
    "2^64 pairs of states and actions": lambda: coins(40, binary("a", 24)),
    "2^63 states": lambda: coins(63),
    "2^64 states": lambda: coins(64),
    "2^2000 states": lambda: coins(2000),
    "a constraint over 64 variables": (
        lambda: coins(2, binary("a", 64), constraints=[{"at_most": 1}])),
    "a forbidden table over 64 variables": (
        lambda: coins(2, binary("a", 64),
                      constraints=[{"forbid": [{f"a{i}": 1 for i in range(64)}]}])),
    "a scope of 70 variables": (
        lambda: model(binary("s", 70), binary("a", 1),
                      [{"scope": [f"s{i}" for i in range(70)], "rows": [[0.5, 0.5]]}] * 70)),
    "a tree nested 5,000 deep": lambda: _tree_text(5000),
    "likes in a circle": (
        lambda: {**coins(2), "transitions": [{"like": {"factor": f"s{1 - i}"}} for i in (0, 1)]}),
    "a chain of 5,000 likes": (
        lambda: {**coins(5000), "transitions": [
            *({"like": {"factor": f"s{i + 1}"}} for i in range(4999)),
            {"scope": [], "rows": [[0.5, 0.5]]},
        ]}),
    "names with control characters": (
        lambda: {**coins(1), "name": "a\x00\x1b[31m\n", "states": [
            {"name": "s0\n\x1b]0;x\x07", "values": ["\x00", "\u202e"]}]}),
    "a name of a million characters": (
        lambda: {**coins(1), "states": [{"name": "s" * 10**6, "size": 2}]}),
    "a number of 5,000 digits": (
        lambda: json.dumps(coins(1)).replace("0.5", "9" * 5000)),
    "numbers of 1e400": lambda: json.dumps(coins(1)).replace("0.5", "1e400"),
    "rewards near the largest number": (
        lambda: coins(1, rewards=[{"scope": ["s0"], "means": [-1e308, 1e308]}])),
    "arrays nested deeply": lambda: "[" * 200_000,
    "a size of 10^30": lambda: {**coins(1), "states": [{"name": "s0", "size": 10**30}]},
    "20,000 states": lambda: coins(20_000),
    "20,000 rewards": (
        lambda: coins(2, rewards=[{"scope": ["s0"], "means": [0, 1]}] * 20_000)),
}  # fmt: skip


def _learner(**changed: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        import numpy as np

        import fmdp
        from fmdp._base.archives import pack

        fmdp.simulate(fmdp.problem("circle:3"), "psrl", 40, seed=1).agent.save(folder / "l.npz")
        with np.load(folder / "l.npz") as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(str(arrays.pop("header")))
        header.pop("digest")
        header["structure"] |= changed
        (folder / "l.npz").write_bytes(pack(header, arrays))

    return write


_VALUES = {"state_values": [[], [], []], "action_values": [[]]}
LEARNERS = {
    "states of 2^9 values": _learner(state_sizes=[512] * 3, **_VALUES),
    "states of 2^24 values": _learner(state_sizes=[2**24] * 3, **_VALUES),
    "an action of 2^24 values": _learner(action_sizes=[2**24], **_VALUES),
    "2^64 actions": _learner(action_sizes=[2**64], **_VALUES),
}


def companions(folder: Path) -> None:
    """Write the files that `reading` needs beside a model: a policy, a log, a spec."""
    import fmdp

    plan = fmdp.plan(fmdp.problem("circle:3"))
    assert plan.policy is not None
    plan.policy.save(folder / "circle.npz")
    (folder / "log.csv").write_text("s0,a0,next_s0\n0,0,1\n")


def _with_spec(write: Callable[[Path], None], name: str) -> Callable[[Path], None]:
    def both(folder: Path) -> None:
        write(folder)
        companions(folder)
        (folder / "sweep.toml").write_text(spec(problems=[name]))

    return both


def files() -> Iterator[Hostile]:
    """Yield the whole table."""
    for name, write in RDDL.items():
        yield _model(f"RDDL: {name}", write, "d.rddl+i.rddl", "pyRDDLGym")
    for name, text in PRISM.items():
        yield _model(f"PRISM: {name}", saved("m.prism", text), "m.prism")
    for name, (file, network) in NETWORKS.items():
        yield _model(f"network: {name}", saved(file, network), file, "pyagrum")
    for name, document in MODELS.items():
        yield _model(f"model: {name}", saved("m.json", document), "m.json")
    yield Hostile("log: 200,000 columns", saved("log.csv", lambda: log(200_000)), fitting())
    yield Hostile("log: a line of 3 GB", _long_line, fitting())
    for name, text in SPECS.items():
        yield Hostile(f"spec: {name}", saved("s.toml", text), [["sweep", "s.toml", "--out", "o"]])


def _model(name: str, write: Callable[[Path], None], file: str, needs: str = "") -> Hostile:
    commands = [c for c in reading(file) if c[0] in READ_ONLY or name not in LARGE]
    return Hostile(name, _with_spec(write, file), commands, needs)


# ---- the torture ---------------------------------------------------------------------------------

WARM = (["show", "circle:3"], ["plan", "circle:3"], ["learn", "circle:2", "--steps", "9"])


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    """Everything here once; in the short form some of it."""
    dice = random.Random(seed)
    table = list(files())
    missing = {file.needs for file in table if not _installed(file.needs)}
    for package in sorted(missing):
        yield Trial(f"files that ask for too much, read by {package}", 0, skipped="not installed")
    table = [file for file in table if file.needs not in missing]
    if scale < SHORT:
        table = dice.sample([file for file in table if file.name not in LARGE], 6)
    tried, failures = 0, []
    # The parser of RDDL takes longer to build than all that is tried with it.
    warm = [*WARM, ["show", "rddl:sysadmin:1"]] if _installed("pyRDDLGym") else WARM
    with tempfile.TemporaryDirectory() as folder, Nursery(Path(folder), warm) as nursery:
        for number, file in enumerate(table):
            place = Path(folder) / str(number)
            place.mkdir()
            file.write(place)
            for words in file.commands if scale >= SHORT else file.commands[:2]:
                tried += 1
                wrong = _tried(nursery, words, place)
                if wrong:
                    failures.append(f"{file.name}: {' '.join(words)}: {wrong}")
    yield Trial("files that ask for too much", tried, tuple(failures))
    yield _learners(scale)


def _installed(package: str) -> bool:
    return not package or importlib.util.find_spec(package) is not None


def _tried(nursery: Nursery, words: Sequence[str], place: Path) -> str | None:
    ended = nursery.run(words, 20 * SECONDS, folder=place, memory=MEMORY_BYTES)
    if ended is None:
        return "took too long"
    used = ended.peak_bytes or 0
    if ended.seconds > SECONDS or used > RESIDENT_BYTES:
        return f"took {ended.seconds:.1f} s and {used >> 20} MB"
    return ended.wrong(0, 1, 2)


def _learners(scale: float) -> Trial:
    import fmdp
    from fmdp.errors import FileProblem

    def load(path: Path) -> None:
        try:
            fmdp.load_agent(path)
        except FileProblem:
            return
        raise AssertionError("it was loaded")

    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for name, write in LEARNERS.items():
            write(Path(folder))
            ended = child.run(lambda: load(Path(folder) / "l.npz"), seconds=SECONDS)
            if ended.bad:
                failures.append(f"{name}: {ended.bad}")
    return Trial("learner files that lie about a size", len(LEARNERS), tuple(failures))
