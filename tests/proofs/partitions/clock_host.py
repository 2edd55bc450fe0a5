"""An application in a process of its own, whose wall clock may be wrong."""

import json
import os
import subprocess
import sys
import time

from flask import Flask, request
from helpers.repository import ROOT

from flask_idempotence import Idempotence, idempotent, no_repeat_submit, one_time_token

from .clock import wrong_clock


class ClockHost:
    """A process that answers requests, whose wall clock is ahead by some seconds, or behind."""

    def __init__(self, directory, ahead, **settings):
        directory.mkdir()
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        environment |= wrong_clock(directory, ahead) if ahead else {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "proofs.partitions.clock_host", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def close(self):
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def begin(self, path, **headers):
        print(json.dumps([path, headers]), file=self._process.stdin, flush=True)

    def end(self):
        """Return the answer: status, slug of a refusal or text, headers."""
        return json.loads(self._process.stdout.readline())

    def post(self, path, **headers):
        self.begin(path, **headers)
        return self.end()

    def now(self):
        return float(self.post("/now")[1])


def make_app(settings):
    app = Flask("clocks")
    app.config.update(SECRET_KEY="a secret for the tests", **settings)
    idempotence = Idempotence(app)

    def run():
        time.sleep(float(request.headers.get("Takes", 0)))
        status = int(request.headers.get("Status", 200))
        return f"ran at {os.getpid()}", status

    guards = {
        "lock": no_repeat_submit(interval=20),
        "key": idempotent(required=True),
        "short": idempotent(required=True, ttl=600),
        "token": one_time_token,
        "again": one_time_token(restore_on_failure=True),
        "token-key": idempotent(key="Idempotence-Token", required=True),
        "short-token-key": idempotent(key="Idempotence-Token", required=True, ttl=600),
    }
    for name, guard in guards.items():
        app.add_url_rule(f"/{name}", name, guard(run), methods=["POST"])
    app.post("/issue")(idempotence.issue_token)
    app.post("/now")(lambda: str(time.time()))
    return app


def main():
    client = make_app(json.loads(sys.argv[1])).test_client()
    for line in sys.stdin:
        path, headers = json.loads(line)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        response = client.post(path, headers=named)
        slug = response.headers.get("Idempotence-Refusal", response.text)
        answer = [response.status_code, slug, dict(response.headers)]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
