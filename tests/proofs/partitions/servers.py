"""Sentinels and their servers, and a cluster, each of them on a host of its own."""

from helpers.servers.network import Network
from helpers.servers.processes import RedisServer
from helpers.servers.topologies import SERVICE, Cluster, ClusterNode, Sentinel, SentinelGroup

DOWN_AFTER = 1.5
"""Seconds after which a silent server counts as dead; on a busy machine less is too short."""

MIN_REPLICAS = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")


class Hosted:
    """A server on a host; it is looked at through its unix socket, past the network."""

    port = 6379

    def __init__(self, network: Network, host: str, *arguments, **options):
        super().__init__(*arguments, **options)
        self.network, self.host, self.address = network, host, network.address(host)

    def _command(self):
        return self.network.command(self.host, [*super()._command(), "--protected-mode", "no"])

    def client(self, **options):
        return super().client(unix_socket_path=f"{self.directory}/redis.sock", **options)


class HostedServer(Hosted, RedisServer):
    pass


class HostedSentinel(Hosted, Sentinel):
    port = 26379


class HostedNode(Hosted, ClusterNode):
    pass


class SentinelHosts(SentinelGroup):
    HOSTS = ("redis1", "redis2", "redis3", "sentinel1", "sentinel2", "sentinel3")

    def __init__(self, network: Network, *, min_replicas: bool):
        super().__init__(DOWN_AFTER)
        self.network, self._left = network, iter(self.HOSTS)
        self._arguments = MIN_REPLICAS if min_replicas else ()

    def server(self, *arguments):
        return HostedServer(self.network, next(self._left), *arguments, *self._arguments)

    def sentinel(self, primary):
        options = {"quorum": 2, "down_after": DOWN_AFTER, "timeout": 6.0}
        return HostedSentinel(self.network, next(self._left), primary, **options)

    @property
    def primary(self):
        address = self.sentinels[-1].client().sentinel_master(SERVICE)["ip"]
        return next(server for server in self.servers if server.address == address)

    def minority(self) -> list[str]:
        return [self.primary.host, self.sentinels[0].host]

    def majority(self) -> list[str]:
        return [*(sentinel.host for sentinel in self.sentinels[1:]), self.primary.host]

    def replicas(self) -> list[str]:
        return [server.host for server in self.servers if server.host != self.primary.host]


class ClusterHosts(Cluster):
    HOSTS = tuple(f"node{number}" for number in range(1, 2 * Cluster.PRIMARIES + 1))

    def __init__(self, network: Network, *, min_replicas: bool):
        super().__init__(replicas=1)
        self.network, self._left = network, iter(self.HOSTS)
        self._arguments = MIN_REPLICAS if min_replicas else ()

    def node(self):
        place = (self.network, next(self._left))
        return HostedNode(*place, *self._arguments, timeout=self._timeout)

    @property
    def primary(self):
        return self.acting_primaries()[0]

    def minority(self) -> list[str]:
        return [self.primary.host]

    def majority(self) -> list[str]:
        return [node.host for node in self.acting_primaries()[:2]]

    def replicas(self) -> list[str]:
        followed = (b"slave", self.primary.address.encode())
        return [node.host for node in self.nodes if tuple(node.client().role()[:2]) == followed]
