"""The protocol of `fmdp serve`: one JSON object per line in, one per line out, in order.

    {"state": S}                                           -> {"action": A}
    {"observe": {"state": S, "action": A,
                 "rewards": R, "next_state": S}}           -> {"observed": n}
    {"status": true}                                       -> {"status": {...}}

A line may have several keys: the observation is counted first, then the action is chosen. An "id"
is returned with the answer. S and A are given by name ({"pump": "worn"}, "pump=worn") or by number
([0, 2]); answers have the form of the question. An invalid line is answered by {"error": "..."} and
changes nothing. Every line, whatever its bytes, has exactly one answer, and the constants below
bound its length and the work of reading it.

Lines that wait together share one fsync, and no answer leaves before it (group commit). The module
reads one descriptor and writes another; it opens no network connection.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fmdp._base.archives import reason
from fmdp._base.parameters import quoted
from fmdp.errors import FileProblem, FmdpError, InvalidParameter, did_you_mean
from fmdp.model.naming import Value
from fmdp.service.service import Service, learner_errors

MOST_BYTES = 1 << 20
"""Longest line. What follows is not kept, and the next line is read as usual."""
MOST_BRACKETS = 100
"""Most opening brackets in a line; far below the nesting limit of Python's parser."""
MOST_DIGITS = 1000
"""Most characters of a number: the time to read an integer grows with the square of its digits."""
MOST_ID = 1000
"""Most characters of an "id", written as JSON."""
MOST_ERROR = 1000
"""Most characters of an error; what is longer ends with dots."""
BATCH = 1000
"""Most lines that share one fsync."""
_READ = 1 << 16
_KEYS = ("state", "observe", "status", "id")
_STEP_KEYS = ("state", "action", "rewards", "next_state")


def serve(
    service: Service, source: int, write: Callable[[bytes], None], *, batch: int = BATCH
) -> None:
    """Answer every line from the descriptor until it ends.

    Parameters
    ----------
    service
        The service that answers.
    source
        A descriptor to read from.
    write
        Called with complete lines, after their events are durable.
    batch
        Most lines that share one fsync.

    Raises
    ------
    FileProblem
        If the disk has failed; every line that is not on it was answered with an error.
    """
    Lines(service, source, write, batch).run()


class Lines:
    """Reads and answers lines, and holds answers back until their events are durable."""

    def __init__(
        self, service: Service, source: int, write: Callable[[bytes], None], batch: int
    ) -> None:
        self.service = service
        self._source = source
        self._write = write
        self._batch = batch
        self._waiting: list[dict[str, Any]] = []

    def run(self) -> None:
        for lines in batches(self._source, self._batch):
            for line in lines:
                answer = self._answer(line)  # may release earlier answers
                self._waiting.append(answer)
            self._release()
            self.service.tidy()

    def _answer(self, line: bytes | None) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        try:
            request = parsed(line)
            if "id" in request:
                answer["id"] = _short_id(request["id"])
            with learner_errors(self.service.agent):
                self._do(request, answer)
        except FmdpError as error:
            text = str(error)
            short = text if len(text) <= MOST_ERROR else text[: MOST_ERROR - 3] + "..."
            answer["error"] = short
        return answer

    def _do(self, request: Mapping[str, Any], answer: dict[str, Any]) -> None:
        """Do what a line asks for, and add the answers."""
        _refuse_unknown(request, _KEYS, "a line")
        if not any(key in request for key in ("state", "observe", "status")):
            raise InvalidParameter("a line must have a state, an observe or a status")
        if "observe" in request:
            step = _step(request["observe"])
            answer["observed"] = self.service.observe(**step, commit=False)
        if "state" in request:
            if self.service.agent.changed_by_act:
                self._release()  # earlier answers need not wait for a plan
            state = request["state"]
            _refuse_shapeless(state, "state")
            answer["action"] = _names(self.service.act(state, commit=False))
        if "status" in request:
            if request["status"] is not True:
                raise InvalidParameter(f"status must be true; got {quoted(request['status'])}")
            answer["status"] = self.service.status()

    def _release(self) -> None:
        """Make all events durable, then send the waiting answers."""
        waiting, self._waiting = self._waiting, []
        failure: FmdpError | None = None
        try:
            self.service.commit()
        except FmdpError as error:
            failure = error
            waiting = [_not_acknowledged(answer, str(error)) for answer in waiting]
        if waiting:
            self._write(b"".join(map(encoded, waiting)))
        if failure is not None:
            raise failure


def _names(action: tuple[int, ...] | dict[str, Value]) -> tuple[int, ...] | dict[str, str]:
    """Return an action with its values as texts, as in all JSON output."""
    if isinstance(action, tuple):
        return action
    return {name: str(value) for name, value in action.items()}


def _not_acknowledged(answer: dict[str, Any], reason: str) -> dict[str, Any]:
    """Return the error for an answer whose event may not be on disk."""
    kept = {key: value for key, value in answer.items() if key in ("id", "error")}
    return {"error": f"not acknowledged: {reason}", **kept}


def encoded(answer: Mapping[str, Any]) -> bytes:
    return json.dumps(answer, allow_nan=False).encode() + b"\n"


def parsed(line: bytes | None) -> dict[str, Any]:
    """Return the object of a line (None: a line that was too long), or raise InvalidParameter."""
    if line is None:
        raise InvalidParameter(f"the line is too long; must be at most {MOST_BYTES:,} bytes")
    if line.count(b"{") + line.count(b"[") > MOST_BRACKETS:
        raise InvalidParameter(
            f"the line is nested too deeply; must have at most {MOST_BRACKETS:,} brackets"
        )
    try:
        request = json.loads(
            line.decode(),
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_finite,
            object_pairs_hook=_unique_keys,
        )
    except json.JSONDecodeError as error:
        raise InvalidParameter(
            f"the line is not JSON: {error.msg} at column {error.colno}"
        ) from None
    except UnicodeDecodeError as error:
        raise InvalidParameter(f"the line is not UTF-8 at byte {error.start}") from None
    if not isinstance(request, dict):
        raise InvalidParameter(f"a line must be a JSON object; got {quoted(request)}")
    return request


def _integer(text: str) -> int:
    _refuse_long(text)
    return int(text)


def _finite(text: str) -> float:
    _refuse_long(text)
    number = float(text)
    if not abs(number) <= sys.float_info.max:
        raise InvalidParameter(f"the number {text[:40]} is not finite; numbers must be")
    return number


def _refuse_long(text: str) -> None:
    if len(text) > MOST_DIGITS:
        raise InvalidParameter(
            f"a number of the line has {len(text):,} characters; must have at most {MOST_DIGITS:,}"
        )


def _unique_keys(items: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(items)
    if len(table) < len(items):
        ((twice, _),) = Counter(key for key, _ in items).most_common(1)
        raise InvalidParameter(f"key {quoted(twice)} stands twice in one object")
    return table


def _short_id(given: Any) -> Any:
    length = len(json.dumps(given))
    if length > MOST_ID:
        raise InvalidParameter(
            f"id has {length:,} characters as JSON; must have at most {MOST_ID:,}"
        )
    return given


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for key in given:
        if key not in known:
            raise InvalidParameter(
                f"{what} has no key {quoted(key)}; its keys are {', '.join(known)}"
                f"{did_you_mean(key, known)}"
            )


def _step(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InvalidParameter(
            f"observe must be an object with {', '.join(_STEP_KEYS)}; got {quoted(given)}"
        )
    _refuse_unknown(given, _STEP_KEYS, "observe")
    for key in _STEP_KEYS:
        if key not in given:
            raise InvalidParameter(f"observe lacks {key!r}; its keys are {', '.join(_STEP_KEYS)}")
        if key != "rewards":
            _refuse_shapeless(given[key], key)
    return given


def _refuse_shapeless(given: Any, what: str) -> None:
    if not isinstance(given, dict | list | str):
        raise InvalidParameter(
            f"{what} must be an object of names, a list or a text name=value; got {quoted(given)}"
        )


def batches(source: int, most: int) -> Iterator[list[bytes | None]]:
    """Yield the lines that are available together, at most `most`; None for a line too long.

    A last line without a newline counts.
    """
    held = bytearray()  # the beginning of a line, of which little more than MOST_BYTES is kept
    while True:
        try:
            data = os.read(source, _READ)
        except OSError as error:
            raise FileProblem(f"cannot read the lines ({reason(error)})") from None
        *ends, rest = (data or b"\n").split(b"\n")
        if not data and not held:
            return
        ready: list[bytes | None] = []
        for end in ends:
            ready.append(bytes(held + end) if len(held) + len(end) <= MOST_BYTES else None)
            held.clear()
        if len(held) <= MOST_BYTES:
            held += rest
        for start in range(0, len(ready), most):
            yield ready[start : start + most]
