"""The process of one application host: the application of chaos, and clients that send to it.

In each slot of time every client sends one key. Its counterpart on the other host sends the same
key at the same time, so that the two race for it on whichever side of a partition they are.
Commands come as lines of the standard input: ``go TIME``, ``stop``, and ``probe``, which sends
each operation of the file ``probes.json`` until its answer is final. Each is answered by a line.
"""

import json
import os
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from proofs.chaos.application import app, journal
from proofs.chaos.history import Attempt, what_is_told

CLIENTS = 5
SLOT = 0.2
SLOW_SLOT = 5.0
BACK = 10
"""Slots after which a key is sent once more."""

PAUSE = 0.05
PROBE_FOR = 20.0


class Host:
    def __init__(self):
        self._stops = threading.Event()
        self._threads = []

    def go(self, start: str) -> None:
        self._threads = [
            threading.Thread(target=self._send_slots, args=(client, float(start)))
            for client in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stops.set()
        for thread in self._threads:
            thread.join()

    def _send_slots(self, client: int, start: float) -> None:
        slot = SLOW_SLOT if client == 0 else SLOT
        while not self._stops.wait(max(0, slot - (time.monotonic() - start) % slot)):
            place = int((time.monotonic() - start) / slot)
            ends = start + (place + 0.8) * slot
            while not send(operation_of(place, client)).is_settled and time.monotonic() < ends:
                time.sleep(PAUSE)
            if place >= BACK and slot == SLOT:
                send(operation_of(place - BACK, client))

    def probe(self) -> None:
        operations = json.loads(Path(os.environ["JOURNAL"], "probes.json").read_text())
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(self._probe, operations))

    def _probe(self, operation: str) -> None:
        ends = time.monotonic() + PROBE_FOR
        while not send(operation, probe=True).is_settled and time.monotonic() < ends:
            time.sleep(0.2)


def operation_of(place: int, client: int) -> str:
    return f"{('once', 'least')[place % 2]}/{place}/{client}"


def send(operation: str, *, probe: bool = False) -> Attempt:
    """Send an operation, and note the attempt; the views of client 0 outlast their lease."""
    mode, place, client = operation.split("/")
    work = 0.01 * int(client) if int(client) else 1.3 * app.config["IDEMPOTENCE_LEASE"]
    attempt, sent = uuid.uuid4().hex, time.monotonic()
    response = app.test_client().post(
        f"/{mode}",
        json={"number": int(place), "work": work, "end": "success"},
        headers={
            "Authorization": f"Bearer {client}",
            "Idempotency-Key": str(uuid.uuid5(uuid.NAMESPACE_URL, operation)),
            "X-Attempt": attempt,
        },
    )
    told = what_is_told(response.status_code, response.headers, response.text)
    told |= {"id": attempt, "operation": operation, "probe": probe}
    told |= {"sent": sent, "received": time.monotonic()}
    journal.note("attempt", **told)
    return Attempt(**told)


def main() -> None:
    host = Host()
    answer("ready")
    for line in sys.stdin:
        command, *arguments = line.split()
        getattr(host, command)(*arguments)
        answer(command)


def answer(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
