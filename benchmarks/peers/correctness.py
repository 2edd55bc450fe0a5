"""Put every service through every scenario."""

import sys
import tempfile
from pathlib import Path

from .catalogue import Peer
from .scenarios import LEASE, SCENARIOS, Bench
from .serving import Service, Stage


def observe(stage: Stage, peer: Peer) -> dict[str, dict]:
    """Return what was seen of a peer, by scenario."""
    seen = {}
    with tempfile.TemporaryDirectory() as ledger, stage.redis.client() as store:
        environ = stage.environ(peer, PEERS_LEDGER=ledger, PEERS_LEASE=str(LEASE))
        (Path(ledger) / "plan.json").write_text('[["pay", 0]]')
        python = stage.environments.of(peer)
        with Service(peer, python, environ) as one, Service(peer, python, environ) as twin:
            bench = Bench(peer, (one, twin), Path(ledger), store)
            for name, scenario in SCENARIOS.items():
                if name == "cookie" and not peer.cookies:
                    continue
                print(f"... {peer.title}: {name}", file=sys.stderr, flush=True)
                seen[name] = scenario(bench)
    return seen
