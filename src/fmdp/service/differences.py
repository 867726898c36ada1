"""The first difference of two structures, as a text."""

from __future__ import annotations

from fmdp.model import Structure


def structure_difference(old: Structure, new: Structure) -> str:
    """Return the first difference of two structures: "the state variables are a, b; got a, c"."""
    for kind in ("state", "action", "reward"):
        names = getattr(old, f"{kind}_names"), getattr(new, f"{kind}_names")
        if names[0] != names[1]:
            what = "reward factors" if kind == "reward" else f"{kind} variables"
            return f"its {what} are {_listed(names[0])}; got {_listed(names[1])}"
    for name, values, others in zip(old.names, old.values, new.values, strict=False):
        if values != others:
            return f"its values of {name!r} are {_listed(values)}; got {_listed(others)}"
    factors = (*old.state_names, *old.reward_names)
    scopes = (*old.transition_scopes, *old.reward_scopes)
    for name, scope, other in zip(
        factors, scopes, (*new.transition_scopes, *new.reward_scopes), strict=True
    ):
        if scope != other:
            before, after = ([s.names[v] for v in z] for s, z in ((old, scope), (new, other)))
            return f"its scope of {name!r} is {_listed(before)}; got {_listed(after)}"
    for name, limits, given in zip(
        old.reward_names, old.reward_ranges, new.reward_ranges, strict=True
    ):
        if limits != given:
            return f"its range of {name!r} is {list(limits)}; got {list(given)}"
    for field, what in (
        ("groups", "groups"),
        ("constraints", "constraints"),
        ("alike", "classes of alike rows"),
        ("effects", "effects"),
        ("derived", "derived variables"),
    ):
        if getattr(old, field) != getattr(new, field):
            return f"its {what} differ"
    return "its structure differs"


def _listed(names: object) -> str:
    texts = [str(name) for name in names]  # type: ignore[attr-defined]
    return ", ".join(texts[:6]) + (", ..." if len(texts) > 6 else "") or "none"
