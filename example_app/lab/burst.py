"""Send the requests of a run at once: a program of its own, which the lab's page starts.

It opens one connection per request, and sends on all of them when the last one is open. It writes
the client's events to the database, beside those of the server's processes. It imports the
standard library only, so that it starts quickly.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import sys
import time
from http import HTTPStatus
from typing import Any

CONNECTS_AT_ONCE = 50
"""Below the backlog of a server's listening socket."""

LONGEST_PAUSE = 3.0
"""Seconds to wait before a retry, at most, even if `Retry-After` is longer."""

WRITES_EVERY = 0.05
"""Seconds between two writes of events."""


class Burst:
    """The requests of one run.

    Args:
        plan: the plan made by `fire` in `pages.py`.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._database = sqlite3.connect(plan["database"], timeout=10, check_same_thread=False)
        self._connecting = asyncio.Semaphore(CONNECTS_AT_ONCE)
        self._events: list[tuple[Any, ...]] = []

    async def run(self) -> None:
        """Send the requests, and wait for the responses within the time limit."""
        number = self._plan["run"]
        lanes = range(1, self._plan["lanes"] + 1)
        opened = await asyncio.gather(*(self._connect() for _ in lanes), return_exceptions=True)
        began = time.time()
        answers = asyncio.gather(*map(self._lane, lanes, opened))
        await asyncio.sleep(0)  # every lane has sent its request
        await self._write("UPDATE lab_runs SET began = ? WHERE number = ?", [(began, number)])
        while not answers.done():
            await self._write(self._plan["insert"], self._take_events())
            await asyncio.wait([answers], timeout=WRITES_EVERY)
        await self._write(self._plan["insert"], self._take_events())
        ended = time.time()
        await self._write("UPDATE lab_runs SET ended = ? WHERE number = ?", [(ended, number)])
        self._database.close()

    async def _lane(self, lane: int, connection: Any) -> None:
        """Send one request, and retry as `Retry-After` says."""
        tries_left = self._plan["tries"]
        try:
            async with asyncio.timeout(self._plan["patience"]):
                while True:
                    status, pause = await self._send(lane, connection)
                    tries_left -= 1
                    if not tries_left or status != HTTPStatus.CONFLICT or pause is None:
                        self._add_event(lane, "answered", str(status))
                        return
                    self._add_event(lane, "will retry", str(status))
                    await asyncio.sleep(min(pause, LONGEST_PAUSE))
                    connection = await self._connect()
        except (OSError, ValueError, IndexError) as error:  # a TimeoutError is an OSError
            self._add_event(lane, "no answer", type(error).__name__)

    async def _connect(self) -> Any:
        async with self._connecting:
            return await asyncio.open_connection(*self._plan["address"])

    async def _send(self, lane: int, connection: Any) -> tuple[int, float | None]:
        if isinstance(connection, BaseException):
            raise connection
        reader, writer = connection
        self._add_event(lane, "sent")  # written first: the response may be very quick
        writer.write(self._request(lane))
        try:
            head, _, _ = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        pause = headers.get("retry-after")
        return int(status_line.split()[1]), None if pause is None else float(pause)

    def _request(self, lane: int) -> bytes:
        host, port = self._plan["address"]
        headers = {
            "Host": f"{host}:{port}",
            "Accept": "application/json",
            "Connection": "close",
            "Content-Length": "0",
            **self._plan["headers"],
            self._plan["lane_header"]: str(lane),
        }
        lines = [f"POST {self._plan['path']} HTTP/1.1", *map(": ".join, headers.items())]
        return "\r\n".join([*lines, "", ""]).encode()

    def _add_event(self, lane: int, what: str, detail: str | None = None) -> None:
        self._events.append((self._plan["run"], lane, what, detail, time.time()))

    def _take_events(self) -> list[tuple[Any, ...]]:
        taken, self._events = self._events, []
        return taken

    async def _write(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        # In a thread: waiting for the database here would delay the responses.
        await asyncio.to_thread(self._write_now, statement, rows)

    def _write_now(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        with self._database:  # one transaction
            self._database.executemany(statement, rows)


if __name__ == "__main__":
    asyncio.run(Burst(json.load(sys.stdin)).run())
