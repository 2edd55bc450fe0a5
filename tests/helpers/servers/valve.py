"""A valve in front of a server: what arrives while it is shut is neither read nor lost."""

import contextlib
import select
import socket
import threading
import time
from types import SimpleNamespace

from helpers.servers.processes import HOST

_SMALL = 16384
"""Bytes of the buffers: whoever sends more than a few of them waits."""


class Valve:
    """Forward connections to a port, and hold up what a fault says, until it is opened.

    `is_shut` holds up everything. `greetings` holds up each new connection after so many packets
    of the server's; `marker`, the answer to a packet in which it occurs, and all that follows.
    """

    def __init__(self, port: int):
        self._target = port
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
        self._listener.bind((HOST, 0))
        self._listener.listen(500)
        self.port = self._listener.getsockname()[1]
        self.open()
        threading.Thread(target=self._accept, daemon=True).start()

    def open(self) -> None:
        self.is_shut, self.greetings, self.marker = False, None, None

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        link = SimpleNamespace(left=self.greetings, marked=None)
        with (
            contextlib.suppress(OSError),
            client,
            socket.create_connection((HOST, self._target), 30) as server,
        ):
            while True:
                if self._holds(link):
                    time.sleep(0.005)
                    continue
                for sender in select.select([client, server], [], [], 0.02)[0]:
                    if self._holds(link):
                        break
                    chunk = sender.recv(65536)
                    if not chunk:
                        return
                    (server if sender is client else client).sendall(chunk)
                    if sender is server and link.left is not None:
                        link.left -= 1
                    if sender is client and self.marker and self.marker in chunk:
                        link.marked = self.marker

    def _holds(self, link: SimpleNamespace) -> bool:
        is_greeted = self.greetings is not None and link.left is not None and link.left <= 0
        return (
            self.is_shut or is_greeted or (link.marked is not None and link.marked == self.marker)
        )
