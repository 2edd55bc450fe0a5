"""The application under a long load: a view behind each kind of guard, and an unguarded twin.

LEAKS in its environment are names of leaks that are planted to test whether a run finds them.
"""

import os
import socket
import threading
import time
import uuid
from urllib.parse import urlsplit

from flask import Response, request
from helpers.applications.plain import app, idempotence

from flask_idempotence import idempotent, no_repeat_submit, one_time_token

app.register_error_handler(ZeroDivisionError, lambda error: ({}, 500))


def view():
    asked = request.json
    time.sleep(asked.get("work", 0))
    return {"run": uuid.uuid4().hex, "order": asked["order"]}, asked.get("status", 201)


def raising_view():
    return 1 / 0


def streaming_view():
    order = request.json["order"]
    return Response((f"{part} of {order}\n" for part in range(3)), 201)


def once_view():
    ttl = app.config["IDEMPOTENCE_KEY_TTL"]
    with idempotence.once("order", request.json["order"], ttl=ttl) as once:
        if once.first:
            once.result = uuid.uuid4().hex
    return {"run": once.result}, 201


def locking_view():
    with idempotence.lock(f"account {request.json['order'] % 8}", wait=5):
        return view()


VIEWS = {
    "floor": view,
    "key": idempotent()(view),
    "patient": idempotent(wait=5)(view),
    "raising": idempotent()(raising_view),
    "stream": idempotent()(streaming_view),
    "lock": no_repeat_submit(view),
    "token": one_time_token()(view),
    "once": once_view,
    "named": locking_view,
}
for name, guarded in VIEWS.items():
    app.add_url_rule(f"/{name}", name, guarded, methods=["POST"])


kept = []


def leak_threads():
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def leak_connections():
    place = urlsplit(app.config["IDEMPOTENCE_STORAGE_URI"])
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
