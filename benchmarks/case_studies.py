"""Case studies of the model-checking field: Storm's published averages, Storm's own, and fmdp's.

The files are not part of this repository. They are in the repositories of Storm (its tests of
long-run averages) and of the Quantitative Verification Benchmark Set:

    git clone https://github.com/moves-rwth/storm
    git clone https://github.com/ahartmanns/qcomp
    python -m benchmarks.case_studies storm qcomp [--storm]

With --storm (extra `storm`), Storm computes every value again. The table of docs/prism.md is the
output.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import fmdp
from fmdp.errors import FmdpError
from fmdp.interop import prism, storm

STORM = "storm/resources/examples/testfiles"
QCOMP = "qcomp/benchmarks"
TANDEM = f"{QCOMP}/ctmc/tandem/tandem.prism"
CLUSTER = f"{QCOMP}/ctmc/cluster/cluster.prism"
TESTS = "storm/src/test/storm/modelchecker"


@dataclass(frozen=True)
class Case:
    """A long-run average of a file, and what was published about it."""

    path: str
    of: str
    """A reward structure or a label; "" for a structure without a name."""
    published: float | None
    """None if the file is refused."""
    constants: dict[str, int] = field(default_factory=dict)
    minimise: bool = False
    text: str = ""
    """The file, if it is made here."""
    exact: bool = True
    """Whether Storm's exact arithmetic answers within seconds."""
    tolerance: float = 1e-9
    """Error of the published number."""

    @property
    def name(self) -> str:
        """The file with its constants, and the question."""
        constants = "".join(f",{name}={value}" for name, value in self.constants.items())
        sense = "min " if self.minimise else ""
        return f"{Path(self.path).name}{constants}: {sense}{self.of or 'reward'}"

    def source(self, folders: dict[str, Path]) -> str:
        """Return the text of the file."""
        if self.text:
            return self.text
        root, _, rest = self.path.partition("/")
        return (folders[root] / rest).read_text()


# Storm's own tests compare with 1e-6, and some of their numbers are its approximations.
CASES = [
    Case(f"{STORM}/mdp/cs_nfail3.nm", "grants", 333 / 1000),
    Case(f"{STORM}/mdp/cs_nfail3.nm", "grants", 0.0, minimise=True),
    Case(f"{STORM}/ctmc/cluster2.sm", "minimum", 0.99999766034263426, exact=False, tolerance=1e-6),
    Case(
        f"{STORM}/ctmc/embedded2.sm",
        "fail_sensors",
        6201111489217 / 6635130141055,
        exact=False,
    ),
    Case(f"{STORM}/ctmc/polling2.sm", "target", 0.20079750055570736, tolerance=1e-6),
    Case(f"{STORM}/ctmc/tandem5.sm", "first_queue_full", 0.9100373532, tolerance=1e-6),
    Case(f"{STORM}/ctmc/lrarewards.sm", "", 11 / 15),
    Case(f"{STORM}/ctmc/kanban.prism", "throughput", 0.0925846346333826),
    Case(f"{STORM}/ma/simple2.ma", "rew3", None),
    Case(TANDEM, "customers", 5.679249959967679, {"c": 5}),
    Case(TANDEM, "customers", 7.7465621853360425, {"c": 7}),
    Case(TANDEM, "customers", 15.798592927169762, {"c": 15}, exact=False),
    Case(f"{QCOMP}/ctmc/polling/polling.3.prism", "waiting", 0.1308020365834841),
    Case(f"{QCOMP}/ctmc/polling/polling.4.prism", "waiting", 0.14119036379818742),
    Case(f"{QCOMP}/ctmc/polling/polling.5.prism", "waiting", 0.14492709367584383, exact=False),
    Case(f"{QCOMP}/ctmc/polling/polling.6.prism", "waiting", 0.14573191126269974, exact=False),
    Case(f"{QCOMP}/ctmc/kanban/kanban.prism", "throughput", 0.0925846346333826, {"t": 1}),
    Case(f"{QCOMP}/ctmc/fms/fms.prism", "productivity", 13.85312833622229, {"n": 1}),
    Case(f"{QCOMP}/ctmc/fms/fms.prism", "productivity", 29.154698799657936, {"n": 2}, exact=False),
    Case(CLUSTER, "premium", 0.9999615335623628, {"N": 2}, exact=False),
    Case(CLUSTER, "premium", 0.9999212408513793, {"N": 4}, exact=False),
]  # fmt: skip

# Vertices that Storm's tests of several objectives expect.
FRONTS = [
    (f"{STORM}/mdp/multiobj_simple_lra.nm", {}, "first", "second", [(5, 80 / 11), (0, 16)]),
    (f"{STORM}/mdp/multiobj_simple_lra.nm", {}, "first:min", "second", [(0, 16)]),
    (
        f"{STORM}/mdp/resource-gathering.nm",
        {"GOLD_TO_COLLECT": 0, "GEM_TO_COLLECT": 0, "B": 0},
        "rew_gold",
        "rew_gem",
        [(27 / 241, 0), (0, 1 / 10), (27 / 349, 27 / 349)],
    ),
    (
        f"{STORM}/mdp/resource-gathering.nm",
        {"GOLD_TO_COLLECT": 0, "GEM_TO_COLLECT": 0, "B": 0},
        "rew_gold",
        "attacks:min",
        [(27 / 241, 19 / 723), (3 / 31, 1 / 93), (1 / 12, 0)],
    ),
]


def matrix_cases(folders: dict[str, Path]) -> Iterator[Case]:
    """Yield the cases of Storm's tests that write their matrices in C++, as PRISM files."""
    for kind in ("mdp", "dtmc"):
        file = f"{TESTS}/prctl/{kind}/Lra{kind.capitalize()}PrctlModelCheckerTest.cpp"
        code = (folders["storm"] / file.removeprefix("storm/")).read_text()
        for number, block in enumerate(re.split(r"matrixBuilder = ", code)[1:], start=1):
            yield from _block_cases(kind, f"{file}, matrix {number}", block)


def _block_cases(kind: str, name: str, block: str) -> Iterator[Case]:
    groups = [int(row) for row in re.findall(r"newRowGroup\((\d+)\)", block)]
    rows: dict[int, list[str]] = {}
    for row, column, chance in re.findall(r'Value\((\d+), (\d+), .*?"(.*?)"\)', block):
        rows.setdefault(int(row), []).append(f"{chance} : (s'={column})")
    labels: dict[str, list[str]] = {}
    for label, state in re.findall(r'addLabelToState\("(\w)", (\d+)\)', block):
        labels.setdefault(label, []).append(f"s={state}")
    size = len(groups) or len(rows)
    commands = [
        f"[] s={sum(start <= row for start in groups) - 1 if groups else row} -> "
        f"{' + '.join(updates)};"
        for row, updates in rows.items()
    ]
    named = [f'label "{label}" = {" | ".join(where)};' for label, where in labels.items()]
    for sense, label, results in re.findall(
        r'LRA(max|min|)=\? \[\\"(\w)\\"\]"\);(.*?)(?=formulaParser|\Z)', block, re.S
    ):
        for value, state in re.findall(r'NEAR\(.*?"(.*?)"\), \w+\[(\d+)\]', results):
            module = "\n".join([f"s : [0..{size - 1}] init {state};", *commands])
            text = f"{kind}\nmodule m\n{module}\nendmodule\n" + "\n".join(named)
            number = float(Fraction(value.replace(" ", "")))
            yield Case(f"{name}, from {state}", label, number, {}, sense == "min", text)


def bounds(case: Case, folders: dict[str, Path]) -> tuple[fmdp.FactoredMDP, tuple[float, float]]:
    """Return the model of a case and certified bounds on the average from the initial state."""
    text = case.source(folders)
    of = case.of or None
    model = (
        prism.loads(text, case.constants, minimise=of)
        if case.minimise
        else prism.loads(text, case.constants, of)
    )
    plan = fmdp.plan(model, fmdp.Exact(tolerance=1e-9))
    low, high = plan.stats.get("gain_from_initial_state_bounds") or plan.gain_bounds
    return model, (0.0 - high, 0.0 - low) if case.minimise else (low, high)


def front_of(
    path: str, constants: dict[str, int], one: str, two: str, folders: dict[str, Path]
) -> list[tuple[float, ...]]:
    """Return the vertices that fmdp finds, sorted."""
    first, _, sense = one.partition(":")
    root, _, rest = path.partition("/")
    model = prism.loads((folders[root] / rest).read_text(), constants, first)
    total = "reward" + (f":{sense}" if sense else "")
    return sorted(vertex.values for vertex in fmdp.pareto(model, of=(total, two)).vertices)


def report(folders: dict[str, Path], with_storm: bool) -> Iterator[str]:
    """Yield the lines of the tables."""
    yield "| file | states | published | Storm | fmdp, certified bounds | time |"
    yield "|---|---|---|---|---|---|"
    for case in CASES:
        started = time.perf_counter()
        if case.published is None:
            try:
                bounds(case, folders)
            except FmdpError as error:
                yield f"| `{case.name}` | | | | refused: {error} | |"
            continue
        model, (low, high) = bounds(case, folders)
        seconds = time.perf_counter() - started
        theirs = "-"
        if with_storm:
            theirs = f"{_storm(case, folders):.12g}{' exactly' if case.exact else ''}"
        yield (
            f"| `{case.name}` | {model.structure.n_states:,} | {case.published:.12g} | {theirs} | "
            f"{low:.12g} .. {high:.12g} | {seconds:.2g} s |"
        )
    worst, count = 0.0, 0
    for case in matrix_cases(folders):
        _, (low, high) = bounds(case, folders)
        assert case.published is not None
        worst = max(worst, low - case.published, case.published - high)
        count += 1
    yield f"\n{count} values of matrices in Storm's tests: at most {worst:.2g} outside the bounds\n"
    for path, constants, one, two, expected in FRONTS:
        found = front_of(path, constants, one, two, folders)
        yield f"{Path(path).name}, {one} and {two}: {found}; Storm expects {sorted(expected)}"


def _storm(case: Case, folders: dict[str, Path]) -> float:
    return storm.average(
        case.source(folders), case.of, case.constants, minimise=case.minimise, exact=case.exact
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("storm", type=Path, help="a checkout of moves-rwth/storm")
    parser.add_argument("qcomp", type=Path, help="a checkout of ahartmanns/qcomp")
    parser.add_argument("--storm", dest="again", action="store_true", help="ask Storm again")
    given = parser.parse_args()
    for line in report({"storm": given.storm, "qcomp": given.qcomp}, given.again):
        print(line, flush=True)


if __name__ == "__main__":
    main()
