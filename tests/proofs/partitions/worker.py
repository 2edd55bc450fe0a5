"""The process of one application host: an application, and clients that send it operations.

In each slot of time every client sends one key. Its counterpart on the other host sends the same
key at the same time, so that the two race for it on whichever side of a partition they are.
Commands come as lines of the standard input: ``go TIME``, ``stop``, and ``probe``, which sends
each key of the file ``keys.json`` until its answer is final. Each is answered by a line.
"""

import json
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flask import Flask, request
from helpers.journal import Journal

from flask_idempotence import Idempotence, idempotent
from proofs.partitions.history import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    IN_PROGRESS,
    RAN,
    REPLAYED,
    UNAVAILABLE,
    Effects,
    mode_of,
)

CLIENTS = 5
SLOT = 0.2
SLOW_SLOT = 5.0
BACK = 10
"""Slots after which a key is sent once more."""

PAUSE = 0.05
PROBE_FOR = 20.0
REPEATED = (IN_PROGRESS, UNAVAILABLE)


class Host:
    def __init__(self, name: str, directory: Path, url: str, lease: float, options: dict):
        self._name, self._directory, self._lease = name, directory, lease
        self._journal = Journal(directory)
        self._effects = Effects(self._journal, name)
        self._app = self._make_app(url, options)
        self._stops = threading.Event()
        self._threads = []

    def _make_app(self, url: str, options: dict) -> Flask:
        app = Flask("partitions")
        app.config.update(
            SECRET_KEY="a secret for the tests",
            IDEMPOTENCE_STORAGE_URI=url,
            IDEMPOTENCE_STORAGE_OPTIONS=options,
            IDEMPOTENCE_LEASE=self._lease,
        )
        Idempotence(app)
        for guarantee in (AT_MOST_ONCE, AT_LEAST_ONCE):
            guard = idempotent(required=True, guarantee=guarantee)
            app.add_url_rule(f"/{guarantee}", guarantee, guard(self._view), methods=["POST"])
        return app

    def _view(self):
        run = uuid.uuid4().hex
        key = request.json["key"]
        self._effects.run(key, run, request.environ["asked"], float(key.split("/")[-1]))
        return {"run": run}, 201

    def go(self, start: float) -> None:
        for number in range(CLIENTS):
            slow = number == 0  # its views take longer than a lease
            slot, work = (SLOW_SLOT, self._lease * 1.3) if slow else (SLOT, 0.01 * number)
            arguments = (number, start, slot, work)
            self._threads.append(threading.Thread(target=self._send_slots, args=arguments))
            self._threads[-1].start()

    def stop(self) -> None:
        self._stops.set()
        for thread in self._threads:
            thread.join()

    def _send_slots(self, number: int, start: float, slot: float, work: float) -> None:
        while not self._stops.wait(max(0, slot - (time.monotonic() - start) % slot)):
            place = int((time.monotonic() - start) / slot)
            ends = start + (place + 0.8) * slot
            key = key_of(number, place, work)
            while self._send(key) in REPEATED and time.monotonic() < ends:
                self._stops.wait(PAUSE)
            if place >= BACK and slot == SLOT:
                self._send(key_of(number, place - BACK, work))

    def probe(self) -> None:
        keys = json.loads((self._directory / "keys.json").read_text())
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(self._probe, keys))

    def _probe(self, key: str) -> None:
        ends = time.monotonic() + PROBE_FOR
        while self._send(key) in REPEATED and time.monotonic() < ends:
            time.sleep(0.2)

    def _send(self, key: str) -> str:
        begin = time.monotonic()
        response = self._app.test_client().post(
            f"/{mode_of(key)}",
            json={"key": key},
            headers={"Idempotency-Key": str(uuid.uuid5(uuid.NAMESPACE_URL, key))},
            environ_overrides={"asked": begin},
        )
        answer, run = _read(response)
        self._journal.note(
            "request",
            key=key,
            host=self._name,
            begin=begin,
            end=time.monotonic(),
            answer=answer,
            run=run,
            stored=response.headers.get("Idempotent-Stored") != "false",
        )
        return answer


def _read(response) -> tuple[str, str | None]:
    if response.status_code == 201:
        replayed = "Idempotent-Replayed" in response.headers
        return REPLAYED if replayed else RAN, response.json["run"]
    slug = response.headers.get("Idempotence-Refusal")
    return slug or f"unexpected {response.status}", None


def key_of(client: int, place: int, work: float) -> str:
    """Return the key of a client's slot: guarantee, client, slot, seconds of work."""
    return f"{(AT_MOST_ONCE, AT_LEAST_ONCE)[place % 2]}/{client}/{place}/{work}"


def main() -> None:
    settings = json.loads(sys.argv[1])
    host = Host(**{**settings, "directory": Path(settings["directory"])})
    answer("ready")
    for line in sys.stdin:
        command, *arguments = line.split()
        getattr(host, command)(*map(float, arguments))
        answer(command)


def answer(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
