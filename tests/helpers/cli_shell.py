"""Commands of an application, run as a user runs them: as processes, in a pipe or a terminal."""

import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from helpers.servers import processes

APP = """
import os
from flask import Flask
from flask_idempotence import Idempotence, idempotent, no_repeat_submit, one_time_token

app = Flask("shop")
app.config["SECRET_KEY"] = "a secret for the tests"
app.config.from_prefixed_env()
Idempotence(app)

def pid():
    return {"pid": os.getpid()}

app.get("/")(pid)
for path, endpoint, guard in (
    ("/orders", "create_order", no_repeat_submit(60)),
    ("/payments", "pay", idempotent),
    ("/checkout", "checkout", one_time_token()),
):
    app.add_url_rule(path, endpoint, guard(pid), methods=["POST"])
"""


def invoke(app, *arguments, **more):
    return app.test_cli_runner().invoke(args=["idempotence", *arguments], **more)


def rows(done):
    """Return the cells of what a command has printed in a pipe."""
    assert done.exit_code == 0, done.output
    return [line.split("\t") for line in done.stdout.splitlines()]


@dataclass
class Ran:
    code: int
    out: str
    err: str = ""


class Shell:
    def __init__(self, directory, *, app=APP, **environment):
        self.directory = directory
        (directory / "shop.py").write_text(app)
        unset = ("FLASK_", "GUNICORN_", "UWSGI_", "WEB_", "NO_COLOR")
        kept = {
            name: value
            for name, value in processes.environment(TERM="xterm", COLUMNS="120").items()
            if not name.startswith(unset)
        }
        self.environment = {**kept, **environment}

    def command(self, arguments):
        flask = str(Path(sys.executable).with_name("flask"))
        return [flask, "--app", "shop", "idempotence", *arguments]

    def pipe(self, *arguments, typed="", **environment):
        place = {"cwd": self.directory, "env": self.environment | environment}
        done = processes.run_to_end(self.command(arguments), **place, input=typed)
        return Ran(done.returncode, done.stdout, done.stderr)

    def terminal(self, *arguments, typed="", **environment):
        """Run a command in a terminal, where output and error output are one."""
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            self.command(arguments),
            cwd=self.directory,
            env=self.environment | environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        ) as process:
            os.close(theirs)
            out = b""
            while chunk := _read(ours):
                out += chunk
                if typed and out.endswith(b": "):  # it asks
                    os.write(ours, typed.encode())
                    typed = ""
            code = process.wait(60)
        os.close(ours)
        return Ran(code, out.decode().replace("\r\n", "\n"))


def _read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux: the other side is closed
        return b""
