"""The faults, each a function that strikes, and may return what ends it; else all is healed."""

from collections.abc import Callable
from dataclasses import dataclass

from helpers.servers.network import Network

from .hosts import AppHosts
from .servers import ClusterHosts, SentinelHosts


@dataclass
class World:
    network: Network
    group: SentinelHosts | ClusterHosts
    apps: AppHosts

    def primary(self) -> str:
        return self.group.primary.host

    def all_but(self, *hosts: str) -> set[str]:
        return set(self.network.hosts) - set(hosts)


@dataclass(frozen=True)
class Fault:
    """A fault; `clock` is by how many seconds the second application host is ahead."""

    strike: Callable[[World], Callable[[], None] | None] = lambda world: None
    clock: float = 0
    deadline: float = 1.0


def unheard(world):
    primary = world.primary()
    world.network.cut_one_way([primary], world.all_but(primary, "app1"))


def deaf(world):
    primary = world.primary()
    world.network.cut_one_way(world.all_but(primary, "app1"), [primary])


def unconfirmed(world):
    world.network.cut_one_way(world.group.replicas(), [world.primary()])


def unfollowed(world):
    world.network.cut_one_way([world.primary()], world.group.replicas())


def no_majority(world):
    """Cut off a majority of those who decide on a failover, each alone, and a primary."""
    for host in world.group.majority():
        world.network.isolate(host)


def paused(world, host: str, processes):
    """Freeze a host, for longer than a lease, and than sentinels wait."""
    processes.pause()
    world.network.isolate(host)  # its kernel answers nothing either

    def resume() -> None:
        world.network.heal()
        processes.resume()

    return resume


def slow(world):
    world.network.shape_all(delay=0.15)


FAULTS = {
    # The primary is cut off with one application host and one sentinel.
    "split-brain": Fault(lambda world: world.network.isolate(*world.group.minority(), "app1")),
    # One way: the primary hears all, and is heard by one application host; and the other way.
    "unheard": Fault(unheard),
    "deaf": Fault(deaf),
    # One way: the primary does not hear its replicas; and the other way.
    "unconfirmed": Fault(unconfirmed),
    "unfollowed": Fault(unfollowed),
    "loss": Fault(lambda world: world.network.shape_all(loss=0.3)),
    "delay": Fault(slow),
    "delay-4s": Fault(slow, deadline=4.0),
    "disorder": Fault(lambda world: world.network.shape_all(duplicate=0.2, reorder=0.3)),
    "no-majority": Fault(no_majority),
    "clock-1h": Fault(clock=3600),
    "app-paused": Fault(lambda world: paused(world, "app1", world.apps.hosts["app1"])),
    "primary-paused": Fault(lambda world: paused(world, world.primary(), world.group.primary)),
}
