"""An application on loopback whose first response fails on purpose, for clients of others."""

import io
import json
import socket
import threading
import time
from dataclasses import dataclass

from flask import Flask, request
from werkzeug.test import run_wsgi_app
from werkzeug.wrappers import Response

from flask_idempotence import Idempotence, MemoryStore, Refusal, idempotent
from helpers.callers.http_callers import QuietHandler, serving

RETRY_AFTER = 2
"""Seconds, longer than the first pause of each client."""

SORRY = "<html><body>The page of a proxy.</body></html>"


@dataclass
class Attempt:
    """A request as the server has seen it; `status` is None where the client got no response."""

    at: float
    status: int | None = None


class OfOneRequest(QuietHandler):
    protocol_version = "HTTP/1.0"


class FaultyServer:
    """Serve an application; the first POST meets the fault.

    ``lost``: the connection is closed after the effect. ``500``: a proxy replaces the response
    after the effect. ``503``: a proxy refuses with `Retry-After` before the application runs.
    ``running``: the network has doubled the request, so that the client meets its own first
    attempt in progress; it ends once a repeat was answered, or has waited.
    """

    def __init__(self, app, fault=None):
        self.app, self.fault = app, fault
        self.attempts, self.responses = [], []
        self.started, self.may_end = threading.Event(), threading.Event()
        self._threads = []

    def __enter__(self):
        self._serving = serving(self._answer, OfOneRequest)
        self.url = self._serving.__enter__()
        return self

    def __exit__(self, *_):
        self.may_end.set()
        for thread in [*self._threads]:
            thread.join(10)
        self._serving.__exit__(None, None, None)

    def hold(self):
        """Make the first run of a view last until a repeat was answered."""
        if self.fault == "running" and not self.started.is_set():
            self.started.set()
            self.may_end.wait(10)

    @property
    def statuses(self):
        return [attempt.status for attempt in self.attempts]

    @property
    def seconds(self):
        return self.attempts[-1].at - self.attempts[0].at

    def _answer(self, environ, start_response):
        if "/oauth2/" in environ["PATH_INFO"]:  # PayPal's client logs in
            token = {"access_token": "t", "token_type": "Bearer", "expires_in": 3600}
            return Response(json.dumps(token), mimetype="application/json")(
                environ, start_response
            )
        sent = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        attempt = Attempt(time.monotonic())
        self.attempts.append(attempt)
        response = self._respond(environ, sent, is_first=len(self.attempts) == 1)
        if response is None:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        attempt.status = response.status_code
        return response(environ, start_response)

    def _respond(self, environ, sent, *, is_first):
        if is_first and self.fault == "503":
            return Response(SORRY, 503, {"Retry-After": str(RETRY_AFTER)})
        if self.fault == "running":
            return self._beside_a_running_one(environ, sent, is_first)
        response = self._run(environ, sent)
        if is_first and self.fault == "500":
            return Response(SORRY, 500)
        return None if is_first and self.fault == "lost" else response

    def _beside_a_running_one(self, environ, sent, is_first):
        if is_first:
            self._in_thread(environ, sent, [])
            assert self.started.wait(10)
        answers = []
        repeat = self._in_thread(environ, sent, answers)
        repeat.join(0.3)  # one that waits for the first waits for as long
        self.may_end.set()
        for thread in [*self._threads]:
            thread.join(10)
        return answers[0]

    def _in_thread(self, environ, sent, answers):
        thread = threading.Thread(target=lambda: answers.append(self._run(environ, sent)))
        self._threads.append(thread)
        thread.start()
        return thread

    def _run(self, environ, sent):
        inner = {**environ, "wsgi.input": io.BytesIO(sent)}
        body, status, headers = run_wsgi_app(self.app, inner, buffered=True)
        response = Response(b"".join(body), status, headers)
        self.responses.append(response)
        return response


RESULT = {
    "id": "made-1",
    "object": "chat.completion",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "choices": [],
    "created": 1,
    "payment": {"id": "made-1"},
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
"""What the SDKs read for a result, those of AWS excepted."""

EC2_RESULT = """<RunInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
<reservationId>made-1</reservationId></RunInstancesResponse>"""


class Shop(FaultyServer):
    """A guarded view under every path, which counts its effects."""

    def __init__(self, fault=None, **options):
        app = Flask("shop")
        app.config["SECRET_KEY"] = "a secret for the tests"
        Idempotence(app, store=MemoryStore())
        super().__init__(app, fault)
        self.effects, self.keys = 0, []

        @app.post("/", defaults={"path": ""})
        @app.post("/<path:path>")
        @idempotent(**{"key": self._key, **options})
        def pay(path):
            self.effects += 1
            self.hold()
            return RESULT if path else EC2_RESULT

        @app.errorhandler(Refusal)
        def refuse(refusal):
            is_ec2 = request.path == "/"
            return (ec2_error(refusal), refusal.code) if is_ec2 else refusal

    def _key(self):
        """Read the key from where each client sends it; docs/how-to/call-an-api.md has all."""
        body = request.get_json(silent=True) or {}
        places = {
            "Idempotency-Key": request.headers.get("Idempotency-Key"),
            "PayPal-Request-Id": request.headers.get("PayPal-Request-Id"),
            "idempotency_key": body.get("idempotency_key"),
            "ClientToken": request.form.get("ClientToken"),
        }
        found = [(place, key) for place, key in places.items() if key]
        self.keys += found
        return found[0][1] if found else None


def ec2_error(refusal):
    error = f"<Code>{refusal.slug}</Code><Message>{refusal.description}</Message>"
    return f"<Response><Errors><Error>{error}</Error></Errors></Response>"
