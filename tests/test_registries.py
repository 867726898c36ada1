"""Registries: a text names a class, or an object of settings, in one of four ways."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

from fmdp._base.foreign_code import code_digest
from fmdp._base.registries import Registry
from fmdp._base.settings import Settings, setting
from fmdp.errors import FmdpError


class Shape(Settings, ABC):
    noun = "shape"
    registry: ClassVar[Registry[Shape]]

    @abstractmethod
    def corners(self) -> int: ...


class Polygon(Shape):
    """So many corners."""

    sides: int = setting(3, "how many sides it has", low=3)
    colour: str = setting("red", "what it is painted", choices=("red", "blue"))

    def corners(self) -> int:
        return self.sides


SHAPES: Registry[Shape] = Registry("shape", f"{__name__}:Shape", {"polygon": f"{__name__}:Polygon"})


@pytest.mark.parametrize("name", ["polygon", f"{__name__}:Polygon"])
def test_a_text_is_a_name_and_settings(name: str) -> None:
    assert SHAPES.read(name) == Polygon()
    assert SHAPES.read(f" {name} , sides = 5,colour=blue ") == Polygon(sides=5, colour="blue")
    assert SHAPES.split(f"{name},sides=5") == (Polygon, {"sides": "5"})


def test_a_name_stands_for_one_class() -> None:
    """The same definition anew, as when a notebook's cell is run again, takes its place."""
    made = [type("Star", (Shape,), {"corners": lambda self: 5}) for _ in range(2)]
    try:
        for star in made:
            assert SHAPES.register(star) is star
            assert SHAPES.find("star") is star
        assert SHAPES.names() == ("polygon", "star")
        other = type("Star", (Shape,), {"corners": lambda self: 6, "__module__": "elsewhere"})
        with pytest.raises(FmdpError, match="the name 'star' of elsewhere:Star is taken by"):
            SHAPES.register(other)
        assert SHAPES.find("star") is made[1]
    finally:
        SHAPES.forget("star")
    assert SHAPES.names() == ("polygon",)
    taken = type("Own", (Shape,), {"corners": lambda self: 4, "name": "polygon"})
    with pytest.raises(FmdpError, match="is taken by one of fmdp's own; give the class another"):
        SHAPES.register(taken)
    assert SHAPES.find("polygon") is Polygon


@pytest.mark.parametrize("name", ["", "a b", "1st", "a,b", "a:b", "a=b"])
def test_a_name_that_no_text_could_have_is_refused(name: str) -> None:
    odd = type("Odd", (Shape,), {"corners": lambda self: 4, "name": name})
    with pytest.raises(FmdpError, match="must be letters, digits"):
        SHAPES.register(odd)


def test_a_module_that_is_not_there_yet_is_brought_in_only_where_that_is_asked_for() -> None:
    with pytest.raises(FmdpError, match="a file does not import code; import nowhere_at_all first"):
        SHAPES.find("nowhere_at_all:Shape", importing=False)
    assert SHAPES.find(f"{__name__}:Polygon", importing=False) is Polygon


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("polygn", 'known are polygon, and module:Class; did you mean "polygon"?'),
        ("", "unknown shape ''"),
        ("polygon,", "a parameter of shape polygon must be given as key=value; got ''"),
        ("polygon,5", "must be given as key=value; got '5'"),
        ("polygon,sides=4,sides=5", "must be given once; got '4' and '5'"),
        ("polygon,sides=2", "the 'sides' parameter of shape polygon must be an integer >= 3"),
        ("polygon,side=5", 'did you mean "sides"?'),
        ("nowhere_at_all:Shape", "there is no module 'nowhere_at_all'"),
        (f"{__name__}:Shape", "must say what it does in corners, which it has not"),
        ("fmdp.planning.exact.planner:Exact", "must be a subclass of"),
    ],
)
def test_what_a_text_cannot_be(text: str, line: str) -> None:
    with pytest.raises(FmdpError) as refusal:
        SHAPES.read(text)
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_place_of_a_class_is_good_in_other_processes() -> None:
    assert SHAPES.place(Polygon) == "polygon"
    SHAPES.register(Circle)
    try:
        assert SHAPES.read("circle") == Circle()
        assert SHAPES.place(Circle) == f"{__name__}:Circle"
        assert SHAPES.find(SHAPES.place(Circle)) is Circle
    finally:
        SHAPES.forget("circle")


class Circle(Shape):
    def corners(self) -> int:
        return 0


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed packages with shapes: one works, the others do not."""
    places = {
        "circle": f"{__name__}:Circle",
        "round": f"{__name__}:Circle",
        "gone": "nowhere_at_all:Shape",
        "number": "math:pi",
    }
    points = {name: EntryPoint(name, place, "fmdp.shapes") for name, place in places.items()}
    monkeypatch.setitem(SHAPES.__dict__, "_entry_points", points)


@pytest.mark.usefixtures("packages")
def test_packages_add_to_the_registry_and_broken_ones_are_named_with_the_reason() -> None:
    assert SHAPES.names() == ("polygon", "circle", "round", "gone", "number")
    assert SHAPES.kinds() == (Polygon, Circle)
    assert SHAPES.own() == (Polygon,)
    assert SHAPES.read("circle") == Circle()
    reasons = SHAPES.broken()
    assert set(reasons) == {"round", "gone", "number"}
    assert "class whose `name` is 'circle'; the two must be the same" in reasons["round"]
    assert "ModuleNotFoundError: No module named 'nowhere_at_all'" in reasons["gone"]
    assert "is 3.14" in reasons["number"]


# ---- code that is not fmdp's own ----------------------------------------------------------------


class _Threshold:
    def __init__(self, least: int) -> None:
        self.least = least

    def rule(self, state: tuple[int, ...]) -> int:
        return self.least


LEVEL = 1


def _by_level(state: tuple[int, ...]) -> int:
    return _helped(state) + LEVEL


def _helped(state: tuple[int, ...]) -> int:
    return 0


def _made(value: float) -> type:
    class Made:
        def value(self) -> float:
            return value

    return Made


def test_what_code_holds_is_part_of_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair once had one digest, and a sweep gave the results of the other."""
    one, two = (lambda s: 0), (lambda s: 1)
    assert code_digest(one) != code_digest(two)
    assert code_digest(_Threshold(0).rule) != code_digest(_Threshold(1).rule)
    assert code_digest(_Threshold(1).rule) == code_digest(_Threshold(1).rule)
    assert code_digest(_made(0.0)) != code_digest(_made(1.0))
    before = code_digest(_by_level)
    assert code_digest(_by_level) == before
    monkeypatch.setitem(globals(), "LEVEL", 2)
    level = code_digest(_by_level)
    assert level != before
    monkeypatch.setitem(globals(), "_helped", lambda state: 5)
    assert code_digest(_by_level) != level
    changed = _made(0.0)
    plain = code_digest(changed)
    changed.rate = 0.5  # type: ignore[attr-defined]
    assert code_digest(changed) != plain
