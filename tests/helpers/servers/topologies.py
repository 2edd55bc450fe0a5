"""Sentinel groups, clusters and servers with TLS, of real processes on loopback."""

import contextlib
import socket
import subprocess

import redis

from helpers.servers.processes import HOST, Assembled, RedisServer, free_port, redis_binary, until

SERVICE = "shop"
SLOTS = 16384


def replicas_online(primary: RedisServer) -> int:
    """Count the replicas that have their first copy; "connected" ones may still wait for it."""
    info = primary.client().info("replication")
    states = [info[f"slave{n}"]["state"] for n in range(info["connected_slaves"])]
    return states.count("online")


class Sentinel(RedisServer):
    def __init__(
        self, primary: RedisServer, *, quorum: int, down_after: float = 0.6, timeout: float = 3.0
    ):
        super().__init__()
        self._primary, self._quorum = primary, quorum
        self._down_after, self._timeout = round(down_after * 1000), round(timeout * 1000)

    def _command(self) -> list[str]:
        settings = self.directory / "sentinel.conf"  # which it rewrites
        if not settings.exists():
            primary = f"{self._primary.address} {self._primary.port} {self._quorum}"
            rules = {
                "monitor": primary,
                "down-after-milliseconds": self._down_after,
                "failover-timeout": self._timeout,
                "parallel-syncs": 2,
            }
            lines = [f"sentinel {name} {SERVICE} {value}\n" for name, value in rules.items()]
            settings.write_text("".join(lines))
        command = [self.binary, str(settings), "--sentinel", "--bind", self.address]
        command += ["--port", str(self.port), "--dir", str(self.directory)]
        return [*command, "--unixsocket", f"{self.directory}/redis.sock"]


class SentinelGroup(Assembled):
    """One primary, two replicas and three sentinels.

    On a busy machine a short `down_after` means failovers that nobody has asked for.
    """

    REPLICAS = 2
    SENTINELS = 3
    FAST = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")

    def __init__(self, down_after: float = 0.6):
        self._down_after = down_after

    def server(self, *arguments: str) -> RedisServer:
        return RedisServer(*arguments)

    def sentinel(self, primary: RedisServer) -> Sentinel:
        return Sentinel(primary, quorum=2, down_after=self._down_after)

    def _assemble(self, start) -> None:
        first = start(self.server(*self.FAST))
        follow = (*self.FAST, "--replicaof", first.address, str(first.port))
        self.servers = [first, *(start(self.server(*follow)) for _ in range(self.REPLICAS))]
        self.sentinels = [start(self.sentinel(first)) for _ in range(self.SENTINELS)]
        assert until(self.is_whole, 30), "the sentinels did not find one another"

    @property
    def url(self) -> str:
        hosts = ",".join(f"{host}:{port}" for host, port in self.addresses)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(sentinel.address, sentinel.port) for sentinel in self.sentinels]

    @property
    def primary(self) -> RedisServer:
        for sentinel in self.sentinels:
            with contextlib.suppress(redis.RedisError):
                told = sentinel.client(socket_timeout=1).execute_command(
                    "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE
                )
                place = (told[0].decode(), int(told[1]))
                return next(each for each in self.servers if (each.address, each.port) == place)
        raise RuntimeError("No sentinel answers.")

    def is_whole(self) -> bool:
        with contextlib.suppress(redis.RedisError, KeyError):
            told = [s.client().sentinel_masters()[SERVICE] for s in self.sentinels]
            names = ("ip", "port", "num-slaves", "num-other-sentinels", "flags")
            known = {tuple(sentinel[name] for name in names) for sentinel in told}
            primary = self.primary
            place = (primary.address, primary.port)
            wanted = {(*place, self.REPLICAS, self.SENTINELS - 1, "master")}
            return known == wanted and replicas_online(primary) == self.REPLICAS
        return False

    def wait_for_failover(self, old: RedisServer, seconds: float = 20) -> RedisServer:
        """Return the new primary, once all running sentinels name it as healthy."""
        new = old

        def is_over() -> bool:
            nonlocal new
            new = self.primary
            if new is old:
                return False
            named = set()
            for sentinel in self.sentinels:
                # Not by its address alone: a sentinel gives that before its own table follows.
                with contextlib.suppress(redis.RedisError):
                    state = sentinel.client(socket_timeout=1).sentinel_masters()[SERVICE]
                    named.add((state["ip"], state["port"], state["flags"]))
            with contextlib.suppress(redis.RedisError):
                is_primary = new.client().role()[0] == b"master"
                return is_primary and named == {(new.address, new.port, "master")}
            return False

        assert until(is_over, seconds), f"no failover within {seconds} s"
        return new

    def flush(self) -> None:
        self.primary.client().flushall()


class ClusterNode(RedisServer):
    """A node of a cluster; its bus listens 10000 ports above."""

    def __init__(self, *arguments: str, timeout: float):
        cluster = ["--cluster-enabled", "yes"]
        cluster += ["--cluster-node-timeout", str(round(timeout * 1000))]
        super().__init__(*cluster, "--repl-diskless-sync-delay", "0", *arguments)

    @staticmethod
    def _free_port() -> int:
        for _ in range(100):
            port = free_port()
            with contextlib.suppress(OSError, OverflowError), socket.socket() as bus:
                bus.bind((HOST, port + 10000))
                return port
        raise RuntimeError("No port is free with the one 10000 above it.")

    def call(self, *words):
        return self.client().execute_command(*words)

    @property
    def id(self) -> str:
        return self.call("CLUSTER", "MYID").decode()


class Cluster(Assembled):
    """Three primaries, and as many replicas for each as asked for."""

    PRIMARIES = 3

    def __init__(self, replicas: int = 0, timeout: float = 1.5):
        self._replicas, self._timeout = replicas, timeout

    def node(self) -> ClusterNode:
        return ClusterNode(timeout=self._timeout)

    def _assemble(self, start) -> None:
        count = self.PRIMARIES * (1 + self._replicas)
        self.nodes = [start(self.node()) for _ in range(count)]
        self.primaries = self.nodes[: self.PRIMARIES]
        share = -(-SLOTS // self.PRIMARIES)
        for place, node in enumerate(self.primaries):
            slots = range(SLOTS)[place * share : (place + 1) * share]
            node.call("CLUSTER", "ADDSLOTS", *slots)
            node.call("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for node in self.nodes[1:]:
            node.call("CLUSTER", "MEET", self.nodes[0].address, self.nodes[0].port)
        assert until(self._knows_all, 20), "the nodes did not find one another"
        for place, node in enumerate(self.nodes[self.PRIMARIES :]):
            node.call("CLUSTER", "REPLICATE", self.primaries[place % self.PRIMARIES].id)
        assert until(self.is_whole, 30), "the cluster did not become whole"

    def _knows_all(self) -> bool:
        return all(len(node.client().cluster("nodes")) == len(self.nodes) for node in self.nodes)

    def acting_primaries(self) -> list[ClusterNode]:
        return [node for node in self.nodes if node.client().role()[0] == b"master"]

    def is_whole(self) -> bool:
        with contextlib.suppress(redis.RedisError, KeyError):
            states = {node.client().cluster("info")["cluster_state"] for node in self.nodes}
            online = [replicas_online(node) for node in self.acting_primaries()]
            return states == {"ok"} and online == [self._replicas] * self.PRIMARIES
        return False

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"{node.address}:{node.port}" for node in self.nodes)

    def flush(self) -> None:
        for node in self.primaries:
            node.client().flushall()

    def owner(self, key: str) -> ClusterNode:
        slot = self.slot(key)
        for first, last, (_, port, *_), *_ in self.nodes[0].call("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == port)
        raise LookupError(key)

    def slot(self, key: str) -> int:
        return self.nodes[0].call("CLUSTER", "KEYSLOT", key)

    def move(self, slot: int, source: ClusterNode, target: ClusterNode) -> None:
        self.begin_move(slot, source, target)  # without it, the old owner would claim it back
        self.end_move(slot, target)

    def begin_move(self, slot: int, source: ClusterNode, target: ClusterNode) -> None:
        """Have a slot on its way from one node to another: from now on ASK is answered."""
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)

    def end_move(self, slot: int, target: ClusterNode) -> None:
        """Give a slot to its new owner: from now on MOVED is answered."""
        for node in [target, *(other for other in self.primaries if other is not target)]:
            node.call("CLUSTER", "SETSLOT", slot, "NODE", target.id)


class TlsServer(RedisServer):
    """A server that speaks TLS only, with a new certificate in the same file at each start.

    `clients` is a directory with the certificate that clients must have; None lets in all.
    """

    def __init__(self, clients=None):
        super().__init__()
        self._clients_directory = clients

    def _command(self) -> list[str]:
        certificate, key = make_certificate(self.directory)
        clients = self._clients_directory
        command = super()._command()
        command[command.index("--port")] = "--tls-port"
        command += ["--port", "0", "--tls-auth-clients", "yes" if clients else "no"]
        command += ["--tls-cert-file", certificate, "--tls-key-file", key]
        authority = f"{clients}/certificate.pem" if clients else certificate
        return [*command, "--tls-ca-cert-file", authority]

    @property
    def ca(self) -> str:
        return f"{self.directory}/certificate.pem"


def make_certificate(directory) -> tuple[str, str]:
    """Make a certificate for loopback that vouches for itself; returns its file and its key's."""
    certificate, key = f"{directory}/certificate.pem", f"{directory}/key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=loopback", "-keyout", key]
    command += ["-out", certificate, "-addext", f"subjectAltName=IP:{HOST},DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return certificate, key


def has_tls() -> bool:
    command = [redis_binary(), "--port", "0", "--tls-port", "0", "--no-such-option", "1"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return "tls-port" not in told.stdout + told.stderr  # it names the first that it does not know
