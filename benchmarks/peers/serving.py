"""The servers: each peer's service under what its framework is served with."""

import http.client
import json
import os
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from helpers.servers.postgres import PostgresServer
from helpers.servers.processes import HOST, RedisServer, ServerProcess, free_port
from measuring.machine import machine

from .catalogue import Peer
from .environments import SERVICES, Environments

WORKERS = 2
THREADS = 16
TIMEOUT = 60


class Service(ServerProcess):
    """A peer's service on two worker processes."""

    def __init__(self, peer: Peer, python: Path, environ: dict[str, str]):
        self._peer = peer
        self._python = python
        self._environ = environ

    def start(self) -> None:
        self.port = free_port()
        self._launch(self._command(), self._ready, 60, env=self._environ, cwd=SERVICES)

    def _command(self) -> list[str]:
        module, python = self._peer.service, str(self._python)
        if self._peer.asgi:
            command = [python, "-m", "uvicorn", "--factory", f"{module}:guarded"]
            command += [f"--port={self.port}", f"--workers={WORKERS}", "--no-access-log"]
            return [*command, "--timeout-worker-healthcheck=60"]  # a busy machine is slow to start
        command = [python, "-m", "gunicorn", f"{module}:guarded()", f"--bind={HOST}:{self.port}"]
        command += [f"--workers={WORKERS}", f"--threads={THREADS}", "--worker-class=gthread"]
        return [*command, "--config=gunicorn_settings.py"]

    def _ready(self) -> bool:
        words = "Application startup complete" if self._peer.asgi else "worker ready"
        return self.log.count(words) >= WORKERS

    def send(self, method: str, path: str, headers: dict, body: bytes) -> "Reply":
        connection = http.client.HTTPConnection(HOST, self.port, timeout=TIMEOUT)
        with closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Reply.of(response.status, response.getheaders(), response.read())


@dataclass(frozen=True)
class Reply:
    """What matters of an answer."""

    status: int
    user: str | None = None
    amount: int | None = None
    run: int | None = None
    cookie: bool = False
    kind: str = ""
    """What comes after the last colon of a problem's type."""

    @classmethod
    def of(cls, status: int, headers: list[tuple[str, str]], body: bytes) -> "Reply":
        """Read an answer; one that is no JSON object tells its status only."""
        cookie = any(name.lower() == "set-cookie" for name, _ in headers)
        try:
            told = json.loads(body)
        except ValueError:
            return cls(status, cookie=cookie)
        if not isinstance(told, dict):
            return cls(status, cookie=cookie)
        kind = str(told.get("type", "")).rpartition(":")[2]
        return cls(status, *map(told.get, ("user", "amount", "run")), cookie, kind)


@dataclass
class Stage:
    """What all the services stand on."""

    environments: Environments
    redis: RedisServer
    postgres: PostgresServer | None = None

    def environ(self, peer: Peer, **more: str) -> dict[str, str]:
        told = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "PEERS_REDIS": self.redis.url,
            "PEERS_VARIANT": peer.variant,
            "PEERS_POSTGRES": str(self.postgres.port) if self.postgres else "",
            **more,
        }
        told.pop("VIRTUAL_ENV", None)
        return told

    def machine(self) -> dict:
        versions = {"Redis": self.redis.version}
        if self.postgres:
            [(version,)] = self.postgres.execute("SHOW server_version")
            versions["PostgreSQL"] = version.split()[0]
        return machine(**versions)

    def create_schema(self, peer: Peer) -> None:
        """Create a peer's tables, as a deployment does before it starts workers."""
        code = f"import asyncio, {peer.service} as s; asyncio.run(s.create_schema())"
        command = [str(self.environments.of(peer)), "-c", code]
        subprocess.run(command, check=True, cwd=SERVICES, env=self.environ(peer))
