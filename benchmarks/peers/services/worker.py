"""Times one service in its own process, on demand: a line of JSON in, a line of JSON out.

It calls the application as its server would, and needs nothing but the standard library. Each
block sends the guarded and the unguarded application the same requests in turn.
"""

import asyncio
import gc
import importlib
import io
import json
import sys
import time
import uuid
from contextlib import suppress

BODY = json.dumps({"amount": 12}).encode()
PATH = "/payments"


def request_headers(header, key):
    return {
        "Authorization": "Bearer anna",
        "Content-Type": "application/json",
        "Content-Length": str(len(BODY)),
        header: key,
    }


class Wsgi:
    def __init__(self, app):
        self._app = app
        self._status = ""

    async def send(self, headers):
        environ = {
            "REQUEST_METHOD": "POST",
            "SCRIPT_NAME": "",
            "PATH_INFO": PATH,
            "QUERY_STRING": "",
            "SERVER_NAME": "shop.example",
            "SERVER_PORT": "443",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "192.0.2.17",
            "HTTP_HOST": "shop.example",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "https",
            "wsgi.input": io.BytesIO(BODY),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": True,
            "wsgi.run_once": False,
        }
        for name, value in headers.items():
            variable = name.upper().replace("-", "_")
            environ[variable if name.startswith("Content") else f"HTTP_{variable}"] = value
        start = time.perf_counter_ns()
        chunks = self._app(environ, self._start_response)
        body = b"".join(chunks)
        with suppress(AttributeError):
            chunks.close()
        took = time.perf_counter_ns() - start
        return took, int(self._status[:3]), body

    def _start_response(self, status, *_):
        self._status = status


class Asgi:
    def __init__(self, app):
        self._app = app

    async def send(self, headers):
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "https",
            "path": PATH,
            "raw_path": PATH.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [
                (name.lower().encode(), value.encode()) for name, value in headers.items()
            ],
            "client": ("192.0.2.17", 50000),
            "server": ("shop.example", 443),
        }
        incoming = [{"type": "http.request", "body": BODY, "more_body": False}]
        sent = []

        async def receive():
            if incoming:
                return incoming.pop()
            return await asyncio.get_running_loop().create_future()  # nobody disconnects

        async def send(message):
            sent.append(message)

        start = time.perf_counter_ns()
        await self._app(scope, receive, send)
        took = time.perf_counter_ns() - start
        return took, sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:])


class Worker:
    def __init__(self, header, bare, guarded, statements):
        self._header = header
        self._callers = bare, guarded
        self._statements = statements
        self._last = None

    async def do(self, what, count):
        counted = self._statements()
        if what == "fill":
            for _ in range(count):
                headers = self._new()
                self._last = headers, (await self._first(self._callers[1], headers))[1]
            return {"statements": self._statements() - counted}
        if what == "again":
            await self._replay(self._callers[1], *self._last)
            return {"statements": self._statements() - counted}
        keys = [self._new() for _ in range(count)]
        runs = [None] * count
        if what == "replay":
            runs = [(await self._first(self._callers[1], headers))[1] for headers in keys]
            counted = self._statements()
        bare, guarded = await self._block(keys, runs)
        return {"bare": bare, "guarded": guarded, "statements": self._statements() - counted}

    async def _block(self, keys, runs):
        times = [], []
        gc.collect()
        gc.disable()
        try:
            for number, (headers, run) in enumerate(zip(keys, runs)):  # noqa: B905 - old Pythons
                for which in (0, 1) if number % 2 else (1, 0):
                    caller = self._callers[which]
                    if which and run:
                        took = await self._replay(caller, headers, run)
                    else:
                        took, _ = await self._first(caller, headers)
                    times[which].append(took)
        finally:
            gc.enable()
        return times

    async def _first(self, caller, headers):
        took, status, body = await caller.send(headers)
        if status != 201:
            raise RuntimeError(f"a first request was answered with {status}: {body!r}")
        return took, json.loads(body)["run"]

    async def _replay(self, caller, headers, run):
        took, status, body = await caller.send(headers)
        if json.loads(body).get("run") != run:
            raise RuntimeError(f"a replay was answered with {status}")
        return took

    def _new(self):
        return request_headers(self._header, str(uuid.uuid4()))


async def main(module, interface, header):
    service = importlib.import_module(module)
    caller = Asgi if interface == "asgi" else Wsgi
    if hasattr(service, "startup"):
        await service.startup()
    statements = service.count_statements() if hasattr(service, "count_statements") else int
    bare, guarded = (caller(service.make(guarded=guarded)) for guarded in (False, True))
    worker = Worker(header, bare, guarded, statements)
    for line in sys.stdin:
        what, count = line.split()
        try:
            told = await worker.do(what, int(count))
        except Exception as error:  # noqa: BLE001 - it is told, and the next line comes
            told = {"error": str(error)}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
