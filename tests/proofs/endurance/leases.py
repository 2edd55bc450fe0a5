"""Ten thousand leases at once in the keeper of one process."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from helpers.held_leases import HeldLeases

from .processes import MEBIBYTE, usage_of
from .stores import open_server

BATCH = 1000


@dataclass(frozen=True)
class Leases:
    """What came of many leases, in seconds; `memory` is in bytes for each lease."""

    held: int
    lost: int
    missing: int
    shortest: float
    latest: float
    share: float
    longest_claim: float
    threads: tuple[int, int]
    memory: float


def play(
    kind: str,
    count: int,
    directory: Path,
    report: Callable[[str], None],
    *,
    lease: float,
    seconds: float,
) -> Leases:
    """Hold so many leases, and look at each of them in the store again and again."""
    with open_server(kind, directory) as server:
        measured = HeldLeases(server.url, lease=lease)
        threads, memory = threading.active_count(), usage_of(os.getpid()).uss
        measured.hold(count, over=lease / 3)
        report(f"{count} leases of {lease:g} s are held")
        grown = usage_of(os.getpid()).uss - memory
        looks = Looks(measured)
        looks.look()
        looking = threading.Thread(target=looks.look_until_stopped)
        looking.start()
        share = measured.share(seconds)
        looks.stop()
        looking.join()
        last = looks.look()
        measured.end()
    report(f"looked {len(looks.shortest)} times")
    return Leases(
        held=count,
        lost=measured.lost,
        missing=max(last, looks.missing),
        shortest=min(looks.shortest),
        latest=measured.renewals.latest,
        share=share,
        longest_claim=max(looks.claims),
        threads=(threads, looks.threads),
        memory=grown / count,
    )


class Looks:
    """Looks at all leases from the store's side, and claims something else in between."""

    def __init__(self, measured):
        self._measured = measured
        self._stopped = threading.Event()
        self._count = len(measured.holds)
        self._marks = {}
        self.missing = 0
        self.shortest: list[float] = []
        self.claims: list[float] = []
        self.threads = 0

    def look_until_stopped(self) -> None:
        while not self._stopped.wait(1.0):
            self.missing = max(self.missing, self.look())

    def stop(self) -> None:
        self._stopped.set()

    def look(self) -> int:
        """Return how many leases are not in the store as they should be."""
        began = time.monotonic()
        self._measured.claim(f"other:{len(self.claims)}")
        self.claims.append(time.monotonic() - began)
        self._measured.engine.keeper.unwatch(self._measured.holds.pop())
        self.threads = max(self.threads, threading.active_count() - 1)  # this one
        missing = 0
        for first in range(0, self._count, BATCH):
            holds = self._measured.holds[first : first + BATCH]
            found = self._measured.engine.store.peek_all([hold.slot.key for hold in holds])
            for hold, entry in zip(holds, found, strict=True):
                # The mark is that of its first owner, as long as it was never lost.
                mark = entry and self._marks.setdefault(hold, entry.mark)
                if entry is None or not entry.lease or entry.mark != mark:
                    missing += 1
                else:
                    self.shortest.append(entry.lease)
        return missing


def limits_of(leases: Leases, lease: float) -> list[tuple[str, str, bool]]:
    before, held = leases.threads
    return [
        ("none is lost", str(leases.lost), leases.lost == 0),
        ("none is missing in the store", str(leases.missing), leases.missing == 0),
        (
            "a third of each lease is always left",
            f"{leases.shortest:.1f} s",
            leases.shortest > lease / 3,
        ),
        (
            "no renewal is later than a sixth of a lease",
            f"{leases.latest:.2f} s",
            leases.latest < lease / 6,
        ),
        # The keeper, and with a database the watchdog of its connections.
        ("two threads at most are started", f"{before} → {held}", held <= before + 2),
    ]


def table_of(leases: Leases, lease: float) -> str:
    rows = [
        (limit, figure, "ok" if holds else "FAILED")
        for limit, figure, holds in limits_of(leases, lease)
    ]
    memory = leases.memory * leases.held / MEBIBYTE
    rows += [
        ("leases", str(leases.held), ""),
        ("keeper's thread", f"{100 * leases.share:.2f} % of one core", ""),
        ("slowest claim meanwhile", f"{1000 * leases.longest_claim:.1f} ms", ""),
        ("memory", f"{leases.memory:.0f} B each, {memory:.1f} MiB in all", ""),
    ]
    return "\n".join(["| | | |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)])


def faults_of(leases: Leases, lease: float) -> list[str]:
    return [
        f"FAILED: {limit}: {figure}"
        for limit, figure, holds in limits_of(leases, lease)
        if not holds
    ]
