"""The protocol of `fmdp serve`: a JSON object a line in, a JSON object a line out, in order.

    {"state": S}                                           -> {"action": A}
    {"observe": {"state": S, "action": A,
                 "rewards": R, "next_state": S}}           -> {"observed": n}
    {"status": true}                                       -> {"status": {...}}

Keys of one line may stand together: what was observed is counted first, then the state is asked. An
"id" comes back as it is. S and A by name ({"pump": "worn"}, "pump=worn") or by number ([0, 2]);
answers have the form of the question. A line that cannot be is answered by {"error": "..."} and
changes nothing; there is exactly one answer a line.

Lines that wait together share one fsync, and no answer leaves before it: group commit. Nothing here
listens anywhere; it reads one descriptor and writes another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fmdp._base.parameters import quoted
from fmdp.errors import FmdpError, InvalidParameter, did_you_mean
from fmdp.model.naming import Value
from fmdp.service.service import Service

MOST_BYTES = 1 << 20
"""Of a line."""
MOST_BRACKETS = 100
"""Opening ones in a line; far below what Python's parser can nest."""
BATCH = 1000
"""Lines that share one fsync at most."""
_READ = 1 << 16
_KEYS = ("state", "observe", "status", "id")
_OF_STEP = ("state", "action", "rewards", "next_state")


def serve(
    service: Service, source: int, write: Callable[[bytes], None], *, batch: int = BATCH
) -> None:
    """Answer every line that comes from the descriptor until it ends.

    Parameters
    ----------
    service
        What answers.
    source
        A descriptor to read from.
    write
        Called with whole lines, durable by then.
    batch
        Lines that share one fsync at most.

    Raises
    ------
    FileProblem
        Where the disk has failed for good; every line that is not on it was answered by an error.
    """
    Lines(service, source, write, batch).run()


class Lines:
    """Lines on their way through: read, answered, and held back until their events are durable."""

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
                answer = self._answer(line)  # which may release those before it
                self._waiting.append(answer)
            self._release()
            self.service.tidy()

    def _answer(self, line: bytes | None) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        try:
            request = parsed(line)
            if "id" in request:
                answer["id"] = request["id"]
            _refuse_unknown(request, _KEYS, "a line")
            if not any(key in request for key in ("state", "observe", "status")):
                raise InvalidParameter("a line must have a state, an observe or a status")
            if "observe" in request:
                step = _step(request["observe"])
                answer["observed"] = self.service.observe(**step, commit=False)
            if "state" in request:
                if self.service.agent.changed_by_act:
                    self._release()  # whoever waits should not wait for a plan
                state = request["state"]
                _refuse_shapeless(state, "state")
                answer["action"] = _names(self.service.act(state, commit=False))
            if "status" in request:
                if request["status"] is not True:
                    raise InvalidParameter(f"status must be true; got {quoted(request['status'])}")
                answer["status"] = self.service.status()
        except FmdpError as error:
            answer["error"] = str(error)
        return answer

    def _release(self) -> None:
        """Make durable what happened, and send the answers."""
        waiting, self._waiting = self._waiting, []
        failure: FmdpError | None = None
        try:
            self.service.commit()
        except FmdpError as error:
            failure = error
            waiting = [_undone(answer, str(error)) for answer in waiting]
        if waiting:
            self._write(b"".join(map(encoded, waiting)))
        if failure is not None:
            raise failure


def _names(action: tuple[int, ...] | dict[str, Value]) -> tuple[int, ...] | dict[str, str]:
    """Return an action by name with the names of its values, which are texts in all JSON output."""
    if isinstance(action, tuple):
        return action
    return {name: str(value) for name, value in action.items()}


def _undone(answer: dict[str, Any], said: str) -> dict[str, Any]:
    """In the place of an answer whose event may not be on disk."""
    kept = {key: value for key, value in answer.items() if key in ("id", "error")}
    return {"error": f"not acknowledged: {said}", **kept}


def encoded(answer: Mapping[str, Any]) -> bytes:
    return json.dumps(answer, allow_nan=False).encode() + b"\n"


def parsed(line: bytes | None) -> dict[str, Any]:
    """The object of a line (None: one that was too long), or InvalidParameter."""
    if line is None:
        raise InvalidParameter(f"the line is too long; must be at most {MOST_BYTES:,} bytes")
    if line.count(b"{") + line.count(b"[") > MOST_BRACKETS:
        raise InvalidParameter(
            f"the line is nested too deeply; must have at most {MOST_BRACKETS:,} brackets"
        )
    try:
        found = json.loads(line.decode(), parse_constant=_refuse_constant, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise InvalidParameter(
            f"the line is not JSON: {error.msg} at column {error.colno}"
        ) from None
    except UnicodeDecodeError as error:
        raise InvalidParameter(f"the line is not UTF-8 at byte {error.start}") from None
    except FmdpError:
        raise
    except ValueError as error:  # a whole number of thousands of digits
        raise InvalidParameter(f"a number of the line cannot be read ({error})") from None
    if not isinstance(found, dict):
        raise InvalidParameter(f"a line must be a JSON object; got {quoted(found)}")
    return found


def _refuse_constant(name: str) -> Any:
    raise InvalidParameter(f"{name} is no number of JSON; numbers must be finite")


def _once(items: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(items)
    if len(found) < len(items):
        keys = [key for key, _ in items]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidParameter(f"key {quoted(twice)} stands twice in one object")
    return found


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
            f"observe must be an object with {', '.join(_OF_STEP)}; got {quoted(given)}"
        )
    _refuse_unknown(given, _OF_STEP, "observe")
    for key in _OF_STEP:
        if key not in given:
            raise InvalidParameter(f"observe lacks {key!r}; its keys are {', '.join(_OF_STEP)}")
        if key != "rewards":
            _refuse_shapeless(given[key], key)
    return given


def _refuse_shapeless(given: Any, what: str) -> None:
    if not isinstance(given, dict | list | str):
        raise InvalidParameter(
            f"{what} must be an object of names, a list or a text name=value; got {quoted(given)}"
        )


def batches(source: int, most: int) -> Iterator[list[bytes | None]]:
    """Lines as they come, those together that are there together, `most` at most; None for one that
    was too long. A last line without its end is a line."""
    held = b""
    skipping = False
    while True:
        data = os.read(source, _READ)
        *lines, rest = (held + data).split(b"\n")
        found: list[bytes | None] = list(lines)
        if skipping and found:
            found[0] = None
            skipping = False
        held = rest
        if skipping or len(held) > MOST_BYTES:
            skipping, held = True, b""
        found = [one if one is None or len(one) <= MOST_BYTES else None for one in found]
        if not data and (held or skipping):
            found.append(None if skipping else held)
        for start in range(0, len(found), most):
            yield found[start : start + most]
        if not data:
            return
