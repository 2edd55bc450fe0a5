"""Both application hosts of a test."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from helpers.repository import ROOT
from helpers.servers.network import Network
from helpers.servers.processes import Assembled

from .clock import wrong_clock

APPS = ("app1", "app2")


class AppHost:
    """An application host: `partitions.worker` in its namespace, perhaps with a wrong clock."""

    def __init__(self, network: Network, host: str, directory: Path, clock: float = 0, **settings):
        self.host = host
        told = {"name": host, "directory": str(directory), **settings}
        command = [sys.executable, "-m", "proofs.partitions.worker", json.dumps(told)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        environment |= wrong_clock(directory, clock) if clock else {}
        self._log = (directory / f"{host}.log").open("w+")
        self._process = subprocess.Popen(
            network.command(host, command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            env=environment,
        )

    def expect(self, word: str) -> None:
        if self._process.stdout.readline() != f"{word}\n":
            self._log.seek(0)
            raise RuntimeError(f"{self.host} did not answer {word!r}:\n{self._log.read()}")

    def tell(self, *words: object) -> None:
        print(*words, file=self._process.stdin, flush=True)

    def pause(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.resume()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


class AppHosts(Assembled):
    """Both application hosts, which obey together."""

    def __init__(self, network: Network, directory: Path, clock: float = 0, **settings):
        self._directory = directory
        clocks = dict(zip(APPS, (0, clock), strict=True))
        self._make = lambda host: AppHost(network, host, directory, clocks[host], **settings)

    def _assemble(self, start) -> None:
        self.hosts = {host: start(self._make(host)) for host in APPS}
        for host in self.hosts.values():
            host.expect("ready")

    def go(self) -> None:
        self._command("go", time.monotonic())

    def stop(self) -> None:
        self._command("stop")

    def probe(self, keys: list[str]) -> None:
        (self._directory / "keys.json").write_text(json.dumps(keys))
        self._command("probe")

    def _command(self, *words: object) -> None:
        for host in self.hosts.values():
            host.tell(*words)
        for host in self.hosts.values():
            host.expect(words[0])
