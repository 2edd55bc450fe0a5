#!/usr/bin/env python3
"""Measure what the extension adds to a request, in ratios that hold on any machine.

The same request goes, in turn and in one process, to a guarded view, to a view that only sends
the store's commands ("floor"), and to the lines that a developer would write by hand. A Redis
server is started on loopback, and the bytes of each key are told. `uv run --with hiredis` measures
redis-py with its other parser. The table at the end has a line for each aim.
"""

import sys
from pathlib import Path

from flask import Flask

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.servers.processes import RedisServer
from measuring.aims import aim, verdict
from measuring.command import (
    finish,
    microseconds,
    parser_of,
    positive,
    print_versions,
    quiet,
    row_of,
)
from measuring.redis_costs import memory
from measuring.timing import Variant, difference, interleave
from modes import lock_mode
from modes.comparison import CASES, UNGUARDED, Case, compare
from modes.order_app import answer, application, orders, storage
from redis.utils import HIREDIS_AVAILABLE

from flask_idempotence import Idempotence, no_repeat_submit

MEMORY = "memory://"
PARSER = ", hiredis" if HIREDIS_AVAILABLE else ""
UNGUARDED_LIMIT = 2.0
"""Microseconds by which the extension may delay a route without a guard."""


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--requests",
        type=positive,
        default=5000,
        metavar="N",
        help="requests of each variant (default: %(default)s)",
    )
    arguments = parser.parse_args()
    requests = arguments.requests
    quiet()
    with RedisServer() as server:
        print_versions("flask", "werkzeug", "redis", "itsdangerous", Redis=server.version)
        sizes = memory(server.url)
        _show_memory(sizes)
        on_redis = [
            row
            for socket, url in (("tcp", server.url), ("unix", server.unix_url))
            for case in CASES
            if case.limits
            for row in _compare(case, case.limits, url, socket + PARSER, requests)
        ]
    in_memory = [
        row
        for case in CASES
        if case.in_memory
        for row in _compare(case, {UNGUARDED: case.in_memory}, MEMORY, "memory", requests)
    ]
    in_memory.append(_unguarded_route(requests))
    return finish(arguments, on_redis, in_memory, missed=sum(row["missed"] for row in sizes))


def _compare(case: Case, limits: dict[str, float], uri: str, at: str, requests: int) -> list[dict]:
    """Measure one case, and show it; return the rows of its aims."""
    told = compare(case, at, uri, requests)
    name = f"{case.mode}, {case.what}"
    rows = [
        aim(f"{name} / {other}", told["ratios"][other]["median"], limit, at=at)
        for other, limit in limits.items()
    ]
    _show(f"{name}, {at}", told["times"], rows, [told["ratios"][other] for other in limits])
    return rows


def _unguarded_route(requests: int) -> dict:
    """Measure a route without a guard, in an application with the extension and in one without."""
    within, without = (
        Variant(name, _with_another_route(name, has_extension), orders)
        for name, has_extension in (("with the extension", True), ("without it", False))
    )
    title = "a route without a guard"
    interleave(title, [within, without], requests)
    added = {name: value / 1000 for name, value in row_of(difference(within, without), 0).items()}
    name = "no guard, µs added by the extension"
    row = aim(name, added["median"], UNGUARDED_LIMIT, at="memory")
    times = {one.name: row_of(microseconds(one.nanoseconds), 1) for one in (within, without)}
    _show(title, times, [row], [added])
    return row


def _with_another_route(name: str, has_extension: bool) -> Flask:
    """Return an application with an unguarded route, and another that is guarded if it can be."""
    app = application(name, **(storage(MEMORY) if has_extension else {}))
    other = no_repeat_submit(interval=lock_mode.INTERVAL)(answer) if has_extension else answer
    app.add_url_rule("/other", "other", other, methods=["POST"])
    if has_extension:
        Idempotence(app)
    return app


def _show(title: str, times: dict, rows: list[dict], spreads: list[dict]) -> None:
    print(f"\n{title:<44}  median     p10     p90")
    for name, row in times.items():
        print(f"  {name:<42} {row['median']:7.1f} {row['p10']:7.1f} {row['p90']:7.1f} µs")
    for row, spread in zip(rows, spreads, strict=True):
        median, p10, p90 = spread.values()
        aimed = f"aim {row['limit']:.2f}  {verdict(row['missed'])}"
        print(f"  {row['aim']:<42} {median:7.3f} {p10:7.3f} {p90:7.3f}    {aimed}")


def _show_memory(rows: list[dict]) -> None:
    print(f"\n{'MEMORY USAGE of one key, bytes':<40} {'':>7}     aim")
    for row in rows:
        count = f"{row['bytes']:7d} {row['limit']:7d}"
        print(f"  {row['record']:<38} {count}  {verdict(row['missed'])}  {row['key']}")


if __name__ == "__main__":
    sys.exit(main())
