#!/usr/bin/env python3
"""Show that a million live keys and 64 threads change nothing: in ratios, on Redis.

*Keys*: the same request goes, in turn, to two servers, of which one holds a million live locks.
*Threads*: 64 threads send their requests at once through a proxy that holds each packet up for
0.1 s; they take hardly longer than the round trips of one thread, so that no thread waits while
another one holds a lock of the package.

    uv run python benchmarks/crowds.py
"""

import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.servers.faults import Proxy
from helpers.servers.processes import RedisServer
from measuring.aims import aim
from measuring.command import finish, parser_of, positive, print_versions, quiet
from measuring.timing import Server, ratio
from measuring.timing import interleave as send_in_turn
from modes import key_mode, lock_mode

FILL = """
for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  redis.call('SET', string.format('idempotence:2:lock:create_order:%032x', number), ARGV[3],
    'PX', 3600000)
end
"""
MODES = (("lock", lock_mode, 1), ("key", key_mode, 2))
"""Each mode, and its round trips for a first request."""

MOST_FOR_KEYS, MOST_FOR_THREADS = 1.1, 2.0
DELAY = 0.1


def main() -> int:
    parser = parser_of(__doc__)
    for name, count, unit in (
        ("requests", 2000, "of each variant"),
        ("keys", 1_000_000, "that live in the other server"),
        ("threads", 64, "that send at once"),
    ):
        parser.add_argument(
            f"--{name}", type=positive, default=count, metavar="N", help=f"{name} {unit}"
        )
    arguments = parser.parse_args()
    quiet()
    with RedisServer() as server, RedisServer() as full:
        print_versions("flask", "redis", Redis=server.version)
        fill(full, arguments.keys)
        rows = [
            among_keys(name, mode, server, full, arguments.requests) for name, mode, _ in MODES
        ]
        assert full.client().dbsize() >= arguments.keys
        rows += [among_threads(*mode, server, arguments.threads) for mode in MODES]
    return finish(arguments, rows)


def fill(server: RedisServer, keys: int) -> None:
    """Let a server hold so many live locks."""
    part = 5_000  # a script must not keep the server busy for long
    for first in range(0, keys, part):
        server.client().eval(FILL, 0, first, min(first + part, keys) - 1, bytes(17))


def among_keys(name: str, mode, empty: RedisServer, full: RedisServer, requests: int) -> dict:
    few, many = mode.ours(empty.unix_url), mode.ours(full.unix_url)
    send_in_turn(f"{name} among keys", [many, few], requests)
    return aim(f"{name}: a million live keys / none", ratio(many, few).median, MOST_FOR_KEYS)


def among_threads(name: str, mode, trips: int, server: RedisServer, threads: int) -> dict:
    """Return the time of all threads, as a multiple of one thread's round trips."""
    with Proxy(server) as proxy:
        variant = mode.ours(proxy.url)
        environs = variant.prepare(2 * threads)
        at_once(variant.app, environs[:threads])  # connects
        proxy.delay = DELAY
        took = at_once(variant.app, environs[threads:])
        proxy.delay = 0
    title = f"{name}: {threads} threads / the round trips of one"
    return aim(title, took / (trips * 2 * DELAY), MOST_FOR_THREADS)


def at_once(app, environs: list[dict]) -> float:
    """Send each request in a thread of its own; return the seconds until all are answered."""
    barrier, statuses = threading.Barrier(len(environs) + 1), []

    def send(environ: dict) -> None:
        server = Server()
        barrier.wait()
        server.send(app, environ)
        statuses.append(server.status)
        barrier.wait()

    for environ in environs:
        threading.Thread(target=send, args=(environ,), daemon=True).start()
    barrier.wait()
    start = time.perf_counter()
    barrier.wait()
    if {status[:3] for status in statuses} != {"200"}:
        raise RuntimeError(f"not all were answered: {statuses}")
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
