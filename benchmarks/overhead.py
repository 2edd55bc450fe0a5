#!/usr/bin/env python3
"""Measure what the extension adds to a request, in ratios that hold on any machine.

The same request goes, in turn and in one process, to a guarded view, to a view that only sends
the store's commands ("floor"), and to what a developer would have written by hand. A Redis server
is started for it on loopback. Also counted at that server: round trips, and bytes per key.
"""

import sys

from measuring.command import RedisServer, microseconds, row_of, run, tell_versions
from measuring.redis_costs import memory, round_trips
from measuring.timing import Variant, interleave, ratio
from modes import key_mode, lock_mode, token_mode
from modes.order_app import plain

PACKAGES = ("flask", "werkzeug", "redis", "itsdangerous")
OURS = 0
LIMITS = {  # title: one (limit, aim) for each variant that ours is compared with
    "lock on Redis": [(1.15, 1.05), (1.30, 1.15)],
    "token on Redis": [(1.15, 1.05), (1.30, 1.15)],
    "lock in memory": [(1.50, 1.35)],
    "token in memory": [None],
    "key on Redis, first request": [(1.15, 1.05), (1.25, 1.15)],
    "key on Redis, replay": [(1.15, 1.05), (1.25, 1.15)],
    "key in memory, first request": [None],
    "key in memory, replay": [None],
}


def groups(url: str) -> dict[str, list[Variant]]:
    """Return what is compared; the first of each group is ours."""
    memory_uri = "memory://"
    return {
        "lock on Redis": [lock_mode.ours(url), lock_mode.by_hand(url), lock_mode.floor(url)],
        "token on Redis": [token_mode.ours(url), token_mode.by_hand(url), token_mode.floor(url)],
        "lock in memory": [lock_mode.ours(memory_uri), plain()],
        "token in memory": [token_mode.ours(memory_uri), plain()],
        "key on Redis, first request": [
            key_mode.ours(url),
            key_mode.by_hand(url),
            key_mode.floor(url),
        ],
        "key on Redis, replay": [
            key_mode.our_replay(url),
            key_mode.replay_by_hand(url),
            key_mode.replay_floor(url),
        ],
        "key in memory, first request": [
            key_mode.ours(memory_uri),
            plain(key_mode.first_requests),
        ],
        "key in memory, replay": [
            key_mode.our_replay(memory_uri),
            plain(key_mode.first_requests),
        ],
    }


def compare(title: str, compared: list[Variant], requests: int) -> dict:
    """Measure one group and return its part of the report."""
    interleave(title, compared, requests)
    ours = compared[OURS]
    result = {"title": title, "variants": [], "ratios": []}
    for variant in compared:
        times = microseconds(variant.nanoseconds)
        result["variants"].append({"name": variant.name, **row_of(times, 1)})
    for variant, limits in zip(compared[1:], LIMITS[title], strict=True):
        against = ratio(ours, variant)
        limit, aim = limits or (None, None)
        missed = limit is not None and against.median > limit
        row = {"against": variant.name, **row_of(against, 3)}
        result["ratios"].append({**row, "limit": limit, "aim": aim, "missed": missed})
    return result


def show_group(group: dict) -> None:
    print(f"\n{group['title']}" + " " * (51 - len(group["title"])) + "median     p10     p90")
    for row in group["variants"]:
        print(f"  {row['name']:<45} {row['median']:7.1f} {row['p10']:7.1f} {row['p90']:7.1f} µs")
    for row in group["ratios"]:
        limit = "no limit"
        if row["limit"]:
            limit = f"limit {row['limit']:.2f}, aim {row['aim']:.2f}"
            limit += "  MISSED" if row["missed"] else ""
        name = f"ours / {row['against']}"
        print(f"  {name:<45} {row['median']:7.3f} {row['p10']:7.3f} {row['p90']:7.3f} x  {limit}")


def show_server(told: dict) -> None:
    print("\nround trips to the server" + " " * 23 + "limit")
    for row in told["round_trips"]:
        missed = "  MISSED" if row["missed"] else ""
        names = ", ".join(row["commands"])
        print(f"  {row['step']:<39} {row['round_trips']:4d}  {row['limit']:4d}  {names}{missed}")
    print(f"\nMEMORY USAGE of one key, Redis {told['redis']:<12} bytes  limit")
    for row in told["memory"]:
        missed = "  MISSED" if row["missed"] else ""
        print(f"  {row['what']:<37} {row['bytes']:7d} {row['limit']:6d}  {row['key']}{missed}")


def measure(server: RedisServer, requests: int, told: dict) -> None:
    """Measure everything and show it as it comes."""
    tell_versions(server, PACKAGES, told)
    told["round_trips"] = round_trips(server.url)
    told["memory"] = memory(server.url)
    show_server(told)
    told["groups"] = []
    for title, compared in groups(server.url).items():
        group = compare(title, compared, requests)
        told["groups"].append(group)
        show_group(group)


if __name__ == "__main__":
    sys.exit(run(__doc__, measure))
