"""The application under a long load: a view behind each kind of guard, and an unguarded twin.

Its settings come from the environment: STORE, LEASE, TTL, and LEAKS, names of leaks that are
planted to test whether a run finds them.
"""

import os
import socket
import threading
import time
import uuid
from urllib.parse import urlsplit

from flask import Flask, Response, request

from flask_idempotence import Idempotence, idempotent, no_repeat_submit, one_time_token

LEASE, TTL = float(os.environ["LEASE"]), float(os.environ["TTL"])
SLOW = 0.8 * LEASE
"""Seconds of a view whose lease is renewed twice."""

BRIEF = 0.4
"""Seconds of a view for whose end its duplicate waits."""

app = Flask("endurance")
app.config.update(
    SECRET_KEY="a secret for the tests",
    IDEMPOTENCE_STORAGE_URI=os.environ["STORE"],
    IDEMPOTENCE_STORAGE_OPTIONS={"deadline": 5},  # a machine that stalls is no outage
    IDEMPOTENCE_LEASE=LEASE,
    IDEMPOTENCE_KEY_TTL=TTL,
    IDEMPOTENCE_KEY_REQUIRED=True,
    IDEMPOTENCE_TOKEN_TTL=TTL,
)
idempotence = Idempotence(app)


class BrokenView(Exception):
    """Raised by a view."""


@app.errorhandler(BrokenView)
def broken(error):
    return {"run": ""}, 500


@app.get("/")
def index():
    return {"pid": os.getpid()}


def view():
    return {"run": uuid.uuid4().hex, "order": request.json["order"]}, 201


def slow_view():
    time.sleep(SLOW)
    return view()


def brief_view():
    time.sleep(BRIEF)
    return view()


def failing_view():
    return view()[0], 503


def raising_view():
    raise BrokenView


def streaming_view():
    order = request.json["order"]
    return Response((f"{part} of {order}\n" for part in range(3)), 201)


def once_view():
    with idempotence.once("order", request.json["order"], ttl=TTL) as once:
        if once.first:
            once.result = uuid.uuid4().hex
    return {"run": once.result}, 201


def locking_view():
    with idempotence.lock(f"account {request.json['order'] % 8}", wait=5):
        return view()


VIEWS = {
    "floor": view,
    "key": idempotent()(view),
    "slow": idempotent()(slow_view),
    "patient": idempotent(wait=5)(brief_view),
    "failing": idempotent()(failing_view),
    "raising": idempotent()(raising_view),
    "stream": idempotent()(streaming_view),
    "lock": no_repeat_submit(LEASE)(view),
    "token": one_time_token()(view),
    "once": once_view,
    "named": locking_view,
}
for name, guarded in VIEWS.items():
    app.add_url_rule(f"/{name}", name, guarded, methods=["POST"])


kept = []
"""What a planted leak keeps."""


def leak_threads():
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def leak_connections():
    place = urlsplit(os.environ["STORE"])
    kept.append(socket.create_connection((place.hostname, place.port)))


def leak_keys():
    with idempotence.once("leak", uuid.uuid4().hex):
        pass


def leak_time():
    kept.append(None)
    if request.endpoint != "floor":
        time.sleep(len(kept) * 2e-5)


LEAKS = {
    "memory": lambda: kept.append(bytes(20_000)),
    "descriptors": lambda: kept.append(os.dup(1)),
    "threads": leak_threads,
    "connections": leak_connections,
    "keys": leak_keys,
    "time": leak_time,
}
for leak in os.environ.get("LEAKS", "").split():
    app.before_request(LEAKS[leak])
