"""The example on real servers, and a client."""

import os
import sys
import time
from urllib.parse import urlencode, urlsplit

from helpers.repository import ROOT
from helpers.servers.processes import HOST, Gunicorn, ServerProcess, free_port, send

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


class FlaskRun(ServerProcess):
    """The example under `flask run`, with the packages of the tests or by another command.

    Its database is in a directory of its own.
    """

    COMMAND = (sys.executable, "-m", "flask", "--app", "example_app", "run")

    def __init__(self, *, env=os.environ, command=COMMAND):
        self._environment, self._command = env, command

    def start(self):
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        command = [*self._command, "--port", str(self.port)]
        env = {**self._environment, "EXAMPLE_DATABASE": f"{self.directory}/shop.sqlite3"}
        self._launch(command, self._answers, 60, cwd=ROOT, env=env)


def gunicorn(redis_url, folder, **options):
    environment = {
        "IDEMPOTENCE_STORAGE_URI": redis_url,
        "EXAMPLE_DATABASE": str(folder / "shop.sqlite3"),
    }
    # One thread: the plainest workers, each of which does one thing at a time.
    options = {"worker_class": "sync", "threads": 1, "cwd": ROOT, **options}
    return Gunicorn("example_app:create_app()", env=environment, **options)


def ask(url, form=None, *, data=None, headers=()):
    data = data if form is None else urlencode(form)
    if data is None:
        method, sent = "GET", {}
    else:
        method, sent = "POST", {"Content-Type": "application/x-www-form-urlencoded"}
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return send(parts.port, path or "/", method, sent | dict(headers), data, timeout=60)


def run_lab(url, mode, requests, *, delay=200, failure="none", only_first=True):
    form = {"mode": mode, "requests": requests, "delay": delay, "failure": failure}
    if only_first:
        form["only_first"] = "on"
    deadline = time.monotonic() + 60
    while (started := ask(url + "/lab/runs", form)).status == 409:  # the run before was the same
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert started.status == 202, started.text
    while not (told := ask(url + started.json["events"]).json)["is_over"]:
        assert time.monotonic() < deadline, told
        time.sleep(0.1)
    return told
