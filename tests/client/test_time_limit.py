"""`Retries(seconds=...)` covers connecting, sending and the whole answer, however it trickles."""

import contextlib
import socket
import threading
import time

import pytest
from helpers.callers.http_callers import CALLERS, DONE, Script, serving
from helpers.servers.processes import HOST, until

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


class Trickle:
    """A server that answers byte by byte, ten in a second; or that reads so slowly."""

    def __init__(self, way):
        self._at_once, self._by_and_by = WAYS[way]
        self.connections = 0
        self._over = threading.Event()

    def __enter__(self):
        self._listener = socket.create_server((HOST, 0))
        self.url = f"http://{HOST}:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._threads.append(threading.Thread(target=self._serve, args=[connection]))
                self._threads[-1].start()

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError):
            if self._at_once is None:
                while not self._over.wait(0.1):
                    connection.recv(1000)
                return
            connection.recv(100_000)
            connection.sendall(self._at_once)
            for byte in self._by_and_by:
                if self._over.wait(0.1):
                    break
                connection.sendall(bytes([byte]))


@pytest.mark.parametrize("library", CALLERS)
@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_trickles_ends_with_the_time_of_all_attempts(library, way, pauses):
    body = b"x" * 30_000_000 if way == "before it reads the request" else b"{}"
    call = CALLERS[library](Retries(seconds=SECONDS), pauses)
    begin = time.monotonic()
    with Trickle(way) as server:
        with pytest.raises(call.NO_ANSWER) as caught:
            call("POST", server.url, content=body, timeout=10)
        lasted = time.monotonic() - begin
        assert SECONDS <= lasted < SECONDS + SLACK
        assert server.connections == 1
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
