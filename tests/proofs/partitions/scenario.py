"""One run: servers, load, a fault, its end, and every key once more."""

import time

from helpers.servers.network import Network
from helpers.servers.processes import until

from proofs.chaos.history import history_in

from .faults import World
from .hosts import APPS, AppHosts
from .servers import SentinelHosts

CALM = 2.0
"""Seconds of load before a fault and after it."""

SECONDS = 6.0


def play(fault, directory, *, servers=SentinelHosts, wait_replicas=0, min_replicas=False):
    """Let a fault strike; `min_replicas` is min-replicas-to-write on the servers."""
    options = {"deadline": fault.deadline}
    if wait_replicas:
        options["wait_replicas"] = wait_replicas
    with (
        Network(*servers.HOSTS, *APPS) as network,
        servers(network, min_replicas=min_replicas) as group,
        AppHosts(network, directory, fault.clock, group.url, options) as apps,
    ):
        time.sleep(CALM)
        end = fault.strike(World(network, group, apps)) or network.heal
        time.sleep(SECONDS)
        end()
        if not until(group.is_whole, 60):
            raise RuntimeError("The servers did not become whole again.")
        time.sleep(CALM)
        apps.stop()
        apps.probe(sorted(history_in(directory).attempts_of))
    history = history_in(directory)
    history.deadline = fault.deadline
    return history
