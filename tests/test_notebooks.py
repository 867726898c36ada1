"""Notebooks: tables of results, and the gallery as notebooks that are made from the examples.

A result is one well-formed table, in which every name is escaped. A committed notebook has the code
of its example, and the outputs of a run.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import fmdp

from .pages import DOCS, Page, steady

NAME = "<b>x</b> & 'y'"


@pytest.fixture(scope="module")
def model() -> fmdp.FactoredMDP:
    return fmdp.FactoredMDP.from_factors(
        [2],
        [2],
        [([0, 1], np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8], [0.5, 0.5]]))],
        [([0], np.array([1.0, 0.0]))],
        state_names=[NAME],
        state_values=[["<up>", "down"]],
        name="<i>model</i>",
    )


def test_every_result_is_a_table(model: fmdp.FactoredMDP) -> None:
    plan = fmdp.plan(model)
    assert plan.policy is not None
    shown = {
        "model": model,
        "plan": plan,
        "policy": plan.policy,
        "explanation": plan.explain((0,)),
        "evaluation": fmdp.evaluate(model, plan.policy),
        "run": fmdp.simulate(model, plan.policy, 10),
        "summary": plan.summary(),
        "whatif": fmdp.whatif(lambda _: model, price=[1]),
    }
    for name, result in shown.items():
        text = result._repr_html_()  # type: ignore[attr-defined]
        table = ElementTree.fromstring(text)
        assert table.tag == "table", name
        assert table.find("tbody/tr") is not None, name
        assert "<b>" not in text
        assert "<i>" not in text
    words = "".join(ElementTree.fromstring(model._repr_html_()).itertext())
    assert NAME in words
    assert "<up>" in words


# ---- the gallery ---------------------------------------------------------------------------------


EXAMPLES = sorted(
    path.stem
    for path in (DOCS.parent / "examples").glob("*.py")
    if "def main(picture" in path.read_text()
)
FAST = "two_products"
"""The notebook that `make test` runs; the others are slow."""


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """Return docs/notebooks.py, which is no part of a package."""
    for needed in ("nbformat", "nbclient", "ipykernel"):
        pytest.importorskip(needed)
    spec = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def example(name: str) -> Path:
    return DOCS.parent / "examples" / f"{name}.py"


def committed(maker: ModuleType, name: str) -> Any:
    return maker.nbformat.read(maker.file_of(example(name)), as_version=4)


def printed(notebook: Any) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    return "".join(output.text for output in outputs if output.output_type == "stream")


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_committed_notebook_is_up_to_date(name: str, maker: ModuleType) -> None:
    stored, made = committed(maker, name), maker.notebook(example(name))
    assert [(c.cell_type, c.id, c.source) for c in stored.cells] == [
        (c.cell_type, c.id, c.source) for c in made.cells
    ]
    maker.nbformat.validate(stored)
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    kinds = {kind for cell in code for output in cell.outputs for kind in output.get("data", ())}
    assert {"image/png", "text/html"} <= kinds
    shown = re.search(
        rf"notebooks/{name}\.ipynb\).*?^```text\n(.*?)^```",
        Page("gallery.md").text,
        flags=re.DOTALL | re.MULTILINE,
    )
    assert shown is not None
    assert steady(printed(stored)) == steady(shown[1])
    assert maker.file_of(example(name)).stat().st_size < 300_000


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == FAST else pytest.mark.slow) for n in EXAMPLES]
)
def test_a_notebook_runs(name: str, maker: ModuleType) -> None:
    ran = maker.run(maker.notebook(example(name)))
    assert steady(printed(ran)) == steady(printed(committed(maker, name)))


def test_marks_divide_an_example_into_cells(tmp_path: Path, maker: ModuleType) -> None:
    path = tmp_path / "small.py"
    path.write_text(
        '"""Doc."""\n\nfrom __future__ import annotations\n\nimport sys\n\nimport math\n\n'
        "# %%\nx = 1\n# show: x\n\n\ndef main(picture: str) -> None:\n    y = 2\n"
        "    # show: x + y\n    for z in (x, y):\n        print(z)\n"
        "    math.log(\n        y\n    )\n    figure.savefig(\n        picture\n    )\n\n\n"
        'if __name__ == "__main__":\n    main(sys.argv[1])\n'
    )
    loop = "for z in (x, y):\n    print(z)\nmath.log(\n    y\n);"
    assert maker.code_cells(path) == ["import math", "x = 1", "x", "y = 2", "x + y", loop]


@pytest.mark.slow
def test_a_kernel_shows_one_bar(maker: ModuleType) -> None:
    code = (
        "import time, fmdp\n"
        "def step(state, action, rng):\n"
        "    time.sleep(0.01)\n"
        "    return state, 1.0\n"
        "fmdp.from_simulator(step, ({'x': 2}, {'a': 2}), 100, progress=True).steps"
    )
    cell = maker.nbformat.v4.new_code_cell(code)
    ran = maker.run(maker.nbformat.v4.new_notebook(cells=[cell]))
    bar, steps = ran.cells[0].outputs
    assert bar.data == {"text/html": "", "text/plain": ""}
    assert steps.data == {"text/plain": "100"}
