"""Callers of a store while faults come and go, and how busy the machine was meanwhile."""

import os
import random
import threading
import time
from collections import Counter

from flask_idempotence import StoreError
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Done, Outcome

SECONDS = float(os.environ.get("IDEMPOTENCE_TEST_SOAK", "6"))
"""Of each soak: 600 make ten minutes of one."""


class Lag:
    """The longest delay of a thread that sleeps for moments: how busy the machine is."""

    def __init__(self):
        self.longest = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            started = time.monotonic()
            time.sleep(0.01)
            self.longest = max(self.longest, time.monotonic() - started - 0.01)


class Soak:
    """Callers in pairs, each pair after the same keys, while faults come and go.

    Whoever is granted a claim runs the effect and completes; whoever gets no answer asks again
    as the same owner.
    """

    def __init__(self, scene, seconds, places):
        self.scene, self.places = scene, places
        self.runs, self.acknowledged, self.taken = Counter(), Counter(), Counter()
        self.end = time.monotonic() + seconds
        self.slow, self.failures, self.faults = 0.0, 0, Counter()

    def run(self):
        threads = [threading.Thread(target=self.work, args=(number // 2,)) for number in range(16)]
        for each in threads:
            each.start()
        lag = Lag()
        while time.monotonic() < self.end:
            place = random.choice(self.places)
            self.faults[place] += 1
            self.scene.begin(place)
            time.sleep(random.uniform(0.1, 3))
            self.scene.end()
            time.sleep(random.uniform(0.1, 2))
        for each in threads:
            each.join()
        return self.report() | {"lag": lag.longest}

    def work(self, pair):
        number = 0
        while time.monotonic() < self.end:
            self.once(f"{pair}:{number}")
            number += 1

    def once(self, key):
        owner = os.urandom(16)
        while True:
            outcome = self.ask(lambda: self.scene.store.claim(key, owner, NO_FINGERPRINT, 600, 0))
            if isinstance(outcome, Done):
                return
            if outcome == Claimed():
                break
            time.sleep(0.01)
        self.runs[key] += 1
        store = self.scene.store
        settled = self.ask(lambda: store.complete(key, owner, NO_FINGERPRINT, key.encode(), 6000))
        if settled is Outcome.OK:
            self.acknowledged[key] += 1

    def ask(self, call):
        while True:
            started = time.monotonic()
            try:
                return call()
            except StoreError:
                self.failures += 1
                time.sleep(0.02)
            finally:
                self.slow = max(self.slow, time.monotonic() - started)

    def report(self):
        keys, lost = list(self.acknowledged), []
        for key in keys:
            outcome = self.ask(
                lambda key=key: self.scene.store.claim(key, os.urandom(16), NO_FINGERPRINT, 1, 0)
            )
            if not isinstance(outcome, Done) or outcome.record != key.encode():
                lost.append(key)
        return {
            "acknowledged": len(keys),
            "lost": lost,
            "doubled": [key for key, count in self.runs.items() if count != 1],
            "longest": self.slow,
            "failures": self.failures,
            "faults": self.faults,
        }
