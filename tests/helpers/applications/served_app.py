"""The application that Gunicorn and each WSGI server serve; it imports no test.

Its effects are counted in a Redis database of their own, outside the library.
"""

import os
import threading
import time

import redis
from flask import Response, request, stream_with_context

from flask_idempotence import idempotent, lease_lost, no_repeat_submit, one_time_token
from helpers.applications.plain import app, idempotence

effects = redis.Redis.from_url(os.environ["EFFECTS"], decode_responses=True)
lease_lost.connect(lambda app, during, **told: effects.rpush("lost", during), app, weak=False)


def take_effect():
    """Have an effect, and take as long as the plan of this run says, or end by it."""
    name = request.args["as"]
    run = effects.incr(name)
    effects.set(f"pid of {name} {run}", os.getpid())
    plan = effects.lindex(f"plans of {name}", run - 1) or request.args.get("sleep", "0.3")
    if plan == "exit":
        raise SystemExit("told to")
    gives_up = time.monotonic() + 60
    while plan == "gate" and not effects.exists(f"gate of {name}"):
        assert time.monotonic() < gives_up
        time.sleep(0.01)
    if plan != "gate":
        time.sleep(float(plan))
    return {"run": run, "pid": os.getpid()}, 201, {"X-Run": str(run)}


@app.post("/later")
def later():
    name = request.args["as"]

    def work():
        time.sleep(0.5)
        effects.incr(name)

    threading.Thread(target=work, daemon=True).start()
    return {}, 201


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


def rows():

    def body():
        for _ in range(int(request.args["rows"])):
            effects.incr(request.args["as"])
            yield b"row\n"
            time.sleep(0.1)

    return Response(stream_with_context(body()), 201)


for path, guarded in {
    "lock": no_repeat_submit(20)(take_effect),
    "token-view": one_time_token()(take_effect),
    "key": idempotent(required=True)(take_effect),
    "patient": idempotent(wait=10)(take_effect),
    "once": idempotent(guarantee="at-most-once")(take_effect),
    "rows": idempotent(required=True)(rows),
    "upload/key": idempotent(compare=False)(upload),
    "upload/token": one_time_token()(upload),
    "upload/lock": no_repeat_submit(20, key=lambda: request.args["as"])(upload),
}.items():
    app.add_url_rule(f"/{path}", path, guarded, methods=["POST"])


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
