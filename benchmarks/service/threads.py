#!/usr/bin/env python3
"""Show that 64 threads of one process do not wait for one another during a round trip.

Redis is behind a proxy that holds up every round trip. Each thread sends guarded requests to an
application, one after the other: together they should take as long as the round trips of one
thread, not as long as those of all. Printed are the waits at each lock of the package, and the
receives from a socket by a thread that held one.

    uv run python benchmarks/service/threads.py

The delay has to be longer than the threads' own work takes in one process, some 0.5 ms a request.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tests")]
from helpers.lock_profile import LockProfile
from helpers.servers.faults import Proxy
from helpers.servers.processes import RedisServer, all_at_once
from measuring.aims import Table, aim, rows_of
from measuring.command import add_report_arguments, finish, positive, quiet
from measuring.timing import Server, Variant
from modes import key_mode, lock_mode

LIMIT = 2.0
"""The wall time at most, of one thread's round trips."""

MODES: dict[str, tuple[Callable[[str], Variant], int]] = {
    "lock": (lock_mode.ours, 1),
    "key": (key_mode.ours, 2),
}
"""Of each mode, its requests and the round trips of one."""


def measure(mode: str, url: str, arguments: argparse.Namespace, hold_up: Callable) -> float:
    """Return the wall time of all threads, of the round trips of one."""
    build, trips = MODES[mode]
    variant = build(url)
    warm = variant.prepare(arguments.threads)
    work = [variant.prepare(arguments.requests) for _ in range(arguments.threads)]
    ready = threading.Barrier(arguments.threads + 1)

    def thread(first: dict, requests: list[dict]) -> None:
        server = Server()
        server.time(variant, first)  # connects
        ready.wait()
        ready.wait()
        for environ in requests:
            server.time(variant, environ)

    calls = [lambda one=one: thread(*one) for one in zip(warm, work, strict=True)]
    took: list[float] = []

    def clock() -> None:
        ready.wait()
        hold_up(arguments.delay)
        began = time.perf_counter()
        ready.wait()
        took.append(began)

    all_at_once([*calls, clock])
    return (time.perf_counter() - took[0]) / (arguments.requests * trips * arguments.delay)


def main() -> int:
    """Run the benchmark from the command line; return the status to exit with."""
    parser = add_report_arguments(
        argparse.ArgumentParser(
            description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
    )
    parser.add_argument("--threads", type=positive, default=64, metavar="N")
    parser.add_argument(
        "--requests", type=positive, default=10, metavar="N", help="of each thread"
    )
    parser.add_argument(
        "--delay", type=float, default=0.1, help="seconds of a round trip (default: %(default)s)"
    )
    arguments = parser.parse_args()
    quiet()
    report = {"modes": {}}
    with RedisServer() as server, Proxy(server) as proxy:

        def hold_up(seconds: float) -> None:
            proxy.delay = seconds / 2  # either way

        for mode in MODES:
            proxy.delay = 0.0
            with LockProfile() as profile:
                share = measure(mode, proxy.url, arguments, hold_up)
            at = f"{arguments.threads} threads"
            held = sum(profile.held_in_receive.values())
            report["modes"][mode] = [
                aim(f"{mode}: wall / one thread's trips", share, LIMIT, at=at),
                aim(f"{mode}: receives with a lock held", held, 0, at=at),
            ]
            _show(f"{mode}, {at}", profile)
    return finish(report, arguments, {"no lock held in a round trip": Table(rows_of(report))})


def _show(name: str, profile: LockProfile) -> None:
    print(f"\n{name:<42} taken  waited, ms  longest, ms   held, ms  in receives")
    for lock, usage in sorted(profile.usage.items()):
        waits = f"{usage.waited * 1e3:11.2f} {usage.longest_wait * 1e3:12.2f}"
        held = f"{usage.longest_hold * 1e3:10.2f} {profile.held_in_receive[lock]:12d}"
        print(f"  {lock:<38} {usage.taken:7d} {waits} {held}")


if __name__ == "__main__":
    sys.exit(main())
