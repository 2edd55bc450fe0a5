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

from proofs.chaos.history import History

from .clock import wrong_clock

APPS = ("app1", "app2")
LEASE = History.lease


class AppHost:
    """An application host: `partitions.worker` in its namespace."""

    def __init__(self, network: Network, host: str, directory: Path, environment: dict):
        self.host = host
        self._log = (directory / f"{host}.log").open("w+")
        self._process = subprocess.Popen(
            network.command(host, [sys.executable, "-m", "proofs.partitions.worker"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"} | environment,
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
    """Both application hosts, which obey together; the second one's clock may be ahead."""

    def __init__(self, network: Network, directory: Path, clock: float, url: str, options: dict):
        self._network, self._directory = network, directory
        self._wrong_clock = wrong_clock(directory, clock) if clock else {}
        self._environment = {"STORE": url, "OPTIONS": json.dumps(options)}
        self._environment |= {"LEASE": str(LEASE), "JOURNAL": str(directory)}

    def _assemble(self, start) -> None:
        self.hosts = {}
        for host, clock in zip(APPS, ({}, self._wrong_clock), strict=True):
            made = AppHost(self._network, host, self._directory, self._environment | clock)
            self.hosts[host] = start(made)
        for host in self.hosts.values():
            host.expect("ready")

    def go(self) -> None:
        self._command("go", time.monotonic())

    def stop(self) -> None:
        self._command("stop")

    def probe(self, operations: list[str]) -> None:
        (self._directory / "probes.json").write_text(json.dumps(operations))
        self._command("probe")

    def _command(self, *words: object) -> None:
        for host in self.hosts.values():
            host.tell(*words)
        for host in self.hosts.values():
            host.expect(words[0])
