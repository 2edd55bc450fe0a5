"""One run: servers, load, a fault, its end, and every key once more."""

import time
from dataclasses import dataclass
from pathlib import Path

from helpers.journal import read_journal
from helpers.servers.network import Network
from helpers.servers.processes import until

from proofs.chaos.history import history_in

from .checks import Split
from .faults import Fault, World
from .hosts import APPS, AppHosts
from .servers import SentinelHosts


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
) -> Split:
    """Let a fault strike for so many seconds, with `calm` seconds of load before and after it."""
    options = {"deadline": fault.deadline}
    if safety.wait_replicas:
        options["wait_replicas"] = safety.wait_replicas
    with (
        Network(*servers.HOSTS, *APPS) as network,
        servers(network, min_replicas=safety.min_replicas) as group,
        AppHosts(network, directory, fault.clock, group.url, options) as apps,
    ):
        apps.go()
        time.sleep(calm)
        struck = time.monotonic()
        end = fault.strike(World(network, group, apps)) or network.heal
        time.sleep(seconds)
        end()
        if not until(group.is_whole, 60):
            raise RuntimeError("The servers did not become whole again.")
        time.sleep(calm)
        stopped = time.monotonic()
        apps.stop()
        apps.probe(sorted(history_in(read_journal(directory)).attempts_of))
    told = vars(history_in(read_journal(directory)))
    return Split(**told, deadline=fault.deadline, struck=struck, stopped=stopped)
