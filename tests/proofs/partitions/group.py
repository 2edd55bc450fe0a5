"""The servers and the application hosts of a test, each on a host of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import redis
from helpers.repository import ROOT
from helpers.servers.network import Network
from helpers.servers.processes import RedisServer, until
from helpers.servers.topologies import SERVICE, replicas_online

from .clock import wrong_clock

REDIS = ("redis1", "redis2", "redis3")
SENTINELS = ("sentinel1", "sentinel2", "sentinel3")
APPS = ("app1", "app2")
PORT, SENTINEL_PORT = 6379, 26379

DOWN_AFTER = 1500
"""Milliseconds after which a silent server counts as dead; on a busy machine less is too short."""

MIN_REPLICAS = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")


class Server(RedisServer):
    """A Redis server on a host; it is looked at through its unix socket, past the network."""

    def __init__(self, network: Network, host: str, *arguments: str):
        super().__init__(*arguments)
        self.network, self.host = network, host
        self.address = network.address(host)
        self.port = PORT

    def _command(self) -> list[str]:
        command = super()._command()
        command[command.index("--bind") + 1] = self.address
        fast = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]
        return self.network.command(self.host, [*command, "--protected-mode", "no", *fast])

    def client(self, **options) -> redis.Redis:
        return super().client(unix_socket_path=f"{self.directory}/redis.sock", **options)


class SentinelServer(Server):
    def __init__(self, network: Network, host: str, primary: str):
        super().__init__(network, host)
        self.port, self._primary = SENTINEL_PORT, primary

    def _command(self) -> list[str]:
        settings = self.directory / "sentinel.conf"  # which it rewrites
        settings.write_text(
            f"sentinel monitor {SERVICE} {self._primary} {PORT} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}\n"
            f"sentinel failover-timeout {SERVICE} 6000\n"
            f"sentinel parallel-syncs {SERVICE} 2\n"
        )
        command = [self.binary, str(settings), "--sentinel", "--bind", self.address]
        command += ["--port", str(self.port), "--dir", str(self.directory)]
        command += ["--protected-mode", "no", "--unixsocket", f"{self.directory}/redis.sock"]
        return self.network.command(self.host, command)


class SentinelHosts:
    HOSTS = (*REDIS, *SENTINELS)

    def __init__(self, network: Network, *, min_replicas: bool):
        self.network = network
        self._arguments = MIN_REPLICAS if min_replicas else ()

    def __enter__(self):
        first = self.network.address(REDIS[0])
        with contextlib.ExitStack() as stack:
            replicaof = ("--replicaof", first, str(PORT))
            self.servers = [
                stack.enter_context(
                    Server(self.network, host, *self._arguments, *(replicaof if place else ()))
                )
                for place, host in enumerate(REDIS)
            ]
            if not until(lambda: replicas_online(self.servers[0]) == len(REDIS) - 1, 20):
                raise RuntimeError("The replicas did not find their primary.")
            self.sentinels = [
                stack.enter_context(SentinelServer(self.network, host, first))
                for host in SENTINELS
            ]
            if not until(self.is_whole, 30):
                raise RuntimeError("The sentinels did not find one another.")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    @property
    def url(self) -> str:
        hosts = ",".join(f"{s.address}:{s.port}" for s in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    @property
    def primary(self) -> Server:
        """The server that the last sentinel takes for the primary."""
        address = self.sentinels[-1].client().sentinel_master(SERVICE)["ip"]
        return next(server for server in self.servers if server.address == address)

    def minority(self) -> list[str]:
        """Return the hosts that a split cuts off: the primary and one sentinel of three."""
        return [self.primary.host, SENTINELS[0]]

    def majority(self) -> list[str]:
        """Return two of three sentinels, and the primary."""
        return [*SENTINELS[1:], self.primary.host]

    def replicas(self) -> list[str]:
        return [server.host for server in self.servers if server.host != self.primary.host]

    def is_whole(self) -> bool:
        with contextlib.suppress(redis.RedisError, KeyError):
            told = [s.client().sentinel_master(SERVICE) for s in self.sentinels]
            names = ("ip", "num-slaves", "num-other-sentinels", "flags")
            wanted = (self.primary.address, len(REDIS) - 1, len(SENTINELS) - 1, "master")
            known = {tuple(sentinel[name] for name in names) for sentinel in told}
            return known == {wanted} and replicas_online(self.primary) == len(REDIS) - 1
        return False


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

    def close(self) -> None:
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


class AppHosts:
    """Both application hosts, which obey together."""

    def __init__(self, network: Network, directory: Path, clock: float = 0, **settings):
        self._directory = directory
        clocks = dict(zip(APPS, (0, clock), strict=True))
        self._make = lambda host: AppHost(network, host, directory, clocks[host], **settings)

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.hosts = {}
            for host in APPS:
                self.hosts[host] = self._make(host)
                stack.callback(self.hosts[host].close)
            for host in self.hosts.values():
                host.expect("ready")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

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
