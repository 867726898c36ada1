"""What a JSON schema allows, nearly allows and forbids, made at random from the schema itself.

`changed(document, schema, dice)` walks a document along its schema and puts something else in one
or a few places: another instance of what is declared there (the ends of its range among them), an
optional part that was missing, or a violation: another type, one beyond an end, a key too many or
one too few. A schema that grows is followed without a change here.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

LABELS = ("s0", "s1", "a0", "machine_0", "0", "1", " ", "é", "\x00", "a" * 300, "<b>", "$x$")
OTHERS: tuple[Any, ...] = (None, True, 0, -1, 1.5, "", "x", [], {}, [None], {"": 0}, 2**70)
_DEPTH = 6


class Maker:
    """Instances of one schema."""

    def __init__(self, schema: dict[str, Any], dice: random.Random) -> None:
        self.root = schema
        self.dice = dice

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in schema:
            inner: Any = self.root
            for key in schema["$ref"].removeprefix("#/").split("/"):
                inner = inner[key]
            schema = inner
        return schema

    # -- instances -------------------------------------------------------------------------------

    def instance(self, schema: dict[str, Any], depth: int = 0) -> Any:
        schema, dice = self.resolved(schema), self.dice
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return dice.choice(schema["enum"])
        kind = schema.get("type")
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            least, most = schema.get("minItems", 0), schema.get("maxItems", 4)
            number = least if depth > _DEPTH else dice.randint(least, max(least, most))
            items = [self.instance(schema.get("items", {}), depth + 1) for _ in range(number)]
            if schema.get("uniqueItems"):
                items = [item for k, item in enumerate(items) if item not in items[:k]]
            return items
        if kind == "string":
            return dice.choice(
                [label for label in LABELS if len(label) >= schema.get("minLength", 0)]
            )
        if kind == "integer":
            return dice.choice(self._ends(schema, 1))
        if kind == "number":
            return dice.choice([*self._ends(schema, 0.25), 0.1, 1e-300, 1e17, 1e308])
        return dice.choice(OTHERS)

    def _ends(self, schema: dict[str, Any], step: Any) -> list[Any]:
        low, high = schema.get("minimum"), schema.get("maximum")
        found = [one for one in (low, high) if one is not None]
        found += [end + sign * step for end, sign in ((low, 1), (high, -1)) if end is not None]
        middle = [1, 2, 3] if low is None or low <= 1 else []
        return found + middle + ([] if low is not None else [-1, 0])

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        dice, declared = self.dice, schema.get("properties", {})
        needed = set(schema.get("required", ()))
        if "anyOf" in schema:
            needed |= set(dice.choice(schema["anyOf"]).get("required", ()))
        chosen = [key for key in declared if key in needed or dice.random() < 0.4]
        return {key: self.instance(declared[key], depth + 1) for key in chosen}

    # -- changes ---------------------------------------------------------------------------------

    def changed(self, document: Any) -> Any:
        document = copy.deepcopy(document)
        for _ in range(self.dice.choice((1, 1, 1, 2, 4))):
            places = list(self._places(document, self.root, ()))
            depth = self.dice.choice(sorted({len(path) for path, _ in places}))
            path, schema = self.dice.choice([one for one in places if len(one[0]) == depth])
            if not path:
                if self.dice.random() < 0.05:
                    return self._other(document, schema)
                self._keys(document, schema)
                continue
            inner = document
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = self._other(inner[path[-1]], schema)
        return document

    def _places(
        self, value: Any, schema: dict[str, Any], path: tuple[Any, ...]
    ) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        schema = self.resolved(schema)
        yield path, schema
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in schema.get("properties", {}):
                    yield from self._places(inner, schema["properties"][key], (*path, key))
        elif isinstance(value, list):
            for k, inner in enumerate(value):
                yield from self._places(inner, schema.get("items", {}), (*path, k))

    def _other(self, old: Any, schema: dict[str, Any]) -> Any:
        dice = self.dice
        kind = dice.randrange(5)
        if kind == 0:
            return dice.choice(OTHERS)
        if kind == 1 and isinstance(old, int | float) and not isinstance(old, bool):
            ends = [schema.get("minimum", -1e300) - 1, schema.get("maximum", 1e300) + 1]
            return dice.choice([*ends, -old, old + 1e-9, str(old)])
        if kind == 1 and isinstance(old, list) and old:
            return dice.choice([old[:-1], [*old, old[0]], [*old, dice.choice(OTHERS)], []])
        if kind == 1 and isinstance(old, dict):
            changed = dict(old)
            self._keys(changed, schema)
            return changed
        return self.instance(schema)

    def _keys(self, value: Any, schema: dict[str, Any]) -> None:
        """A key too many, one too few, or an optional one."""
        if not isinstance(value, dict):
            return
        dice, declared = self.dice, schema.get("properties", {})
        kind = dice.randrange(4)
        missing = [key for key in declared if key not in value]
        if kind == 0 and value:
            del value[dice.choice(sorted(value))]
        elif kind == 1:
            value[dice.choice(("", "x", "comment", "size "))] = dice.choice(OTHERS)
        elif missing:
            key = dice.choice(missing)
            value[key] = self.instance(declared[key])


def changed(document: Any, schema: dict[str, Any], dice: random.Random) -> Any:
    return Maker(schema, dice).changed(document)
