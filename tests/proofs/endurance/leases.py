"""Ten thousand leases at once in the keeper of one process."""

import os
import threading
import time

from helpers.held_leases import HeldLeases

from .processes import MEBIBYTE, usage_of
from .stores import open_server

BATCH = 1000


def play(kind, count, directory, lease, seconds):
    """Hold so many leases, and look at each of them in the store again and again.

    Returns the rows of a table: what is measured, its figure, and whether its limit holds.
    """
    with open_server(kind, directory) as server:
        measured = HeldLeases(server.url, lease=lease)
        threads, memory = threading.active_count(), usage_of(os.getpid()).uss
        measured.hold(count, over=lease / 3)
        grown = usage_of(os.getpid()).uss - memory
        looks = Looks(measured)
        looks.look()
        looking = threading.Thread(target=looks.look_until_stopped)
        looking.start()
        share = measured.share(seconds)
        looks.stopped.set()
        looking.join()
        looks.look()
        measured.end()
    shortest, latest = min(looks.shortest), measured.renewals.latest
    return [
        ("none is lost", measured.lost, measured.lost == 0),
        ("none is missing in the store", looks.missing, looks.missing == 0),
        ("a third of each lease is always left", f"{shortest:.1f} s", shortest > lease / 3),
        ("no renewal is later than a sixth of a lease", f"{latest:.2f} s", latest < lease / 6),
        # The keeper, and with a database the watchdog of its connections.
        (
            "two threads at most are started",
            f"{threads} → {looks.threads}",
            looks.threads <= threads + 2,
        ),
        ("leases, and looks at them", f"{count}, {len(looks.claims)}", None),
        ("keeper's thread", f"{100 * share:.2f} % of one core", None),
        ("slowest claim meanwhile", f"{1000 * max(looks.claims):.1f} ms", None),
        ("memory", f"{grown / count:.0f} B each, {grown / MEBIBYTE:.1f} MiB in all", None),
    ]


class Looks:
    """Looks at all leases from the store's side, and claims something else in between."""

    def __init__(self, measured):
        self._measured, self._count, self._marks = measured, len(measured.holds), {}
        self.stopped = threading.Event()
        self.missing = self.threads = 0
        self.shortest, self.claims = [], []

    def look_until_stopped(self):
        while not self.stopped.wait(1.0):
            self.look()

    def look(self):
        """Count the leases that are not in the store as they should be."""
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
        self.missing = max(self.missing, missing)
