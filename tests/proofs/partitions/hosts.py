"""Both application hosts of a test."""

import json
import sys

from helpers.servers.processes import Assembled, ServerProcess, environment, until

from proofs.chaos.history import History

from .clock import wrong_clock

APPS = ("app1", "app2")
PATIENCE = 120
"""Seconds in which a host has to begin, to stop, and to have its last answers."""


class AppHost(ServerProcess):
    def __init__(self, network, host, directory, environment):
        self.host, self._directory, self._environment = host, directory, environment
        command = [sys.executable, "-m", "proofs.partitions.worker", host]
        self._command = network.command(host, command)

    def start(self):
        self._launch(self._command, lambda: self.has("begun"), PATIENCE, env=self._environment)

    def has(self, done):
        return (self._directory / f"{self.host} {done}").exists()


class AppHosts(Assembled):
    def __init__(self, network, directory, clock, url, options):
        self._network, self._directory = network, directory
        self._wrong_clock = wrong_clock(directory, clock) if clock else {}
        settings = {"storage_options": json.dumps(options), "lease": History.lease}
        self._environment = environment(url, **settings, JOURNAL=directory)

    def _assemble(self, start):
        self.hosts = {}
        for host, clock in zip(APPS, ({}, self._wrong_clock), strict=True):
            made = AppHost(self._network, host, self._directory, self._environment | clock)
            self.hosts[host] = start(made)

    def stop(self):
        self._tell("stop", "", "stopped")

    def probe(self, operations):
        self._tell("probe", json.dumps(operations), "probed")

    def _tell(self, word, text, done):
        (self._directory / "order").write_text(text)
        (self._directory / "order").rename(self._directory / word)  # written whole
        for host in self.hosts.values():
            assert until(lambda host=host: host.has(done), PATIENCE), host.log
