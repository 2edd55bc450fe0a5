"""`Retries(seconds=...)` covers connecting, sending and the whole answer, however it trickles."""

import threading
import time

import pytest
from helpers.callers.http_callers import CALLERS, DONE, Script, serving
from helpers.servers.faults import ScriptedServer
from helpers.servers.processes import until

from flask_idempotence.client import Retries

SECONDS, SLACK = 0.3, 9
"""Seconds, for a busy machine; less than the caller's own time-out."""

HEAD = b"HTTP/1.1 201 Created\r\nContent-Length: 60\r\n"
WAYS = {
    "the status line": (b"", HEAD),
    "a header": (HEAD + b"Slow: ", b"x" * 60),
    "the body": (HEAD + b"\r\n", b"x" * 60),
    "chunks": (b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 20),
    "a refusal": (
        b"HTTP/1.1 503 -\r\nContent-Type: application/problem+json\r\nContent-Length: 60\r\n\r\n",
        b" " * 60,
    ),
    "before it reads the request": (None, b""),
}


def trickling(way):
    """Return the answer of a server byte by byte, ten in a second; or one that reads so slowly."""
    at_once, by_and_by = WAYS[way]

    def answer(connection, _):
        while at_once is None and connection.recv(1000):
            time.sleep(0.1)
        connection.sendall(at_once or b"")
        for byte in by_and_by:
            time.sleep(0.1)
            connection.sendall(bytes([byte]))

    return answer


@pytest.mark.parametrize("library", CALLERS)
@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_trickles_ends_with_the_time_of_all_attempts(library, way, pauses):
    body = b"x" * 30_000_000 if way == "before it reads the request" else b"{}"
    call = CALLERS[library](Retries(seconds=SECONDS), pauses)
    begin = time.monotonic()
    with ScriptedServer() as server:
        server.answer = trickling(way)
        with pytest.raises(call.NO_ANSWER) as caught:
            call("POST", f"http://{server.address}", content=body, timeout=10)
        lasted = time.monotonic() - begin
        assert SECONDS <= lasted < SECONDS + SLACK
        assert len(server.connections) == 1
        [note] = caught.value.__notes__
        assert note.startswith("Attempts, all with the same key: 1, in ")
        if way in {"the body", "chunks"}:  # no thread is left behind that reads on
            assert until(lambda: not attempts(), 5)
    call.close()


@pytest.mark.parametrize("library", CALLERS)
def test_there_need_be_no_limit(library, pauses):
    call = CALLERS[library](Retries(seconds=float("inf")), pauses)
    with serving(Script([DONE])) as url:
        assert call("POST", url, timeout=None).status_code == 201
    call.close()


def attempts():
    return [thread for thread in threading.enumerate() if "run" in thread.name]
