#!/usr/bin/env python3
"""Measure what `IDEMPOTENCE_WATCH` adds to a guarded request, on Redis over TCP.

Three applications take turns: without the setting, with it while no command listens, and with it
while `flask idempotence watch --json` runs in a process of its own. The times are those that the
processor spends on the request's thread: a busy machine and a slow Redis do not change them much.
The last lines are the cost of one signal, of which a guarded request sends two, and that of
asking, once a second in each process, whether a command listens.

    uv run python benchmarks/service/watching.py
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tests")]
from helpers.servers.processes import RedisServer, until
from measuring.aims import Table, aim, rows_of
from measuring.command import finish, microseconds, parser_of, quiet, row_of
from measuring.timing import Server, Variant, interleave, ratio
from modes import key_mode, lock_mode

from flask_idempotence.engine.publisher import Publisher, channel_of
from flask_idempotence.signals import claimed, emit
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import BroadcastingStore

LIMITS = {"nobody listens": 1.05, "watched": 1.10}
"""A guarded request with the setting, of one without, at most."""

CASES = {
    "lock": lock_mode.ours,
    "key, first request": key_mode.ours,
    "replay": key_mode.our_replay,
}

COMMAND = """
import sys
from flask import Flask
from flask.cli import FlaskGroup
from flask_idempotence import Idempotence

app = Flask("watched")
app.config.update(IDEMPOTENCE_STORAGE_URI=sys.argv[1], IDEMPOTENCE_PREFIX="watched")
Idempotence(app)
FlaskGroup(create_app=lambda: app).main(["idempotence", "watch", "--json"])
"""

QUESTIONS = 2000
SIGNALS = 20_000


def publishing(variant: Variant, how: str) -> Variant:
    """Publish the signals of a variant, as the setting does; the prefix chooses the channel."""
    store = variant.app.extensions["idempotence"].store
    Publisher(store, "watched" if how == "watched" else "alone").connect(variant.app)
    variant.name += f", {how}"
    return variant


def cost_of_a_question(store: BroadcastingStore) -> float:
    """Return the microseconds of the processor for asking whether a command listens."""
    began = time.thread_time()
    for _ in range(QUESTIONS):
        store.count_listeners(channel_of("alone"))
    return (time.thread_time() - began) / QUESTIONS * 1e6


def cost_of_a_signal(app) -> float:
    """Return the microseconds of the processor for one signal, on the thread of the request."""
    sent = {"mode": "key", "endpoint": "pay", "key": "e148de3befcd", "lease": 30.0, "waited": 0.0}
    times = []
    for _ in range(SIGNALS // 100):
        began = time.thread_time()
        for _ in range(100):
            emit(claimed, app, **sent)
        times.append((time.thread_time() - began) * 1e4)
        time.sleep(0.01)  # for the thread that publishes
    return statistics.median(times)


def main() -> int:
    """Run the benchmark from the command line; return the status to exit with."""
    arguments = parser_of(__doc__, requests=2000).parse_args()
    quiet()
    Server.clock = staticmethod(time.thread_time_ns)
    report = {}
    with (
        RedisServer() as server,
        subprocess.Popen(
            [sys.executable, "-c", COMMAND, server.url],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as command,
    ):
        store = open_store(server.url, {})
        if not until(lambda: store.count_listeners(channel_of("watched")), 60):
            raise RuntimeError("The command does not listen.")
        for name, build in CASES.items():
            base = build(server.url)
            others = {how: publishing(build(server.url), how) for how in LIMITS}
            interleave(name, [base, *others.values()], arguments.requests)
            for each in (base, *others.values()):
                row = row_of(microseconds(each.nanoseconds), 1)
                print(f"{name}; {each.name}: {row['median']} us")
            report[name] = [
                aim(f"{name}, {how} / off", spread.median, LIMITS[how])
                | {"spread": row_of(spread, 3)}
                for how, other in others.items()
                for spread in [ratio(other, base)]
            ]
            apps = {"off": base.app, **{how: other.app for how, other in others.items()}}
        for how, app in apps.items():
            print(f"a signal, {how}: {cost_of_a_signal(app):.1f} us")
        print(f"a question whether a command listens: {cost_of_a_question(store):.0f} us")
        command.kill()
    return finish(report, arguments, {"what publishing adds": Table(rows_of(report))})


if __name__ == "__main__":
    sys.exit(main())
