"""The process of one application host: the application of chaos, and clients that send to it.

In each slot of time every client sends one key. Its counterpart on the other host sends the same
key at the same time, so that the two race for it on whichever side of a partition they are. Files
beside the journal say what comes next: ``stop``, then ``probe``, which has the operations to send
until their answers are final. A host writes files, too, when it has done so.
"""

import json
import os
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from helpers.servers.processes import until

from proofs.chaos.application import app, journal
from proofs.chaos.history import Attempt, what_is_told

CLIENTS = 5
SLOT = 0.2
SLOW_SLOT = 5.0
BACK = 10
"""Slots after which a key is sent once more."""

PAUSE = 0.05
PROBE_FOR = 20.0
DIRECTORY = Path(os.environ["JOURNAL"])


def send_slots(client, ends):
    """Send a key in each slot of the clock that all hosts share."""
    slot = SLOW_SLOT if client == 0 else SLOT
    first = int(time.monotonic() / slot) + 1
    while not ends.wait(slot - time.monotonic() % slot):
        place = int(time.monotonic() / slot)
        send_until_settled(operation_of(place, client), PAUSE, (place + 0.8) * slot)
        if place - BACK >= first and slot == SLOT:
            send(operation_of(place - BACK, client))


def send_until_settled(operation, pause, until, **about):
    while not send(operation, **about).is_settled and time.monotonic() < until:
        time.sleep(pause)


def probe(operation):
    send_until_settled(operation, 0.2, time.monotonic() + PROBE_FOR, probe=True)


def operation_of(place, client):
    return f"{('once', 'least')[place % 2]}/{place}/{client}"


def send(operation, *, probe=False):
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


def main(host):
    ends = threading.Event()
    with ThreadPoolExecutor(CLIENTS) as pool:
        sending = [pool.submit(send_slots, client, ends) for client in range(CLIENTS)]
        (DIRECTORY / f"{host} begun").touch()
        wait_for("stop")
        ends.set()
        for client in sending:
            client.result()
        (DIRECTORY / f"{host} stopped").touch()
        wait_for("probe")
        list(pool.map(probe, json.loads((DIRECTORY / "probe").read_text())))
    (DIRECTORY / f"{host} probed").touch()


def wait_for(order):
    assert until((DIRECTORY / order).exists, 600)


if __name__ == "__main__":
    main(*sys.argv[1:])
