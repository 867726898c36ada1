"""Settings: one declaration makes the signature, the help, the checks, the words, the equality."""

from __future__ import annotations

import inspect
import pickle
import pydoc
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

import fmdp
from fmdp._base.parameters import REQUIRED, Choice, Number, Text
from fmdp._base.settings import Settings, setting
from fmdp.errors import FmdpError
from fmdp.learning.registry import LEARNERS
from fmdp.planning.registry import PLANNERS
from fmdp.problems import PROBLEMS

KINDS: list[Any] = [*LEARNERS.own(), *PLANNERS.own(), *PROBLEMS.own()]


class Kettle(Settings):
    """Boils water. It whistles too."""

    noun = "kettle"

    litres: float = setting(1.5, "how much it holds", low=0.0, low_open=True)
    colour: str = setting("red", "what it is painted", choices=("red", "blue"))
    handles: int = setting(REQUIRED, "where to hold it", low=1)
    owner_name: str | None = setting(None, "whose it is")


class Samovar(Kettle):
    """A kettle with a tap."""

    taps: int = setting(1, "where the tea comes out", low=1)


def test_the_declaration_by_hand() -> None:
    assert (Kettle.name, Samovar.name, Kettle.summary) == ("kettle", "samovar", "boils water")
    assert [type(one) for one in Kettle.parameters[:2]] == [Number, Choice]
    assert type(Kettle.parameters[3]) is Text
    assert [one.name for one in Samovar.parameters] == [
        "taps",
        "litres",
        "colour",
        "handles",
        "owner_name",
    ]
    assert list(inspect.signature(Samovar).parameters) == [
        "taps",
        "litres",
        "colour",
        "handles",
        "owner_name",
    ]
    assert repr(Samovar(handles=2)) == "Samovar(handles=2)"
    assert repr(Samovar(handles=2, taps=3, colour="blue")) == (
        "Samovar(taps=3, colour='blue', handles=2)"
    )
    assert Samovar(handles=2, litres=3).words() == ("litres=3", "handles=2")
    assert Samovar.make({"handles": "2", "litres": ".5"}) == Samovar(handles=2, litres=0.5)
    assert "litres : float, default 1.5\n    How much it holds: a number > 0." in (
        Kettle.__doc__ or ""
    )
    with pytest.raises(TypeError, match="handles"):
        Kettle()  # type: ignore[call-arg]
    with pytest.raises(FrozenInstanceError):
        Kettle(handles=1).litres = 2.0  # type: ignore[misc]


def test_a_setting_whose_type_says_too_little_needs_a_kind() -> None:
    with pytest.raises(TypeError, match='needs a kind, such as kind="numbers"'):
        type(
            "Odd",
            (Settings,),
            {
                "__annotations__": {"sizes": "tuple[float, ...]"},
                "sizes": setting((), "which"),
            },
        )
    odd = type(
        "Even",
        (Settings,),
        {
            "__annotations__": {"sizes": "tuple[float, ...]"},
            "sizes": setting(None, "which", kind="numbers"),
        },
    )
    assert odd(sizes=(1, 2)).sizes == (1.0, 2.0)


def test_kinds_that_no_annotation_gives_have_names() -> None:
    class Cellar(Settings):
        memory: int = setting(1, "memory", kind="bytes", low=1)
        shelves: tuple[float, ...] = setting((0.5,), "heights of shelves", kind="numbers", low=0.0)
        doors: tuple[tuple[int, int], ...] = setting((), "doors between rooms", kind="edges")

    cellar = Cellar.make({"memory": "2K", "shelves": "1+0.5", "doors": "1>2+0>1"})
    assert (cellar.memory, cellar.shelves, cellar.doors) == (2048, (1.0, 0.5), ((0, 1), (1, 2)))
    assert cellar.words() == ("memory=2048", "shelves=1+0.5", "doors=0>1+1>2")
    with pytest.raises(TypeError, match="must be one of numbers, bytes, edges; got 'letters'"):
        type(
            "Odd",
            (Settings,),
            {"__annotations__": {"x": "str"}, "x": setting("a", "x", kind="letters")},
        )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_help_has_every_parameter_with_its_meaning(kind: Any) -> None:
    text = " ".join(pydoc.plain(pydoc.render_doc(kind)).replace("|", " ").split())
    for one in kind.parameters:
        assert f"{one.name} :" in text
        meaning = " ".join(f"{one.meaning[:1].upper()}{one.meaning[1:]}".split())
        assert meaning in text
    shown = list(inspect.signature(kind).parameters)
    assert set(shown) >= {one.name for one in kind.parameters}
    own = [name for name in inspect.get_annotations(kind) if name in shown]
    assert shown[: len(own)] == own  # before what is inherited


def _wrong(one: Any) -> list[Any]:
    """A value that a declaration does not allow, of a type that has a text."""
    if one.kind == "choice":
        return ["no such choice"]
    if one.kind in ("number", "integer"):
        below = [] if one.low is None else [one.low - 1]
        above = [] if getattr(one, "high", None) is None else [one.high + 1]
        return [*below, *above, "x"]
    return []


@pytest.mark.parametrize("kind", [*LEARNERS.own(), *PLANNERS.own()], ids=lambda kind: kind.name)
def test_python_refuses_what_the_command_line_refuses_in_the_same_words(kind: Any) -> None:
    given = dict(getattr(kind, "example", None) or getattr(kind, "on_any_model", {}))
    tried = 0
    for one in kind.parameters:
        for value in _wrong(one):
            said = []
            for call in (
                lambda value=value, one=one: kind(**{**given, one.name: value}),
                lambda value=value, one=one: kind.make({**given, one.name: str(value)}),
            ):
                with pytest.raises(FmdpError) as refusal:
                    call()
                said.append(str(refusal.value).replace("'", ""))
            assert said[0] == said[1]
            assert f"the {one.name} parameter of {kind.owner()} must be" in said[0]
            tried += 1
    assert tried or not kind.parameters or kind.name == "policy"


@pytest.mark.parametrize(
    "learner",
    [
        fmdp.PSRL(),
        fmdp.PSRL(c=0.1, prior=1),
        fmdp.DORL(planner=fmdp.ALP(basis="pairs"), episodes="fixed", length=7),
        fmdp.FSRL(budget=(1.0, 2.0), targets="vertex"),
        fmdp.FRmax(m=5),
        fmdp.Oracle(planner="exact,ties=first"),
        fmdp.Random(),
    ],
    ids=repr,
)
def test_a_learner_is_its_call(learner: Any) -> None:
    names = {name: getattr(fmdp, name) for name in fmdp.__all__ if name != "__version__"}
    again = eval(repr(learner), {}, names)
    assert again == learner
    assert type(again) is type(learner)
    assert "\n" not in repr(learner)
    assert hash(again) == hash(learner)
    assert pickle.loads(pickle.dumps(learner)) == learner
    assert replace(learner) == learner
    assert {learner: 1}[again] == 1


def test_equality_is_that_of_class_and_settings() -> None:
    assert fmdp.PSRL(c=0.75) == fmdp.PSRL()
    assert fmdp.PSRL(c=0.5) != fmdp.PSRL()
    assert replace(fmdp.PSRL(), c=0.5) == fmdp.PSRL(c=0.5)
    assert fmdp.DORL(planner="exact") == fmdp.DORL(planner=fmdp.Exact()) != fmdp.DORL()
    assert fmdp.DORL() != fmdp.FSRL()
    with pytest.raises(FmdpError, match="'c' parameter of learner psrl must be a number > 0"):
        replace(fmdp.PSRL(), c=0.0)
    with pytest.raises(FrozenInstanceError):
        fmdp.PSRL().c = 0.5  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_is_declared_is_what_there_is(kind: Any) -> None:
    """Every field is a setting, but for the planner of a learner."""
    declared = {one.name for one in kind.parameters}
    assert {field.name for field in fields(kind)} - declared <= {"planner"}
    assert all(one.meaning.strip() for one in kind.parameters)


def test_a_new_default_of_an_inherited_setting_is_one_line() -> None:
    """Without an annotation it was once ignored in silence."""

    class Eager(fmdp.PSRL):
        """Explores less."""

        c = 0.1
        episodes = "doubling"

    assert (Eager().c, Eager().episodes, Eager(c=2).c) == (0.1, "doubling", 2.0)
    assert {one.name: one.default for one in Eager.parameters}["c"] == 0.1
    assert Eager().words() == ()
    with pytest.raises(FmdpError, match="the 'c' parameter of learner Own, by default, must be"):
        type("Own", (fmdp.PSRL,), {"c": -1.0})


def test_of_two_bases_the_one_counts_that_says_something() -> None:
    """As a flat rival: how it is counted from one base, its set and its episodes from the other."""

    class Counted(fmdp.PlanningLearner):
        """Says nothing of episodes."""

        def tables(self, agent: fmdp.Agent) -> fmdp.FactoredMDP:
            raise NotImplementedError

    class Doubling(fmdp.PlanningLearner):
        """Says when to plan again."""

        width: float = fmdp.setting(1.0, "a setting of its own")
        episodes = "doubling"

    class Both(Counted, Doubling):
        """Has a word of each."""

    class Narrow(Both):
        """And one of its own."""

        width = 0.5

    assert (Both().episodes, Both().width) == ("doubling", 1.0)
    assert (Narrow().episodes, Narrow().width) == ("doubling", 0.5)
    assert Counted().episodes == fmdp.PSRL().episodes
