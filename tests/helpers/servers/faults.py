"""Servers that fail on purpose: one that never answers, and a proxy that loses what it carries."""

import contextlib
import selectors
import socket
import struct
import threading
import time
from socketserver import ThreadingTCPServer

from flask_idempotence.stores.redis.store import CLAIM as _CLAIM
from helpers.servers.processes import HOST, RedisServer

CLAIM = (b"\r\nNX\r\n", _CLAIM.digest.encode())
"""Markers of a claim: by plain commands, or by the script."""


_AT_ONCE = struct.pack("ii", 1, 0)


class SilentServer:
    def __enter__(self):
        self._listener = socket.create_server((HOST, 0), backlog=128)
        self.address = f"{HOST}:{self._listener.getsockname()[1]}"
        self.url = f"redis://{self.address}/0"
        return self

    def __exit__(self, *_):
        self._listener.close()


class Proxy:
    """A proxy in front of a server, with faults to switch on.

    ``drop_replies``: a request reaches the server, its reply is swallowed and the connection
    closed. ``black_hole``: connections are taken and nothing is forwarded either way. ``delay``:
    seconds for which whatever arrives is held up before it is forwarded, even if its sender has
    left meanwhile. ``forget_connections``: what arrives on those that are open goes nowhere from
    now on, as behind a firewall that was restarted; new ones work. ``resets``: a connection whose
    reply is lost is reset, not closed. ``carried``: the requests that were forwarded.
    ``drops_left``: the replies that have yet to be lost.
    """

    def __init__(self, server: RedisServer):
        self.port = 0
        self.black_hole = False
        self.delay = 0.0
        self.drop_replies = self.resets = False
        self._server = server
        self.drops_left, self._markers = 0, (b"",)
        self.carried = []
        self._lock = threading.Lock()
        self._listening = False
        self._forgotten = 0
        self._held = None

    def __enter__(self):
        self.accept()
        return self

    def __exit__(self, *_):
        self.refuse()

    def drop_next_replies(self, count: int, *, after: bytes | tuple[bytes, ...] = b"") -> None:
        """Lose the replies to the next requests that contain the marker, or one of some."""
        with self._lock:
            self.drops_left = count
            self._markers = after if isinstance(after, tuple) else (after,)

    def forget_connections(self) -> None:
        self._forgotten += 1

    def hold(self, marker: bytes | None) -> None:
        self._held = marker

    def lead_to(self, server: RedisServer) -> None:
        """Carry new connections to another server; those that are open stay where they are."""
        self._server = server

    def accept(self) -> None:
        """Listen: the first time on a free port, then always on the same."""
        if not self._listening:
            self._listener = _Listener((HOST, self.port), self._carry)
            self._listening = True
            self.port = self._listener.server_address[1]
            self.url = f"redis://{HOST}:{self.port}/0"
            self._thread = threading.Thread(target=self._listener.serve_forever, args=[0.02])
            self._thread.start()

    def refuse(self) -> None:
        if self._listening:
            self._listening = False
            self._listener.shutdown()
            self._thread.join()
            self._listener.server_close()  # waits for the threads of the connections

    def _carry(self, client: socket.socket, *_) -> None:
        address, forgotten = (HOST, self._server.port), self._forgotten
        with (
            contextlib.suppress(OSError),
            socket.create_connection(address, 10) as server,
            selectors.DefaultSelector() as watch,
        ):
            for side in (client, server):
                watch.register(side, selectors.EVENT_READ)
            while self._listening:
                for sender in [ready.fileobj for ready, _ in watch.select(0.02)]:
                    chunk = sender.recv(65536)
                    if not chunk:
                        return
                    forgotten = self._hold_back(chunk, forgotten)
                    if self.black_hole or forgotten < self._forgotten:
                        continue
                    if self.delay:
                        time.sleep(self.delay)
                    if sender is client:
                        self.carried.append(chunk)
                    (server if sender is client else client).sendall(chunk)
                    if sender is client and self._drops_reply_to(chunk):
                        server.recv(65536)
                        if self.resets:
                            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                            client.close()
                        return

    def _hold_back(self, chunk: bytes, forgotten: int) -> int:
        """Return the same number, or one that makes the connection a forgotten one."""
        return -1 if self._held is not None and self._held in chunk else forgotten

    def _drops_reply_to(self, request: bytes) -> bool:
        with self._lock:
            if self.drops_left and any(marker in request for marker in self._markers):
                self.drops_left -= 1
                return True
        return self.drop_replies


class _Listener(ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 128
