"""A cluster of three primaries with a replica each, every server on a host of its own."""

import contextlib

import redis
from helpers.servers.network import Network
from helpers.servers.processes import until
from helpers.servers.topologies import SLOTS, replicas_online

from .group import MIN_REPLICAS, PORT, Server

PRIMARIES = 3
NODE_TIMEOUT = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1500")


class ClusterHosts:
    HOSTS = tuple(f"node{number}" for number in range(1, 2 * PRIMARIES + 1))

    def __init__(self, network: Network, *, min_replicas: bool):
        self.network = network
        self._arguments = (*NODE_TIMEOUT, *(MIN_REPLICAS if min_replicas else ()))

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.servers = [
                stack.enter_context(Server(self.network, host, *self._arguments))
                for host in self.HOSTS
            ]
            self._join()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _join(self) -> None:
        call = [server.client().execute_command for server in self.servers]
        share = -(-SLOTS // PRIMARIES)
        for place in range(PRIMARIES):
            call[place]("CLUSTER", "ADDSLOTS", *range(SLOTS)[place * share : (place + 1) * share])
            call[place]("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for server in self.servers[1:]:
            server.client().execute_command("CLUSTER", "MEET", self.servers[0].address, PORT)
        if not until(self._knows_all, 20):
            raise RuntimeError("The nodes did not find one another.")
        for place in range(PRIMARIES):
            call[place + PRIMARIES]("CLUSTER", "REPLICATE", call[place]("CLUSTER", "MYID"))
        if not until(self.is_whole, 30):
            raise RuntimeError("The cluster did not become whole.")

    def _knows_all(self) -> bool:
        return all(len(s.client().cluster("nodes")) == len(self.servers) for s in self.servers)

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"{s.address}:{s.port}" for s in self.servers)

    @property
    def primary(self) -> Server:
        return self.primaries()[0]

    def primaries(self) -> list[Server]:
        """Return the servers that take themselves for primaries."""
        return [server for server in self.servers if server.client().role()[0] == b"master"]

    def minority(self) -> list[str]:
        """Return the hosts that a split cuts off: one primary of three."""
        return [self.primary.host]

    def majority(self) -> list[str]:
        """Return two of three primaries, who alone elect a new one."""
        return [server.host for server in self.primaries()[:2]]

    def replicas(self) -> list[str]:
        followed = (b"slave", self.primary.address.encode())
        roles = {server.host: tuple(server.client().role()[:2]) for server in self.servers}
        return [host for host, role in roles.items() if role == followed]

    def is_whole(self) -> bool:
        with contextlib.suppress(redis.RedisError, KeyError):
            states = {server.client().cluster("info")["cluster_state"] for server in self.servers}
            online = [replicas_online(server) for server in self.primaries()]
            return states == {"ok"} and online == [1] * PRIMARIES
        return False
