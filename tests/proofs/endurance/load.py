"""An open loop of clients: operations begin at a fixed rate, whatever the answers take."""

import threading
import time
from collections import Counter, defaultdict
from functools import partial

from helpers.servers.processes import all_at_once

from .operations import PER_ROUND, ROUND, Client, UnexpectedAnswer, pair

CLIENTS = 32
BURST = 96
"""Requests at once while the store is held, so that each thread of a worker needs a connection."""

LATE = 1.0
"""Seconds by which an operation may begin late before it counts as late."""


class Load:
    """Clients of a server; `ratios` are of a guarded request's time to its unguarded twin's."""

    def __init__(self, port: int, rate: float):
        self._port = port
        self._pause = PER_ROUND / len(ROUND) / rate
        self._lock = threading.Lock()
        self._next = 0
        self._ends = False
        self._threads = []
        self._began = 0.0
        self.timing = defaultdict(list)
        self.ratios: list[tuple[float, float]] = []
        self.problems: Counter[str] = Counter()
        self.late = 0

    @property
    def requests(self) -> int:
        return sum(map(len, self.timing.values()))

    def burst(self) -> None:
        clients = [(self._client()[0], pair, -number) for number in range(1, BURST + 1)]
        all_at_once([partial(self._do, *each) for each in clients])
        self.timing.clear()
        self.ratios.clear()

    def start(self) -> None:
        self._began = time.monotonic()
        self._threads = [threading.Thread(target=self._work) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ends = True
        for thread in self._threads:
            thread.join()

    def _client(self):
        last = {}

        def note(kind: str, seconds: float) -> None:
            last[kind] = seconds
            self.timing[kind].append((time.monotonic(), seconds))

        return Client(self._port, note), last

    def _work(self) -> None:
        client, last = self._client()
        while not self._ends:
            with self._lock:
                number = self._next
                self._next += 1
            due = self._began + number * self._pause
            time.sleep(max(0.0, due - time.monotonic()))
            self.late += time.monotonic() > due + LATE
            operation = ROUND[number % len(ROUND)]
            if self._do(client, operation, number) and operation is pair:
                self.ratios.append((time.monotonic(), last["first"] / last["floor"]))
        client.close()

    def _do(self, client: Client, operation, number: int) -> bool:
        try:
            operation(client, number)
        except UnexpectedAnswer as problem:
            self.problems[str(problem)] += 1
            return False
        return True
