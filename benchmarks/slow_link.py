"""TCP links with a delay and a bandwidth, for measurements of a far scheduler on one machine.

A link listens on a port of its own and forwards every connection to its target. What arrives is
passed on after the one-way delay, and no faster than the bandwidth. All links of a `Links` object
run in one separate process, which counts the bytes of each link in both directions.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType

CHUNK = 1 << 16


@dataclass(frozen=True)
class Link:
    """A port of this machine that leads to another one."""

    name: str
    port: int
    target: int
    delay: float = 0.0
    """Seconds in each direction."""
    bandwidth: float = float("inf")
    """Bytes per second and direction, shared by all connections of the link."""


class Links:
    """A process that forwards the given links. A context manager."""

    def __init__(self, links: list[Link]) -> None:
        context = get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(links, theirs), daemon=True)
        self._process.start()
        assert self._ours.recv() == "ready"

    def sent(self) -> dict[str, tuple[int, int]]:
        """Return the bytes sent to the target and back, by the name of the link."""
        self._ours.send("bytes")
        answer: dict[str, tuple[int, int]] = self._ours.recv()
        return answer

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def __enter__(self) -> Links:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.join()


class _Direction:
    """One direction of a link: the bytes so far, and the time at which its wire is free."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.bytes = 0
        self.free = 0.0

    def arrival(self, size: int) -> float:
        """Return when a message that is sent now has arrived."""
        self.bytes += size
        self.free = max(self.free, asyncio.get_running_loop().time()) + size / self.link.bandwidth
        return self.free + self.link.delay


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: _Direction
) -> None:
    loop = asyncio.get_running_loop()
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            at, chunk = await under_way.get()
            if at > loop.time():
                await asyncio.sleep(at - loop.time())
            if not chunk:
                break
            writer.write(chunk)
            await writer.drain()
        writer.close()

    delivery = asyncio.create_task(deliver())
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK):
            under_way.put_nowait((direction.arrival(len(chunk)), chunk))
    under_way.put_nowait((direction.arrival(0), b""))
    with contextlib.suppress(OSError):
        await delivery


def _serve(links: list[Link], connection: Connection) -> None:
    directions = {link.name: (_Direction(link), _Direction(link)) for link in links}

    async def connected(
        link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, back = directions[link.name]
        try:
            target = await asyncio.open_connection("127.0.0.1", link.target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_forward(reader, target[1], there), _forward(target[0], writer, back))

    async def run() -> None:
        for link in links:
            await asyncio.start_server(
                lambda reader, writer, link=link: connected(link, reader, writer),  # type: ignore[misc]
                "127.0.0.1",
                link.port,
            )
        connection.send("ready")
        loop = asyncio.get_running_loop()
        while True:
            await loop.run_in_executor(None, connection.recv)
            connection.send({n: (a.bytes, b.bytes) for n, (a, b) in directions.items()})

    with contextlib.suppress(EOFError, KeyboardInterrupt):
        asyncio.run(run())
