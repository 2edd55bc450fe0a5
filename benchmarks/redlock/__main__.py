"""Count claims that are granted twice: `wait_replicas` and RedLock, on real servers that fail.

    uv run python -m benchmarks.redlock
    uv run python -m benchmarks.redlock --rounds 2 --latencies 200

Each round starts servers of its own. Three tables: claims that servers forgot, effects of a holder
that was frozen past its lease, and the time of a claim. Exit code 1: a case that must not grant or
act twice did.
"""

import argparse
import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .failures import Counts, RedisServer, fail_over, restart
from .latency import latencies
from .pauses import Case, freeze

sys.path.append(str(Path(__file__).parents[1]))
from measuring.command import positive
from measuring.machine import in_words, machine

SAFE, UNSAFE = True, False

BEHIND = "the primary dies, a replica that is behind is promoted"
AND_OTHER = "the primary and one replica die, the other, which is behind, is promoted"
CUT_OFF = "the primary and one replica die, the other, which was cut off, is promoted"

Row = tuple[str, str, Callable[[int], Counts], bool]
"""A way to claim, an event, how to count, and whether nothing must be granted twice."""


def replicated(replicas: int, wait: int, event: str, *, cut_off: bool = False) -> Row:
    way = f"{replicas} replica{'s' * (replicas > 1)}, `wait_replicas={wait}`"
    counting = partial(fail_over, replicas=replicas, wait_replicas=wait, cut_off=cut_off)
    return way, event, counting, wait == replicas


def redlock(size: int, away: int, *, fsync: bool = False) -> Row:
    way = f"RedLock over {size}{' that fsync' * fsync}"
    absent = f"while {away} of them {'is' if away == 1 else 'are'} away"
    event = f"claimed {absent if away else 'on all'}, then one is killed and restarts"
    counting = partial(restart, servers=size, away=away, restarted=1, fsync=fsync)
    return way, event, counting, fsync or not away


FORGOTTEN = [
    replicated(1, 0, BEHIND),
    replicated(1, 1, BEHIND),
    replicated(2, 1, AND_OTHER),
    replicated(2, 2, AND_OTHER),
    replicated(2, 2, CUT_OFF, cut_off=True),
    redlock(3, 0),
    redlock(3, 1),
    redlock(5, 2),
    redlock(3, 1, fsync=True),
]

BEFORE, AFTER = "frozen, then checked", "checked, then frozen"
FROZEN = [
    ("RedLock over 3, validity", BEFORE, Case("redlock", "before"), 3, SAFE),
    ("RedLock over 3, validity", AFTER, Case("redlock", "after"), 3, UNSAFE),
    ("`once()`, `ensure_held()`", BEFORE, Case("once", "before"), 1, SAFE),
    ("`once()`, `ensure_held()`", AFTER, Case("once", "after"), 1, UNSAFE),
    ("`once()` and a unique index", AFTER, Case("once", "after", unique=True), 1, SAFE),
    ("`once(within=session)`", AFTER, Case("within", "after"), 1, SAFE),
]


def main() -> int:
    """Run all cases; return the status to exit with."""
    arguments = _arguments()
    sys.stdout.reconfigure(line_buffering=True)
    logging.getLogger("flask_idempotence").setLevel(logging.ERROR)
    with RedisServer() as server:
        told = machine(Redis=server.version)
    parts = {"forgotten": _show_forgotten, "frozen": _show_frozen, "latency": _show_latencies}
    failed = 0
    for show in [parts[arguments.only]] if arguments.only else parts.values():
        failed += show(arguments)
        print()
    print(in_words(told))
    return 1 if failed else 0


def _show_forgotten(arguments: argparse.Namespace) -> int:
    """Return the number of ways that granted a claim twice and must not."""
    failed = 0
    _head("claims", "event", "granted", "refused", "granted again")
    for way, event, how, safe in FORGOTTEN:
        counts = _repeat(way, how, arguments)
        _row(way, event, counts.granted, counts.refused, counts.again)
        failed += safe and counts.again > 0
    return failed


def _show_frozen(arguments: argparse.Namespace) -> int:
    """Return the number of ways that let an effect happen twice and must not."""
    failed = 0
    _head("held by, and checked by", "the holder is", "held", "effects twice")
    for way, event, case, servers, safe in FROZEN:
        counts = _repeat(way, partial(freeze, case=case, servers=servers), arguments)
        _row(way, event, counts.granted, counts.again)
        failed += safe and counts.again > 0
    return failed


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=positive, default=20, help="of each case (%(default)s)")
    parser.add_argument("--claims", type=positive, default=10, help="in a round (%(default)s)")
    parser.add_argument(
        "--latencies", type=positive, default=2000, help="timed claims of each way (%(default)s)"
    )
    parser.add_argument("--only", choices=("forgotten", "frozen", "latency"), help="one table")
    return parser.parse_args()


def _repeat(name: str, count: Callable[[int], Counts], arguments: argparse.Namespace) -> Counts:
    counts = Counts()
    for number in range(1, arguments.rounds + 1):
        print(f"\r{name}: {number} of {arguments.rounds}  ", end="", file=sys.stderr, flush=True)
        counts += count(arguments.claims)
    print(end="\r\033[K", file=sys.stderr, flush=True)
    return counts


def _show_latencies(arguments: argparse.Namespace) -> int:
    """Return 0: no latency is wrong."""
    variants = latencies(arguments.latencies)
    by_name = {variant.name: variant for variant in variants}
    _head("a claim", "median", "p99", "median / one server", "p99 / one server", "packets")
    for variant in variants:
        base = by_name[variant.base]
        ratios = (variant.median / base.median, variant.p99 / base.p99)
        times = [f"{seconds * 1e6:,.0f} µs" for seconds in (variant.median, variant.p99)]
        _row(variant.name, *times, *(f"{ratio:.2f}" for ratio in ratios), f"{variant.packets:.1f}")
    return 0


def _head(*cells: str) -> None:
    _row(*cells)
    _row(*["---"] * len(cells))


def _row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    sys.exit(main())
