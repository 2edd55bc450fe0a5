"""WSGI servers that others wrote, each with one application, two workers where it has them."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest

from helpers.servers.processes import HOST, ServerProcess, environment, free_port, needed

SCRIPT = Path(__file__).parents[1] / "applications" / "served_app.py"
APP, ASGI_APP = (f"helpers.applications.served_app:{name}" for name in ("app", "asgi"))

GUNICORN = "gunicorn --bind {address} --workers 2 --no-control-socket"
UWSGI = "uwsgi --http-socket {address} --master --processes 2 --module {app} --die-on-term"
MOD_WSGI = (
    "mod_wsgi-express start-server {script} --callable-object app --host {host} --port {port} "
    "--processes 2 --threads 16 --log-to-terminal --server-root {directory}/apache"
)

COMMANDS = {
    "gunicorn sync": f"{GUNICORN} {{app}}",
    "gunicorn gthread": f"{GUNICORN} --threads 16 {{app}}",
    "gunicorn gevent": f"{GUNICORN} --worker-class gevent {{app}}",
    "waitress": "waitress-serve --listen {address} --threads 16 {app}",
    "cheroot": "cheroot --bind {address} --threads 16 {app}",
    "uwsgi": f"{UWSGI} --enable-threads",
    "uwsgi threads": f"{UWSGI} --threads 16",
    "uwsgi lazy": f"{UWSGI} --enable-threads --lazy-apps",
    "uwsgi without threads": UWSGI,
    "granian": "granian --interface wsgi --host {host} --port {port} --workers 2 "
    "--blocking-threads 16 {app}",
    "uvicorn asgiref": "uvicorn --host {host} --port {port} --workers 2 {asgi}",
    "uvicorn a2wsgi": "uvicorn --host {host} --port {port} --workers 2 {asgi}",
    "hypercorn asgiref": "hypercorn --bind {address} --workers 2 {asgi}",
    "hypercorn a2wsgi": "hypercorn --bind {address} --workers 2 {asgi}",
    "mod_wsgi": MOD_WSGI,
}

# Apache refuses to serve as root: another user, who may read all the same.
AS_ANOTHER = "unshare --user --map-user=1000 --map-group=1000"


class WsgiServer(ServerProcess):
    def __init__(self, name, redis_server, **variables):
        database = redis_server.url.removesuffix("/0")
        self.name = name
        self.effects = redis_server.client(decode_responses=True, db=3)
        own = {"EFFECTS": f"{database}/3", "ASGI": name.partition(" ")[2], **variables}
        self._environment = environment(f"{database}/2", lease=1, **own)

    def start(self):
        self.port = free_port()
        filled = {"host": HOST, "port": self.port, "address": f"{HOST}:{self.port}"}
        filled |= {"app": APP, "asgi": ASGI_APP, "script": SCRIPT, "directory": self.directory}
        program, *words = COMMANDS[self.name].format(**filled).split()
        command = [program_of(program), *words]
        if program == "mod_wsgi-express" and os.geteuid() == 0:
            if subprocess.run([*AS_ANOTHER.split(), "true"], check=False).returncode:
                pytest.skip("mod_wsgi does not run as root, and there are no user namespaces here")
            command = [*AS_ANOTHER.split(), *command]
        self._launch(command, self._answers, 60, cwd=self.directory, env=self._environment)

    def count(self, name):
        return int(self.effects.get(name) or 0)

    def send(self, method, path, headers=(), *, body=None, **arguments):
        return self.ask(address_of(path, arguments), method, headers, body)

    def post(self, path, headers=(), **arguments):
        return self.send("POST", path, headers, **arguments)

    def abandon(self, path, headers=(), *, after=0.3, sent="", length=0, **arguments):
        """Send a POST request, and close its connection after so many seconds.

        `sent` is the first part of a body of a length, or in chunks without one.
        """
        lines = [f"POST {address_of(path, arguments)} HTTP/1.1", f"Host: {HOST}:{self.port}"]
        lines += [f"{name}: {value}" for name, value in dict(headers).items()]
        chunked = sent and not length
        lines.append("Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}")
        lines += ["", sent]
        with socket.create_connection((HOST, self.port)) as connection:
            connection.sendall("\r\n".join(lines).encode())
            time.sleep(after)

    def token(self):
        return json.loads(self.send("GET", "/token").text)["token"]


def uwsgi_needs_threads_enabled():
    """Whether the installed uWSGI keeps threads from running by default."""
    told = subprocess.run([program_of("uwsgi"), "--help"], capture_output=True, check=False)
    return b"stub option" not in told.stdout + told.stderr


def address_of(path, arguments):
    # `as` is a keyword of Python.
    return f"{path}?{urlencode({name.rstrip('_'): value for name, value in arguments.items()})}"


def program_of(name):
    beside = shutil.which(name, path=Path(sys.executable).parent)
    return needed(beside or shutil.which(name), f"{name}: not installed")
