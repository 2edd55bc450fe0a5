"""The application that each WSGI server of `helpers.servers.wsgi` serves; it imports no test.

Its effects are counted in a Redis database of their own, outside the library.
"""

import os
import threading
import time

import redis
from flask import Flask, Response, request, stream_with_context

from flask_idempotence import Idempotence, idempotent, no_repeat_submit, one_time_token

app = Flask("served")
app.config.update(
    SECRET_KEY="a secret for the tests",
    IDEMPOTENCE_STORAGE_URI=os.environ["STORE"],
    IDEMPOTENCE_LEASE=1,
)
idempotence = Idempotence(app)
effects = redis.Redis.from_url(os.environ["EFFECTS"])


def take_effect():
    effects.incr(request.args["as"])
    time.sleep(float(request.args.get("sleep", "0.3")))
    return {"pid": os.getpid()}, 201


@app.get("/")
def index():
    return {"pid": os.getpid()}


@app.post("/later")
def later():
    name = request.args["as"]

    def work():
        time.sleep(0.5)
        effects.incr(name)

    threading.Thread(target=work, daemon=True).start()
    return {}, 201


app.post("/lock")(no_repeat_submit(20)(take_effect))
app.add_url_rule("/token-view", "spend", one_time_token()(take_effect), methods=["POST"])
app.add_url_rule("/key", "key", idempotent(required=True)(take_effect), methods=["POST"])


@app.post("/stream")
@no_repeat_submit(1)
def stream():
    effects.incr(request.args["as"])
    chunks = int(request.args["chunks"])

    def body():
        for _ in range(chunks):
            yield b"chunk\n"
            time.sleep(0.1)

    return Response(body(), 201)


def upload():
    size = len(request.get_data())
    effects.incr(request.args["as"])
    return {"size": size}, 201


UNREAD = {
    "key": idempotent(compare=False),
    "token": one_time_token(),
    "lock": no_repeat_submit(20, key=lambda: request.args["as"]),
}
for name, guard in UNREAD.items():
    app.add_url_rule(f"/upload/{name}", f"upload_{name}", guard(upload), methods=["POST"])


@app.post("/rows")
@idempotent(required=True)
def rows():
    """Do the work, row by row, while the response is sent."""

    def body():
        for _ in range(int(request.args["rows"])):
            effects.incr(request.args["as"])
            yield b"row\n"
            time.sleep(0.1)

    return Response(stream_with_context(body()), 201)


if os.environ.get("USE_AT_IMPORT"):  # before a server that loads it once forks its workers
    with app.app_context(), idempotence.once("boot", os.environ["USE_AT_IMPORT"]):
        effects.incr("boot")
        time.sleep(0.5)  # the keeper works
    app.test_client().get("/token")

asgi = None
if os.environ.get("ASGI") == "asgiref":
    from asgiref.wsgi import WsgiToAsgi

    asgi = WsgiToAsgi(app)
elif os.environ.get("ASGI") == "a2wsgi":
    from a2wsgi import WSGIMiddleware

    asgi = WSGIMiddleware(app)
