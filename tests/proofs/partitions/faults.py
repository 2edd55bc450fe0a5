"""The faults, each a function that strikes and returns what ends it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from helpers.servers.network import Network

from .cluster import ClusterHosts
from .group import AppHosts, SentinelHosts


@dataclass
class World:
    network: Network
    group: SentinelHosts | ClusterHosts
    apps: AppHosts
    paused: list[tuple[str, float, float]] = field(default_factory=list)

    def primary(self) -> str:
        return self.group.primary.host


Strike = Callable[[World], Callable[[], None]]


@dataclass(frozen=True)
class Fault:
    """A fault; `clock` is by how many seconds the second application host is ahead."""

    title: str
    strike: Strike
    clock: float = 0
    deadline: float = 1.0


def nothing(world: World):
    return world.network.heal


def split_brain(world: World):
    world.network.isolate(*world.group.minority(), "app1")
    return world.network.heal


def unheard(world: World):
    primary = world.primary()
    world.network.cut_one_way([primary], set(world.network.hosts) - {primary, "app1"})
    return world.network.heal


def deaf(world: World):
    primary = world.primary()
    world.network.cut_one_way(set(world.network.hosts) - {primary, "app1"}, [primary])
    return world.network.heal


def unconfirmed(world: World):
    world.network.cut_one_way(world.group.replicas(), [world.primary()])
    return world.network.heal


def unfollowed(world: World):
    world.network.cut_one_way([world.primary()], world.group.replicas())
    return world.network.heal


def lossy(world: World):
    world.network.shape_all(loss=0.3)
    return world.network.heal


def slow(world: World):
    world.network.shape_all(delay=0.15)
    return world.network.heal


def disordered(world: World):
    world.network.shape_all(duplicate=0.2, reorder=0.3)
    return world.network.heal


def no_majority(world: World):
    """Cut off a majority of those who decide on a failover, each alone, and a primary."""
    for host in world.group.majority():
        world.network.isolate(host)
    return world.network.heal


def app_paused(world: World):
    return _paused(world, "app1", world.apps.hosts["app1"])


def primary_paused(world: World):
    return _paused(world, world.primary(), world.group.primary)


def _paused(world: World, host: str, processes):
    begin = time.monotonic()
    processes.pause()
    world.network.isolate(host)  # its kernel answers nothing either

    def resume() -> None:
        world.network.heal()
        processes.resume()
        world.paused.append((host, begin, time.monotonic()))

    return resume


FAULTS = {
    "none": Fault("none, for comparison", nothing),
    "split-brain": Fault(
        "the primary is cut off with one application host and one sentinel", split_brain
    ),
    "unheard": Fault(
        "one-way: the primary hears all and is heard by one application host", unheard
    ),
    "deaf": Fault("one-way: the primary is heard by all and hears one application host", deaf),
    "unconfirmed": Fault("one-way: the primary does not hear its replicas", unconfirmed),
    "unfollowed": Fault("one-way: the replicas do not hear the primary", unfollowed),
    "loss": Fault("30 % of all packets are lost", lossy),
    "delay": Fault("each answer takes 300 ms longer", slow),
    "delay-4s": Fault("the same, with a deadline of 4 s", slow, deadline=4.0),
    "disorder": Fault("20 % of packets arrive twice, 30 % are overtaken", disordered),
    "no-majority": Fault("two sentinels are away, then the primary", no_majority),
    "clock-5s": Fault("clocks are 5 s apart", nothing, clock=5),
    "clock-1h": Fault("clocks are one hour apart", nothing, clock=3600),
    "app-paused": Fault("an application host is paused", app_paused),
    "primary-paused": Fault("the primary's host is paused", primary_paused),
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
