"""A resolver of the tests' own in place of the system's, and addresses that take no connection."""

import contextlib
import socket
import sys
import threading

from helpers.servers.processes import HOST


class Resolver:
    """Resolves names of the tests; others, and addresses, are left to the system.

    `hosts`: the addresses of each name, as pairs of host and port, or the error to raise. While
    `hang()` holds, a look-up does not end. `asked` counts the look-ups of each name.
    """

    def __init__(self, monkeypatch, **hosts):
        self.hosts = {name.replace("_", "."): found for name, found in hosts.items()}
        self.asked = dict.fromkeys(self.hosts, 0)
        self._answers = threading.Event()
        self._answers.set()
        # What gevent has patched asks the resolver of its hub.
        system = sys.modules["gevent"].get_hub().resolver if "gevent" in sys.modules else socket
        self._real = system.getaddrinfo
        for each in {system, socket}:
            monkeypatch.setattr(each, "getaddrinfo", self.getaddrinfo)

    def getaddrinfo(self, host, port, family=0, type=0, proto=0, flags=0):  # noqa: A002
        host = host.decode() if isinstance(host, bytes) else host
        if host not in self.hosts or flags & socket.AI_NUMERICHOST:
            return self._real(host, port, family, type, proto, flags)
        self.asked[host] += 1
        if not self._answers.wait(60):
            raise TimeoutError("a look-up was never let go")
        found = self.hosts[host]
        if isinstance(found, Exception):
            raise found
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (each_host, int(each_port or port))) for each_host, each_port in found]

    def hang(self):
        self._answers.clear()

    def answer(self):
        self._answers.set()

    @contextlib.contextmanager
    def hanging(self):
        self.hang()
        try:
            yield
        finally:
            self.answer()


@contextlib.contextmanager
def dead_addresses(count):
    """Yield addresses whose queue of connections is full, so that the kernel answers nobody."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            full = stack.enter_context(socket.create_server((HOST, 0), backlog=0))
            address = full.getsockname()
            for _ in range(4):
                client = stack.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(address)
            found.append(address)
        yield found
