"""What the keeper costs: the CPU time of its thread while it holds many leases on a real Redis.

    uv run python benchmarks/keeper.py                    # 1,000 leases of 30 s, for a minute
    uv run python benchmarks/keeper.py --leases 5000 --spread 30

The claims are made one after the other over --spread seconds, as requests would make them, and are
renewed by the application's own keeper. Exit code 1: a lease was lost, or it cost more than
--most.
"""

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from flask import Flask
from helpers.servers.processes import RedisServer

from flask_idempotence import Idempotence
from flask_idempotence.engine.claim import Attempt, Claim
from flask_idempotence.engine.guard import Question
from flask_idempotence.engine.store_calls import Instrument
from flask_idempotence.response.records import Slot
from flask_idempotence.stores.base import NO_FINGERPRINT


class Batches(Instrument):
    """Counts the pipelines of the keeper, and how late it was at worst."""

    def __init__(self):
        self.renewals = 0
        self.latest = 0.0

    def store_call_ends(self, call):
        self.renewals += call.operation == "renew"

    def renewal_delay(self, seconds):
        self.latest = max(self.latest, seconds)


class Measured:
    """An application that holds leases, and the CPU time of its keeper's thread."""

    def __init__(self, url, *, lease, deadline=1.0):
        self.app = Flask("keeper")
        self.app.config.update(
            SECRET_KEY="for the benchmark",
            IDEMPOTENCE_STORAGE_URI=url,
            IDEMPOTENCE_STORAGE_OPTIONS={"deadline": deadline},
            IDEMPOTENCE_LEASE=lease,
        )
        Idempotence(self.app)
        self.engine = self.app.extensions["idempotence"].engine
        self.batches = Batches()
        self.engine.policy.instruments += (self.batches,)
        self.holds = []

    def hold(self, count, *, over):
        """Claim so many keys over so many seconds."""
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + over * number / count - time.monotonic()))
            self._claim(f"bench:{number}")

    def _claim(self, key):
        attempt = Attempt(self.app, "lock", "bench")
        attempt.key = key
        now, lease = self.engine.now(), self.engine.config.lease
        question = Question(b"", lease=lease)
        claim = Claim(attempt, None, question, Slot(key), owner=os.urandom(16), granted_at=now)
        self.engine.store.claim(key, claim.owner, NO_FINGERPRINT, lease, 0)
        self.engine.keeper.watch(claim)
        self.holds.append(claim)

    def share(self, seconds):
        """Return the share of one core that the keeper takes over so many seconds."""
        keeper = self.engine.keeper._thread  # noqa: SLF001 - other applications have their own
        clock = time.pthread_getcpuclockid(keeper.ident)
        before, began = time.clock_gettime(clock), time.monotonic()
        time.sleep(seconds)
        return (time.clock_gettime(clock) - before) / (time.monotonic() - began)

    @property
    def lost(self):
        return sum(hold.lost for hold in self.holds)

    def end(self):
        for hold in self.holds:
            self.engine.keeper.unwatch(hold)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--leases", type=int, default=1000)
    parser.add_argument("--lease", type=float, default=30.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--spread", type=float, default=10.0, help="seconds")
    parser.add_argument("--most", type=float, default=5.0, help="percent of one core")
    given = parser.parse_args()
    with RedisServer() as server:
        measured = Measured(server.url, lease=given.lease)
        measured.hold(given.leases, over=given.spread)
        measured.batches.renewals = 0
        share = 100 * measured.share(given.seconds)
        measured.end()
        print(f"Redis {server.version}; load average {os.getloadavg()[0]:.1f}")
    print(f"{given.leases} leases of {given.lease:g} s, held for {given.seconds:g} s")
    print(f"the keeper's thread: {share:.2f} % of one core (at most {given.most:g} %)")
    print(f"pipelines: {measured.batches.renewals}; latest: {measured.batches.latest:.3f} s")
    print(f"leases lost: {measured.lost}")
    return int(share > given.most or measured.lost > 0)


if __name__ == "__main__":
    sys.exit(main())
