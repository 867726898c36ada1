"""The gallery as notebooks: examples/notebooks/NAME.ipynb, made from examples/NAME.py and run.

    python docs/notebooks.py [NAME ...]          all of them by default; `make gallery` does it

An example is the one source of its notebook. The first cell is its title and text in
docs/gallery.md. Then come the lines above `main` and the body of `main`, without the line that
saves the picture, since a notebook shows it. Comments in an example divide it into cells:

    # %%               begins a new cell
    # show: plan       becomes a cell that shows the value of `plan`

tests/test_notebooks.py compares the code of the committed notebooks with the examples, and runs it.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
NOTEBOOKS = EXAMPLES / "notebooks"
CELL = re.compile(r"^\s*# %%$|^\s*# show: (.+)$")
SCRIPT_ONLY = ("from __future__ import annotations", "import sys")
SECONDS = 600
"""Time limit of a cell."""


def examples() -> list[Path]:
    """Return the examples that draw a picture."""
    return sorted(path for path in EXAMPLES.glob("*.py") if "def main(picture" in path.read_text())


def title_and_text(example: Path) -> tuple[str, str]:
    """Return the heading of an example in the gallery, and the paragraph below its picture."""
    gallery = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", gallery, flags=re.MULTILINE):
        if f"(../examples/{example.name})" in section:
            title, _, text = section.split("\n\n")[:3]
            # Pages are linked from docs, the notebook lies two folders below the root.
            return title, re.sub(r"\]\((?=[\w-]+\.md)", "](../../docs/", text)
    raise SystemExit(f"docs/gallery.md has no section with a link to {example.name}")


def code_lines(example: Path) -> Iterator[str]:
    """Yield the lines of an example that are in its notebook."""
    source = example.read_text(encoding="utf-8")
    lines = source.splitlines()
    docstring, *body = ast.parse(source).body
    (main,) = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "main"]
    for line in lines[docstring.end_lineno or 0 : main.lineno - 1]:
        if line not in SCRIPT_ONLY:
            yield line
    yield "# %%"
    saved = {
        number
        for node in main.body
        if "savefig" in ast.dump(node)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    for number in range(main.lineno + 1, (main.end_lineno or main.lineno) + 1):
        if number not in saved:
            yield textwrap.dedent(lines[number - 1][:4]) + lines[number - 1][4:]


def code_cells(example: Path) -> list[str]:
    """Return the code of the cells of an example."""
    cells = [""]
    for line in code_lines(example):
        mark = CELL.match(line)
        if mark is None:
            cells[-1] += f"{line}\n"
        else:
            cells += [mark[1], ""] if mark[1] else [""]
    return [_quiet(cell.strip("\n")) for cell in cells if cell.strip()]


def _quiet(code: str) -> str:
    """Return a cell that does not show what its last call returns, unless it is all of the cell."""
    statements = ast.parse(code).body
    return f"{code};" if len(statements) > 1 and isinstance(statements[-1], ast.Expr) else code


def notebook(example: Path) -> Any:
    """Return the notebook of an example, not run yet."""
    title, text = title_and_text(example)
    source = f"[{example.name}](../{example.name})"
    head = f"# {title}\n\n{text}\n\nMade from {source} by `make gallery`; needs `fmdp[plots]`."
    new = nbformat.v4
    cells = [
        new.new_markdown_cell(head),
        *(new.new_code_cell(code) for code in code_cells(example)),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # random ids would change with every run
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return new.new_notebook(cells=cells, metadata=metadata)


def run(made: Any) -> Any:
    """Run a notebook and return it with its outputs."""
    client = NotebookClient(made, timeout=SECONDS, kernel_name="python3", record_timing=False)
    client.create_kernel_manager().transport = "ipc"  # the kernel warns of unencrypted TCP
    client.execute()
    made.metadata["language_info"] = {"name": "python"}
    return made


def file_of(example: Path) -> Path:
    """Return where the notebook of an example is."""
    return NOTEBOOKS / f"{example.stem}.ipynb"


def main() -> None:
    NOTEBOOKS.mkdir(exist_ok=True)
    for example in examples():
        if not sys.argv[1:] or example.stem in sys.argv[1:]:
            nbformat.write(run(notebook(example)), file_of(example))
            print(file_of(example).relative_to(ROOT))


if __name__ == "__main__":
    main()
