"""Hostile names, all the way from files and specs into figures, tables, terminal and a Chromium.

Names of models, variables, values, rewards, files, labels and titles are drawn from what has broken
other people's pages: markup, scripts, ends of comments, formulas, spreadsheet cells, control and
bidirectional characters. A name may be refused, in one line. What is taken is text: no script runs,
nothing is asked of the network, the page does not complain, a CSV cell is no formula, and the
terminal sees no control character. Buttons are pressed and every element is pointed at.
"""

from __future__ import annotations

import csv
import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torture.nursery import Nursery
from torture.trial import SHORT, Trial

FULL = 24
"""Pages at scale 1."""
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
NAMES = (
    "</script><script>window.ran=1;alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "\"'><b onmouseover=alert(1) onclick=alert(1)>x",
    "javascript:alert(1)",
    "<a href=javascript:alert(1)>x</a>",
    "<iframe src=http://127.0.0.1:9/>",
    "<link rel=stylesheet href=//127.0.0.1:9/x>",
    "<!--",
    "--><!]]>",
    "</style></title></textarea><b>",
    "&lt;b&gt;&amp;",
    "\\u003cscript\\u003e",
    "%3Cscript%3E",
    "$\\frac{",
    "$x^{$",
    "\\undefined$",
    "a_b^c",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\U0001f600" * 20,
    "\u0301" * 40,
    "n" * 300,
    "__proto__",
    "constructor",
    "toString",
    " ",
    "0",
)
RUDE = (
    "\x1b[2J\x1b]0;x\x07",
    "\x00",
    "\x7f\x9b",
    "\u202etxt.exe",
    "\u2028\u2029",
    "a\r\nb",
    "\ufeffx",
    "${alert(1)}`${1}`",
    "{{constructor.constructor('alert(1)')()}}",
)
"""Refused where they are a name, or in a label; one document in eight may have them."""


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    if scale < SHORT:
        return  # tests/browser has a page with hostile names
    number = round(FULL * scale)
    chance = random.Random(f"pages {seed}")
    made, opened = "hostile names: figures, tables, terminal", "hostile names in a Chromium"
    with tempfile.TemporaryDirectory(prefix="fmdp-torture-") as text:
        place = Path(text)
        failures, pages, refused = [], [], 0
        warm = [["show", "circle:3"], ["learn", "circle:2", "--learner", "random", "--steps", "9"]]
        modules = ["fmdp.experiments.sweep", "fmdp.reports.figures", "matplotlib.pyplot"]
        with Nursery(place, warm, modules) as nursery:
            for which in range(number):
                own = place / str(which)
                own.mkdir()
                page, wrong = reported(chance, nursery, own)
                failures += wrong
                if page is not None:
                    pages.append(page)
                refused += page is None
        if refused > number / 2:
            failures.append(f"{refused} of {number} were refused: nothing is tried like that")
        yield Trial(made, number, tuple(failures))
        yield looked_at(opened, pages)


def hostile(chance: random.Random) -> str:
    if chance.random() < 0.008:
        return chance.choice(RUDE)
    return chance.choice(NAMES) if chance.random() < 0.6 else f"name {chance.randrange(9)}"


def distinct(chance: random.Random, number: int) -> list[str]:
    found: list[str] = []
    while len(found) < number:
        name = hostile(chance)
        if name not in found:
            found.append(name)
    return found


def model(chance: random.Random) -> dict[str, Any]:
    one, two, act, pay, more = distinct(chance, 5)
    rows = [[0.5, 0.5], [0.2, 0.8]]
    return {
        "format": "fmdp-model",
        "version": 1,
        "name": hostile(chance),
        "states": [{"name": one, "values": distinct(chance, 2)}, {"name": two, "size": 2}],
        "actions": [{"name": act, "values": distinct(chance, 2)}],
        "transitions": [
            {"scope": [one, act], "rows": rows + rows},
            {"scope": [one, two], "rows": rows + rows},
        ],
        "rewards": [
            {"name": pay, "scope": [one], "means": [0, 1]},
            {"name": more, "scope": [two], "means": [0.3, 0.1]},
        ],
    }


def reported(chance: random.Random, nursery: Nursery, own: Path) -> tuple[Path | None, list[str]]:
    """The page, None where the names are refused; and what went wrong."""
    from torture.files import toml

    file = f"m{hostile(chance)}.json".replace("/", "|").replace("\x00", "")[:200]
    (own / file).write_text(json.dumps(model(chance)))
    labels = distinct(chance, 2)
    spec = {
        "name": hostile(chance),
        "title": hostile(chance),
        "steps": 12,
        "seeds": 2,
        "problems": [file, "circle:2"],
        "learners": [
            {"name": "random", "label": labels[0]},
            {"name": "psrl", "label": labels[1], "planner": "exact"},
        ],
    }
    (own / "spec.toml").write_text(toml(spec))
    wrong: list[str] = []
    for words in (
        ["show", file],
        ["plan", file],
        ["sweep", "spec.toml", "--out", "store", "--workers", "1"],
        ["report", "store", "--out", "report"],
    ):
        ended = nursery.run(words, folder=own)
        if ended is None:
            return None, [*wrong, f"{words}: took too long"]
        shown = [c for c in ended.output + ended.errors if ord(c) < 32 or 127 <= ord(c) < 160]
        if set(shown) - {"\n"}:
            wrong.append(f"{words}: control characters in the terminal: {sorted(set(shown))}")
        problem = ended.wrong(0, 2)
        if problem:
            wrong.append(f"{words}: {problem}")
        if ended.status == 2 and words[0] in ("sweep", "report"):
            return None, wrong
    for table in (own / "report").glob("*.csv"):
        with table.open(newline="", encoding="utf-8") as lines:
            for row in csv.reader(lines):
                for cell in row:
                    if cell[:1] in "=+-@\t\r" and cell and not is_number(cell):
                        wrong.append(f"{table.name}: a cell that a spreadsheet runs: {cell!r}")
    shutil.rmtree(own / "store")
    return own / "report" / "index.html", wrong


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


POINT = """
() => {
    for (const e of document.querySelectorAll("body *"))
        for (const kind of ["pointerover", "mouseover", "mousemove", "pointermove", "focus"])
            e.dispatchEvent(new Event(kind, { bubbles: true }));
    for (const e of document.querySelectorAll("select"))
        for (const o of e.options) { e.value = o.value; e.dispatchEvent(new Event("change")); }
    for (const e of document.querySelectorAll("button, summary, input[type=range]")) e.click();
    const foreign = document.querySelector("iframe, img[src=x], link[href*='9/x']");
    return window.ran === undefined && !foreign;
}
"""


def dismissed(dialog: Any, told: list[str]) -> None:
    told.append("a dialog")
    dialog.dismiss()


def looked_at(name: str, pages: list[Path]) -> Trial:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        return Trial(name, 0, skipped="there is no chromium (Debian: apt-get install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return Trial(name, 0, skipped="Playwright is not installed (the extra dev)")
    failures: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        for number, path in enumerate(pages):
            page = browser.new_context().new_page()
            troubles: list[str] = []
            page.set_default_timeout(120_000)
            page.on("console", lambda said, told=troubles: told.append(f"console: {said.text}"))  # type: ignore[misc]
            page.on("pageerror", lambda error, told=troubles: told.append(f"error: {error}"))  # type: ignore[misc]
            page.on(
                "dialog", lambda dialog, told=troubles: (told.append("a dialog"), dialog.dismiss())
            )  # type: ignore[misc]
            page.on(
                "request",
                lambda asked, told=troubles: (  # type: ignore[misc]
                    None
                    if asked.url.startswith(("file:", "blob:", "data:"))
                    else told.append(f"request: {asked.url}")
                ),
            )
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-theme]")
            if not page.evaluate(POINT):
                troubles.append("markup from a name is in the page")
            page.wait_for_timeout(50)
            page.close()
            if troubles:
                failures.append(f"page {number}: {troubles[:3]}")
        browser.close()
    return Trial(name, len(pages), tuple(failures))
