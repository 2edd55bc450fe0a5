"""One run: servers, load, a fault, its end, and every key once more."""

import time
from dataclasses import dataclass
from pathlib import Path

from helpers.servers.network import Network
from helpers.servers.processes import until

from .faults import Fault, World
from .history import History, read_history
from .hosts import APPS, AppHosts
from .servers import SentinelHosts

LEASE = 3.0


@dataclass(frozen=True)
class Safety:
    """What is waited for: `wait_replicas`, and min-replicas-to-write 1 on the servers."""

    wait_replicas: int = 0
    min_replicas: bool = False


def play(
    fault: Fault,
    safety: Safety,
    directory: Path,
    *,
    servers=SentinelHosts,
    calm: float = 3.0,
    seconds: float = 8.0,
) -> History:
    """Let a fault strike for so many seconds, with `calm` seconds of load before and after it."""
    options = {"deadline": fault.deadline}
    if safety.wait_replicas:
        options["wait_replicas"] = safety.wait_replicas
    with (
        Network(*servers.HOSTS, *APPS) as network,
        servers(network, min_replicas=safety.min_replicas) as group,
        AppHosts(
            network, directory, fault.clock, url=group.url, lease=LEASE, options=options
        ) as apps,
    ):
        world = World(network, group, apps)
        apps.go()
        time.sleep(calm)
        struck = time.monotonic()
        end = fault.strike(world) or network.heal
        time.sleep(seconds)
        end()
        healed = time.monotonic()
        if not until(group.is_whole, 60):
            raise RuntimeError("The servers did not become whole again.")
        time.sleep(calm)
        stopped = time.monotonic()
        apps.stop()
        apps.probe(sorted(read_history(directory).requests_by_key()))
    history = read_history(directory)
    history.lease, history.deadline, history.paused = LEASE, fault.deadline, world.paused
    history.struck, history.healed, history.stopped = struck, healed, stopped
    return history
