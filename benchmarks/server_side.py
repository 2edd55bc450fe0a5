"""What the extension costs the Redis server: round trips, and memory."""

import redis
from flask import Flask
from measuring import Server
from variants import HEADERS, INTERVAL, environ

from flask_idempotence import Idempotence, no_repeat_submit, one_time_token

TOKEN_URL = "/token"


class Shop:
    """A guarded application in front of an empty server."""

    def __init__(self, url: str):
        self.app = app = Flask("shop")
        app.config.update(SECRET_KEY="benchmark-secret", IDEMPOTENCE_STORAGE_URI=url)
        Idempotence(app)
        self._server = Server()

        @app.post("/orders", endpoint="create_order")
        @no_repeat_submit(interval=INTERVAL)
        def create_order():
            return {"status": "created"}

        @app.post("/payments", endpoint="pay")
        @one_time_token()
        def pay():
            return {"status": "paid"}

    def order(self, body: bytes) -> str:
        return self._send(environ(body=body))

    def pay(self, token: str) -> str:
        named = {**HEADERS, "HTTP_IDEMPOTENCE_TOKEN": token}
        return self._send({**environ(named), "PATH_INFO": "/payments"})

    def token(self, purpose: str | None = None) -> str:
        asked = {"REQUEST_METHOD": "GET", "PATH_INFO": TOKEN_URL}
        asked |= {"QUERY_STRING": f"purpose={purpose}"} if purpose else {}
        self._send({**environ(body=b""), **asked})
        return self.told["token"]

    def _send(self, environment: dict) -> str:
        body = self._server.send(self.app, environment)
        self.told = self.app.json.loads(body)
        return self._server.status[:3]


def round_trips(url: str) -> list[dict]:
    """Count the commands that come over connections, by watching the server with MONITOR.

    What a script calls inside the server is no round trip and is not counted.
    """
    shop = Shop(url)
    tokens = [shop.token()]  # also connects and loads what there is to load
    shop.order(b'{"order": 0}')
    shop.pay(shop.token())
    steps = {
        "lock, successful": lambda: shop.order(b'{"order": 1}'),
        "lock, rejected": lambda: shop.order(b'{"order": 1}'),
        "token, issued": lambda: tokens.append(shop.token()) or "200",
        "token, spent": lambda: shop.pay(tokens[-1]),
    }
    expected = {"lock, rejected": "409"}
    counts = []
    with redis.Redis.from_url(url) as marker, redis.Redis.from_url(url) as watcher:
        marker.ping()
        with watcher.monitor() as monitor:
            for name, step in steps.items():
                status = step()
                if status != expected.get(name, "200"):
                    raise RuntimeError(f"{name}: status {status}")
                marker.echo(name)
                commands = list(_until(monitor, name))
                counts.append({"step": name, "round_trips": len(commands), "commands": commands})
    return counts


def _until(monitor, name: str):
    while True:
        told = monitor.next_command()
        if told["client_type"] == "lua":
            continue
        if told["command"] == f"ECHO {name}":
            return
        yield told["command"].split(" ", 1)[0]


def memory(url: str) -> list[dict]:
    """Return the bytes of one live lock and one live token, by MEMORY USAGE."""
    shop = Shop(url)
    with redis.Redis.from_url(url) as client:
        client.flushall()
        used = [_used(client, "lock", lambda: shop.order(b'{"order": 1}'))]
        used.append(_used(client, "token", shop.token))
        used.append(_used(client, "token with a purpose", lambda: shop.token("create_order")))
        client.flushall()
    return used


def _used(client: redis.Redis, name: str, make) -> dict:
    before = set(client.keys())
    make()
    (key,) = set(client.keys()) - before
    return {"what": name, "bytes": client.memory_usage(key, samples=0), "key": key.decode()}
