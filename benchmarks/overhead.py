#!/usr/bin/env python3
"""Measure what the extension adds to a request, in ratios that hold on any machine.

The same request goes, in turn and in one process, to a guarded view, to a view that only sends
the store's command ("floor"), and to what a developer would have written by hand. A Redis server
is started for it on loopback. Also counted at that server: round trips, and bytes per key.
"""

import argparse
import json
import logging
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import variants
from measuring import Spread, Variant, interleave, ratio
from server_side import memory, round_trips

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from servers import RedisServer

OURS = 0
LIMITS = {  # title: one (limit, aim) for each variant that ours is compared with
    "lock on Redis": [(1.15, 1.05), (1.30, 1.15)],
    "token on Redis": [(1.15, 1.05), (1.30, 1.15)],
    "lock in memory": [(1.50, 1.35)],
    "token in memory": [None],
}
ROUND_TRIPS = 1
BYTES = 200


def groups(url: str) -> dict[str, list[Variant]]:
    """Return what is compared; the first of each group is ours."""
    memory_uri = "memory://"
    return {
        "lock on Redis": [
            variants.our_lock(url),
            variants.lock_by_hand(url),
            variants.lock_floor(url),
        ],
        "token on Redis": [
            variants.our_token(url),
            variants.token_by_hand(url),
            variants.token_floor(url),
        ],
        "lock in memory": [variants.our_lock(memory_uri), variants.plain()],
        "token in memory": [variants.our_token(memory_uri), variants.plain()],
    }


def compare(title: str, compared: list[Variant], requests: int) -> dict:
    """Measure one group and return its part of the report."""
    interleave(title, compared, requests)
    ours = compared[OURS]
    result = {"title": title, "variants": [], "ratios": []}
    for variant in compared:
        times = Spread.of([nanoseconds / 1000 for nanoseconds in variant.nanoseconds])
        result["variants"].append({"name": variant.name, **_rounded(times, 1)})
    for variant, limits in zip(compared[1:], LIMITS[title], strict=True):
        against = ratio(ours, variant)
        limit, aim = limits or (None, None)
        missed = limit is not None and against.median > limit
        row = {"against": variant.name, **_rounded(against, 3)}
        result["ratios"].append({**row, "limit": limit, "aim": aim, "missed": missed})
    return result


def _rounded(spread: Spread, digits: int) -> dict:
    return {name: round(value, digits) for name, value in vars(spread).items()}


def show_group(group: dict) -> None:
    print(f"\n{group['title']}" + " " * (49 - len(group["title"])) + "median     p10     p90")
    for row in group["variants"]:
        print(f"  {row['name']:<43} {row['median']:7.1f} {row['p10']:7.1f} {row['p90']:7.1f} µs")
    for row in group["ratios"]:
        limit = "no limit"
        if row["limit"]:
            limit = f"limit {row['limit']:.2f}, aim {row['aim']:.2f}"
            limit += "  MISSED" if row["missed"] else ""
        name = f"ours / {row['against']}"
        print(f"  {name:<43} {row['median']:7.3f} {row['p10']:7.3f} {row['p90']:7.3f} x  {limit}")


def show_server(told: dict) -> None:
    print("\nround trips to the server" + " " * 24 + f"limit {ROUND_TRIPS}")
    for row in told["round_trips"]:
        missed = "  MISSED" if row["missed"] else ""
        names = ", ".join(row["commands"])
        print(f"  {row['step']:<43} {row['round_trips']:7d}  {names}{missed}")
    print(f"\nMEMORY USAGE of one key, Redis {told['redis']}" + " " * 11 + f"limit {BYTES} bytes")
    for row in told["memory"]:
        missed = "  MISSED" if row["missed"] else ""
        print(f"  {row['what']:<43} {row['bytes']:7d}  {row['key']}{missed}")


def measure(server: RedisServer, requests: int) -> dict:
    """Measure everything and show it as it comes."""
    packages = ("flask", "werkzeug", "redis", "itsdangerous")
    told = {
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "redis": server.client().info("server")["redis_version"],
        "requests": requests,
        "groups": [],
    }
    names = ", ".join(f"{name} {number}" for name, number in told["packages"].items())
    print(f"Python {told['python']}, {names}; Redis {told['redis']} over TCP on loopback")
    print(f"{requests} requests of each variant, interleaved; microseconds a request")
    told["round_trips"] = [
        {**row, "missed": row["round_trips"] > ROUND_TRIPS} for row in round_trips(server.url)
    ]
    told["memory"] = [{**row, "missed": row["bytes"] > BYTES} for row in memory(server.url)]
    show_server(told)
    for title, compared in groups(server.url).items():
        group = compare(title, compared, requests)
        told["groups"].append(group)
        show_group(group)
    return told


def missed(told: dict) -> int:
    """Count the limits that were missed."""
    rows = [row for group in told["groups"] for row in group["ratios"]]
    return sum(row["missed"] for row in [*rows, *told["round_trips"], *told["memory"]])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--requests",
        type=int,
        default=5000,
        metavar="N",
        help="requests of each variant (default: %(default)s)",
    )
    parser.add_argument(
        "--check", action="store_true", help="end with status 1 if a limit is missed"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    arguments = parser.parse_args()
    if arguments.requests < 1:
        parser.error("--requests: at least 1")
    sys.stdout.reconfigure(line_buffering=True)
    logging.getLogger("flask_idempotence").setLevel(logging.ERROR)  # memory is meant here
    with RedisServer() as server:
        told = measure(server, arguments.requests)
    if arguments.json:
        arguments.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    count = missed(told)
    print(f"\nlimits missed: {count}" if count else "\nall limits kept")
    return 1 if arguments.check and count else 0


if __name__ == "__main__":
    sys.exit(main())
