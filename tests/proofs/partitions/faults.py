"""The faults, each a function that strikes, and may return what ends it; else all is healed."""

from collections.abc import Callable
from dataclasses import dataclass, replace

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

    title: str
    strike: Callable[[World], Callable[[], None] | None] = lambda world: None
    clock: float = 0
    deadline: float = 1.0


def unheard(world: World):
    primary = world.primary()
    world.network.cut_one_way([primary], world.all_but(primary, "app1"))


def deaf(world: World):
    primary = world.primary()
    world.network.cut_one_way(world.all_but(primary, "app1"), [primary])


def unconfirmed(world: World):
    world.network.cut_one_way(world.group.replicas(), [world.primary()])


def unfollowed(world: World):
    world.network.cut_one_way([world.primary()], world.group.replicas())


def no_majority(world: World):
    """Cut off a majority of those who decide on a failover, each alone, and a primary."""
    for host in world.group.majority():
        world.network.isolate(host)


def paused(world: World, host: str, processes):
    """Freeze a host, for longer than a lease, and than sentinels wait."""
    processes.pause()
    world.network.isolate(host)  # its kernel answers nothing either

    def resume() -> None:
        world.network.heal()
        processes.resume()

    return resume


def slow(world: World):
    world.network.shape_all(delay=0.15)


FAULTS = {
    "none": Fault("none, for comparison"),
    "split-brain": Fault(
        "the primary is cut off with one application host and one sentinel",
        lambda world: world.network.isolate(*world.group.minority(), "app1"),
    ),
    "unheard": Fault(
        "one-way: the primary hears all and is heard by one application host", unheard
    ),
    "deaf": Fault("one-way: the primary is heard by all and hears one application host", deaf),
    "unconfirmed": Fault("one-way: the primary does not hear its replicas", unconfirmed),
    "unfollowed": Fault("one-way: the replicas do not hear the primary", unfollowed),
    "loss": Fault("30 % of all packets are lost", lambda world: world.network.shape_all(loss=0.3)),
    "delay": Fault("each answer takes 300 ms longer", slow),
    "delay-4s": Fault("the same, with a deadline of 4 s", slow, deadline=4.0),
    "disorder": Fault(
        "20 % of packets arrive twice, 30 % are overtaken",
        lambda world: world.network.shape_all(duplicate=0.2, reorder=0.3),
    ),
    "no-majority": Fault("two sentinels are away, then the primary", no_majority),
    "clock-5s": Fault("clocks are 5 s apart", clock=5),
    "clock-1h": Fault("clocks are one hour apart", clock=3600),
    "app-paused": Fault(
        "an application host is paused",
        lambda world: paused(world, "app1", world.apps.hosts["app1"]),
    ),
    "primary-paused": Fault(
        "the primary's host is paused",
        lambda world: paused(world, world.primary(), world.group.primary),
    ),
}

CLUSTER_TITLES = {
    "split-brain": "one primary is cut off with one application host",
    "unheard": "one-way: one primary hears all and is heard by one application host",
    "deaf": "one-way: one primary is heard by all and hears one application host",
    "unconfirmed": "one-way: one primary does not hear its replica",
    "unfollowed": "one-way: one replica does not hear its primary",
    "no-majority": "two of three primaries are away",
    "primary-paused": "one primary's host is paused",
}
"""Of faults that a cluster knows by another name."""

CLUSTER_FAULTS = {
    name: replace(fault, title=CLUSTER_TITLES.get(name, fault.title))
    for name, fault in FAULTS.items()
}
