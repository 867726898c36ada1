"""Problem ids: canonical names, paths, and one clear line for everything that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmdp
from fmdp.errors import FileProblem, FmdpError, InvalidParameter, UnknownName
from fmdp.problems import PROBLEMS, Problem, parse_id

from ..pages import Page

PAGE = Page("problems.md").text


@pytest.mark.parametrize("family", PROBLEMS.kinds(), ids=lambda family: family.name)
def test_every_example_builds_and_its_name_reads_back(family: type[Problem]) -> None:
    model = fmdp.problem(family.example)
    assert fmdp.problem(model.name) == model
    assert model.name.startswith(family.name)


@pytest.mark.parametrize("family", PROBLEMS.kinds(), ids=lambda family: family.name)
def test_defaults_are_allowed_values(family: type[Problem]) -> None:
    for parameter in family.options():
        assert parameter.parse(parameter.default_text, family.name) == parameter.default
        assert parameter.meaning


def test_an_option_of_one_name_has_one_declaration() -> None:
    """seed, actions and left differ in the default or lowest value, alike in what there is that can
    be alike; all else must be the same object."""
    seen: dict[str, object] = {}
    for family in PROBLEMS.kinds():
        for parameter in family.options():
            if parameter.name in ("seed", "actions", "alike", "left"):
                shared: object = (parameter.kind, getattr(parameter, "high", None))
            else:
                shared = parameter
            assert seen.setdefault(parameter.name, shared) == shared


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("circle:7", "circle:7"),
        ("circle:07,dynamics=xu,reward=sum,seed=1,alpha1=.10", "circle:7"),
        ("circle:7,reward=mean,dynamics=guestrin", "circle:7,dynamics=guestrin,reward=mean"),
        (" three-leg : 4 , seed = 3 ", "three-leg:4,seed=3"),
        ("circle:2,server=2.50", "circle:2,server=2.5"),
        ("network:3,edges=1>2+0>1", "network:3,edges=0>1+1>2"),
        ("network:3,seed=2,edges=1>2", "network:3,edges=1>2,seed=2"),
        ("machines:3,topology=circle", "machines:3"),
        ("jao:2,epsilon=1e-3,delta=.2", "jao:2,epsilon=0.001"),
        ("large-diameter", "large-diameter"),
        ("large-diameter,reward=mean", "large-diameter,reward=mean"),
        ("random:6,seed=0", "random:6"),
    ],
)
def test_canonical_name(text: str, name: str) -> None:
    assert str(parse_id(text)) == name
    assert fmdp.problem(text).name == name
    assert str(parse_id(name)) == name


@pytest.mark.parametrize(
    ("text", "kind", "parts"),
    [
        ("circel:7", UnknownName, ["'circel'", "three-leg", 'did you mean "circle"?']),
        ("Circle:7", UnknownName, ["'Circle'", 'did you mean "circle"?']),
        ("", UnknownName, ["''", "circle"]),
        ("nothing-like-it", UnknownName, ["known are", "model files"]),
        ("circle:7,dynamic=xu", UnknownName, ["'dynamic'", 'did you mean "dynamics"?']),
        ("circle:7,size=3", UnknownName, ["no parameter 'size'", "dynamics"]),
        ("jao:2,seed=3", UnknownName, ["no parameter 'seed'", "delta"]),
        ("circle:7,dynamics=gestrin", InvalidParameter, ["xu", 'did you mean "guestrin"?']),
        ("circle:7,reward=avg", InvalidParameter, ["sum, mean", "'avg'"]),
        ("circle:x", InvalidParameter, ["size", "circle", "integer >= 1", "'x'"]),
        ("circle:0", InvalidParameter, ["integer >= 1", "'0'"]),
        ("circle:-3", InvalidParameter, ["integer >= 1", "'-3'"]),
        ("circle:7.5", InvalidParameter, ["integer >= 1", "'7.5'"]),
        ("circle:7:3", InvalidParameter, ["integer >= 1", "'7:3'"]),
        ("circle:", InvalidParameter, ["integer >= 1", "''"]),
        ("circle", InvalidParameter, ["needs a size", "number of machines", "circle:7"]),
        ("circle,seed=3", InvalidParameter, ["needs a size"]),
        ("circle:7,seed=1,seed=2", InvalidParameter, ["'seed'", "once", "'1' and '2'"]),
        ("circle:7,seed", InvalidParameter, ["key=value", "'seed'"]),
        ("circle:7,", InvalidParameter, ["key=value", "''"]),
        ("circle:7,seed=-1", InvalidParameter, ["[0, 4294967295]", "'-1'"]),
        ("circle:7,server=-1", InvalidParameter, ["number >= 0", "'-1'"]),
        ("circle:7,server=1/2", InvalidParameter, ["number >= 0", "'1/2'"]),
        ("large-diameter:3", InvalidParameter, ["takes no size", "'large-diameter:3'"]),
        ("jao:2,delta=0", InvalidParameter, ["(0, 0.5]", "'0'"]),
        ("jao:2,delta=.6", InvalidParameter, ["(0, 0.5]", "'.6'"]),
        ("jao:2,actions=1", InvalidParameter, [">= 2", "'1'"]),
        ("machines:3,topology=tree", InvalidParameter, ["bi-ring", "'tree'"]),
        ("network:3,edges=0>3", InvalidParameter, ["0 to 2", "0>3"]),
        ("network:3,edges=0>1+0>1", InvalidParameter, ["each once"]),
        ("circle:7,seed=1\n2", InvalidParameter, ["'1\\n2'"]),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    text: str, kind: type[FmdpError], parts: list[str]
) -> None:
    with pytest.raises(kind) as refused:
        fmdp.problem(text)
    message = str(refused.value)
    for part in parts:
        assert part in message
    assert "\n" not in message


_PIECES = [
    *(family.name for family in PROBLEMS.kinds()),
    *(parameter.name for family in PROBLEMS.kinds() for parameter in family.options()),
    *":,=+> .-_/0123456789",
    "xu",
    "mean",
    "1e9",
    "nan",
    "\0",
    "\u0663",
]


@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join) | st.text(max_size=20))
def test_any_text_is_an_id_or_refused_in_one_line(text: str) -> None:
    try:
        name = str(parse_id(text))
    except FmdpError as error:
        message = str(error)
    else:
        assert str(parse_id(name)) == name
        return
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("family", PROBLEMS.kinds(), ids=lambda family: family.name)
def test_the_page_tells_of_every_family_and_parameter(family: type[Problem]) -> None:
    assert f"`{family.name}" in PAGE
    for parameter in family.options():
        assert f"`{parameter.name}`" in PAGE or f"`{parameter.name}=" in PAGE


def test_every_id_on_the_page_builds() -> None:
    names = "|".join(family.name for family in PROBLEMS.kinds())
    ids = re.findall(rf"`((?:{names})[:,][^` ]*)`", PAGE)
    assert len(ids) > 10
    for text in ids:
        if not re.search("[A-Z]", text):  # SIZE, N: a pattern, not an id
            fmdp.problem(text)


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fmdp.problem("circle:2,seed=5")
    for name in ("model.json", "without-ending", "circle:3.json"):
        fmdp.save(model, tmp_path / name)
        assert fmdp.problem(tmp_path / name) == model
        assert fmdp.problem(str(tmp_path / name)) == model
    monkeypatch.chdir(tmp_path)
    assert fmdp.problem("model.json") == model
    assert fmdp.problem("without-ending") == model
    assert fmdp.problem("circle:3.json") == model


def test_a_file_does_not_hide_a_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("circle:3").write_text("not a model")
    assert fmdp.problem("circle:3").name == "circle:3"


@pytest.mark.parametrize("text", ["missing.json", "some/where", "./x"])
def test_a_missing_file_is_named(text: str) -> None:
    with pytest.raises(FileProblem, match=re.escape(Path(text).name)):
        fmdp.problem(text)


def test_the_python_of_the_page_is_true() -> None:
    page = Page("problems.md")
    page.run_python()
    names = page.names
    assert str(names["seven"]) == names["model"].name == "circle:7,dynamics=guestrin,reward=mean"
    assert fmdp.problem(names["seven"]) == names["seven"].build() == names["model"]
