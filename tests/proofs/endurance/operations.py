"""What clients do, and which answers they must get."""

import http.client
import json
import time
from collections.abc import Callable

from helpers.servers.processes import HOST, Answer

REUSE = 200
"""Requests on one connection: with new ones, both workers get their share."""

TIMEOUT = 30.0


class UnexpectedAnswer(Exception):
    """An answer that the operation does not allow."""


class Client:
    """A client with a connection that is kept alive, which notes what each request took."""

    def __init__(self, port: int, note: Callable[[str, float], None]):
        self._port = port
        self._note = note
        self._connection = None
        self._sent = 0

    def send(self, path: str, order: int, *, expect, kind: str = "", **headers) -> Answer:
        """Send an order, and check the status of its answer; headers are `key` or `token`."""
        sent = {"Content-Type": "application/json", "Authorization": f"Bearer user{order}"}
        names = {"key": "Idempotency-Key", "token": "Idempotence-Token"}
        sent |= {names[name]: value for name, value in headers.items()}
        method = "GET" if path == "/token" and "token" not in headers else "POST"
        began = time.perf_counter()
        answer = self._exchange(method, path, json.dumps({"order": order}), sent)
        seconds = time.perf_counter() - began
        allowed = (expect,) if isinstance(expect, int) else expect
        told = f"{kind or path}: {answer.status}, not {expect}: {answer.text[:200]}"
        check(answer.status in allowed, told)
        self._note(kind or path.strip("/"), seconds)
        return answer

    def _exchange(self, method, path, body, headers) -> Answer:
        if self._connection is None or self._sent >= REUSE:
            self.close()
            self._connection = http.client.HTTPConnection(HOST, self._port, timeout=TIMEOUT)
            self._connection.connect()
            self._sent = 0
        self._sent += 1
        try:
            self._connection.request(method, path, body, headers)
            return Answer(self._connection.getresponse())
        except (http.client.HTTPException, OSError) as error:
            self.close()
            raise UnexpectedAnswer(f"{path}: no answer: {error!r}") from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def check(condition: bool, text: str) -> None:
    if not condition:
        raise UnexpectedAnswer(text)


def pair(client: Client, order: int) -> None:
    """Send a first request with a key and one to the unguarded twin, in alternating order."""
    key = f'"first {order}"'
    if order % 2:
        client.send("/floor", order, expect=201)
    client.send("/key", order, key=key, expect=201, kind="first")
    if not order % 2:
        client.send("/floor", order, expect=201)


def repeats(client: Client, order: int) -> None:
    """Send a key three times: the second time it is replayed, the third with another body."""
    key = f'"repeated {order}"'
    first = client.send("/key", order, key=key, expect=201)
    again = client.send("/key", order, key=key, expect=201, kind="replay")
    is_replayed = again.headers["Idempotent-Replayed"] == "true"
    check(is_replayed and again.json == first.json, "a repeat was not replayed")
    body = json.dumps({"order": -order})
    headers = {"Idempotency-Key": key, "Authorization": f"Bearer user{order}"}
    other = client._exchange("POST", "/key", body, headers | {"Content-Type": "application/json"})
    check(other.status == 422, f"another body with the same key got {other.status}")


def lock(client: Client, order: int) -> None:
    client.send("/lock", order, expect=201)
    client.send("/lock", order, expect=(409, 201), kind="lock repeat")  # 201 after a stall


def token(client: Client, order: int) -> None:
    issued = client.send("/token", order, expect=200, kind="token issued")
    value = issued.json["token"]
    client.send("/token", order, token=value, expect=201)
    client.send("/token", order, token=value, expect=409, kind="token spent")


def once(client: Client, order: int) -> None:
    """Do an order once, by an operation without a request's key."""
    first = client.send("/once", order, expect=201)
    again = client.send("/once", order, expect=201, kind="once again")
    check(first.json == again.json, "once() ran twice")


def failing(client: Client, order: int) -> None:
    """Fail twice with one key, since a failure releases it; then raise."""
    key = f'"failing {order}"'
    runs = [client.send("/failing", order, key=key, expect=503).json for _ in range(2)]
    check(runs[0] != runs[1], "a failure was remembered")
    client.send("/raising", order, key=key, expect=500)


def stream(client: Client, order: int) -> None:
    answer = client.send("/stream", order, key=f'"stream {order}"', expect=201)
    check(answer.text.count("\n") == 3, "a stream was cut off")


def named(client: Client, order: int) -> None:
    client.send("/named", order, expect=201)


def slow(client: Client, order: int) -> None:
    """Run for longer than two renewals; on a busy machine, its repeat may overtake it."""
    client.send("/slow", order, key=f'"slow {order}"', expect=(201, 409))


def busy(client: Client, order: int) -> None:
    """Repeat the latest slow request while it runs; after a stall it has ended."""
    number = order - SINCE_SLOW
    client.send("/slow", number, key=f'"slow {number}"', expect=(409, 201), kind="busy")


def patient(client: Client, order: int) -> None:
    """Run briefly, with a duplicate that waits."""
    client.send("/patient", order, key=f'"patient {order}"', expect=201)


def waiting(client: Client, order: int) -> None:
    """Repeat the brief request before, and wait for its answer."""
    number = order - 1
    client.send("/patient", number, key=f'"patient {number}"', expect=201, kind="waiting")


ROUND = (
    *(pair, repeats, lock, pair, once, token, pair, patient, waiting, pair, repeats, lock),
    *(pair, once, token, slow, pair, failing, stream, named, pair, repeats, once, pair, busy),
    *(lock, token, pair, named),
)
"""One round of operations."""

SINCE_SLOW = ROUND.index(busy) - ROUND.index(slow)

REQUESTS = {pair: 2, repeats: 3, lock: 2, token: 3, once: 2, failing: 3}
"""Requests of an operation, where there are several."""

PER_ROUND = sum(REQUESTS.get(operation, 1) for operation in ROUND)
