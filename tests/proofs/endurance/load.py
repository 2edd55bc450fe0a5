"""An open loop of clients: operations begin at a fixed rate, and every answer is checked."""

import http.client
import json
import threading
import time
from collections import Counter
from functools import partial

from helpers.servers.processes import all_at_once

CLIENTS = 32
BURST = 96
"""Requests at once while the store is held, so that each thread of a worker needs a connection."""

BRIEF = 0.4
"""Seconds of a view for whose end its duplicate waits."""

LATE = 1.0
"""Seconds by which an operation may begin late before it counts as late."""


class UnexpectedAnswer(Exception):
    """An answer that the operation does not allow."""


def check(condition, text):
    if not condition:
        raise UnexpectedAnswer(text)


class Load:
    """Clients of a server; `ratios` are of a guarded request's time to its unguarded twin's."""

    def __init__(self, server, rate, lease):
        self._server, self.lease = server, lease
        self._pause = PER_ROUND / len(ROUND) / rate
        self._lock = threading.Lock()
        self._next = 0
        self._ends = False
        self._threads = []
        self.ratios = []
        self.problems = Counter()
        self.requests = self.late = 0

    def send(self, path, order, *, expect=(201,), key=None, token=None, **plan):
        sent = {"Content-Type": "application/json", "Authorization": f"Bearer user{order}"}
        sent |= {"Idempotency-Key": key} if key else {}
        sent |= {"Idempotence-Token": token} if token else {}
        method = "GET" if path == "/token" and token is None else "POST"
        try:
            answer = self._server.ask(path, method, sent, json.dumps({"order": order, **plan}))
        except (http.client.HTTPException, OSError) as error:
            raise UnexpectedAnswer(f"{path}: no answer: {error!r}") from error
        self.requests += 1
        told = f"{path}: {answer.status}, not {expect}: {answer.text[:200]}"
        check(answer.status in expect, told)
        return answer

    def burst(self):
        all_at_once([partial(self._do, pair, -number) for number in range(1, BURST + 1)])
        self.ratios.clear()

    def start(self):
        self._began = time.monotonic()
        self._threads = [threading.Thread(target=self._work) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def end(self):
        self._ends = True
        for thread in self._threads:
            thread.join()

    def _work(self):
        while not self._ends:
            with self._lock:
                number = self._next
                self._next += 1
            due = self._began + number * self._pause
            time.sleep(max(0.0, due - time.monotonic()))
            self.late += time.monotonic() > due + LATE
            self._do(ROUND[number % len(ROUND)], number)

    def _do(self, operation, number):
        try:
            operation(self, number)
        except UnexpectedAnswer as problem:
            self.problems[str(problem)] += 1


def pair(load, order):
    seconds = {}
    for path in ("/floor", "/key") if order % 2 else ("/key", "/floor"):
        began = time.perf_counter()
        load.send(path, order, key=f'"first {order}"')
        seconds[path] = time.perf_counter() - began
    load.ratios.append((time.monotonic(), seconds["/key"] / seconds["/floor"]))


def repeats(load, order):
    key = f'"repeated {order}"'
    first, again = (load.send("/key", order, key=key) for _ in range(2))
    is_replayed = again.headers["Idempotent-Replayed"] == "true"
    check(is_replayed and again.json == first.json, "a repeat was not replayed")
    load.send("/key", order, key=key, expect=(422,), other=True)


def lock(load, order):
    load.send("/lock", order)
    load.send("/lock", order, expect=(409, 201))  # 201 after a stall


def token(load, order):
    issued = load.send("/token", order, expect=(200,)).json["token"]
    load.send("/token", order, token=issued)
    load.send("/token", order, token=issued, expect=(409,))


def once(load, order):
    first, again = (load.send("/once", order).json for _ in range(2))
    check(first == again, "once() ran twice")


def failing(load, order):
    """Fail twice with one key, since a failure releases it; then raise."""
    key = f'"failing {order}"'
    runs = [load.send("/key", order, key=key, expect=(503,), status=503).json for _ in range(2)]
    check(runs[0] != runs[1], "a failure was remembered")
    load.send("/raising", order, key=key, expect=(500,))


def stream(load, order):
    answer = load.send("/stream", order, key=f'"stream {order}"')
    check(answer.text.count("\n") == 3, "a stream was cut off")


def named(load, order):
    load.send("/named", order)


def slow(load, order):
    """Run for longer than two renewals; on a busy machine, its repeat may overtake it."""
    load.send("/key", order, key=f'"slow {order}"', expect=(201, 409), work=0.8 * load.lease)


def busy(load, order):
    """Repeat the latest slow request while it runs; after a stall it has ended."""
    slow(load, order - SINCE_SLOW)


def patient(load, order):
    """Run briefly, with a duplicate that waits."""
    load.send("/patient", order, key=f'"patient {order}"', work=BRIEF)


def waiting(load, order):
    """Repeat the brief request before, and wait for its answer."""
    patient(load, order - 1)


ROUND = (
    *(pair, repeats, lock, pair, once, token, pair, patient, waiting, pair, repeats, lock),
    *(pair, once, token, slow, pair, failing, stream, named, pair, repeats, once, pair, busy),
    *(lock, token, pair, named),
)

SINCE_SLOW = ROUND.index(busy) - ROUND.index(slow)

REQUESTS = {pair: 2, repeats: 3, lock: 2, token: 3, once: 2, failing: 3}
"""Requests of an operation, where there are several."""

PER_ROUND = sum(REQUESTS.get(operation, 1) for operation in ROUND)
