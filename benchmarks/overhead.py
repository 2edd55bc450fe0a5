#!/usr/bin/env python3
"""Measure what the extension adds to a request, in ratios that hold on any machine.

The same request goes, in turn and in one process, to a guarded view, to a view that only sends
the store's commands ("floor"), and to the lines that a developer would write by hand. A Redis
server is started on loopback, and the bytes of each key are told. `uv run --with hiredis` measures
redis-py with its other parser. The table at the end has a line for each aim.

The view reads its JSON of 100 bytes, 10 kB and 100 kB; another one does not read it. With
`--with "aws-lambda-powertools[aws-sdk,redis]"`, the same view is measured behind Powertools, too.

    uv run --with hiredis python benchmarks/overhead.py --against 2c4014d --requests 1000
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from flask import Flask

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.servers.processes import RedisServer
from measuring.against import compare_with
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
from measuring.machine import in_words, machine
from measuring.pages import table
from measuring.redis_costs import memory
from measuring.timing import Variant, difference, interleave
from modes import key_mode, lock_mode, powertools_mode
from modes.comparison import (
    BY_HAND,
    CASES,
    FIRST,
    LONG,
    READ_IN_MEMORY,
    UNGUARDED,
    UNREAD_IN_MEMORY,
    Case,
    compare,
)
from modes.comparison import UNREAD as UNREAD_LIMITS
from modes.order_app import WORK, Work, answer, application, orders, plain, storage
from redis.utils import HIREDIS_AVAILABLE

from flask_idempotence import Idempotence, no_repeat_submit

MEMORY = "memory://"
PARSER = ", hiredis" if HIREDIS_AVAILABLE else ""
READ, UNREAD = Work(), Work(reads=False)
LONG_BODIES = Work(10_000), Work(100_000)
JSON_ONLY = "--json" in sys.argv
UNGUARDED_LIMIT = 2.0
"""Microseconds by which the extension may delay a route without a guard."""


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--requests",
        type=positive,
        default=5000,
        metavar="N",
        help="requests of each variant (default: %(default)s); a tenth for 10 and 100 kB",
    )
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help="compare with a commit, in processes that take turns; no aims",
    )
    parser.add_argument(
        "--rounds", type=positive, default=5, metavar="N", help="processes of each tree"
    )
    parser.add_argument("--json", action="store_true", help="print ratios to by hand, as JSON")
    arguments = parser.parse_args()
    requests = arguments.requests
    quiet()
    if arguments.against:
        compare_with(arguments.against, arguments.rounds, ["--requests", str(requests)])
        return 0
    with RedisServer() as server:
        if arguments.json:
            print(json.dumps(_by_hand(server.unix_url, requests)))
            return 0
        print_versions("flask", "werkzeug", "redis", "itsdangerous", Redis=server.version)
        told = machine(
            **{name: version(name) for name in ("flask", "redis")}, Redis=server.version
        )
        sizes = memory(server.url)
        _show_memory(sizes)
        on_redis = [
            row
            for socket, url in (("tcp", server.url), ("unix", server.unix_url))
            for row in _on_redis(url, socket + PARSER, requests)
        ]
        beside = _beside_powertools(server.unix_url, requests)
    in_memory = [row for work in (READ, UNREAD) for row in _in_memory(work, requests)]
    in_memory.append(_unguarded_route(requests))
    parts = [part for part in (on_redis, in_memory, beside) if part]
    return finish(
        arguments,
        *parts,
        missed=sum(row["missed"] for row in sizes),
        note=f"{in_words(told)} {requests:,} requests of each variant, a tenth for 10 and 100 kB.",
        summary=_summary(on_redis, beside),
    )


def _summary(on_redis: list[dict], beside: list[dict]) -> str:
    """Return what a user wants to know: two figures, and a table for each view and body."""
    value = {row["aim"]: f"{row['value']:.2f}" for row in on_redis if row["at"].startswith("tcp")}

    def to_hand(mode: str, what: str, work: Work) -> str:
        return value.get(f"{mode}, {what}, {work.name} / {BY_HAND}", "")

    kinds = (("lock", FIRST), ("key", FIRST), ("key", "replay"))
    lock, key = (to_hand(mode, FIRST, READ) for mode in ("lock", "key"))
    lines = [
        [work.name.replace(",", " of JSON,"), *(to_hand(*kind, work) for kind in kinds)]
        for work in (READ, UNREAD, *LONG_BODIES)
    ]
    text = (
        f"**A view that reads its JSON of 100 bytes takes {lock} times as long behind a lock as "
        f"behind the same guard written by hand, and {key} times behind a key.**\n\n"
        + table(["times as long as with a guard by hand", "lock", "key", "replay"], lines)
    )
    if beside:
        first, replay = (f"{row['value']:.2f}" for row in beside)
        text += (
            f"\n\nWhat a key adds to a first request is {first} of what AWS Lambda Powertools "
            f"adds to the same view, and to a replay {replay} ([how]"
            "(reports/aims.md#compared-with-powertools))."
        )
    return text


def _on_redis(uri: str, at: str, requests: int) -> list[dict]:
    """Measure each case with each body and view that has an aim."""
    rows = []
    for work in (READ, UNREAD, *LONG_BODIES):
        for case in CASES:
            if limits := _limits(case, work):
                few = max(100, requests // 10)
                count = requests if work.bytes == READ.bytes else few
                rows += _compare(case, work, limits, uri, at, count)
    return rows


def _limits(case: Case, work: Work) -> dict[str, float]:
    if work == READ:
        return case.limits
    unread = UNREAD_LIMITS.get((case.mode, case.what))
    if unread is None:
        return {}
    return {BY_HAND: unread if work == UNREAD else LONG}


def _in_memory(work: Work, requests: int) -> list[dict]:
    limits = {READ.name: READ_IN_MEMORY, UNREAD.name: UNREAD_IN_MEMORY}
    return _compare(CASES[0], work, {UNGUARDED: limits[work.name]}, MEMORY, "memory", requests)


def _beside_powertools(uri: str, requests: int) -> list[dict]:
    """Compare what each adds to the same view, in this run; nothing where it is not installed."""
    if not powertools_mode.IS_INSTALLED:
        print("left out: Powertools; uv run --with 'aws-lambda-powertools[aws-sdk,redis]'")
        return []
    rows = []
    for what, ours, its, limit in (
        ("a first request", key_mode.ours, powertools_mode.first, 1.0),
        ("a replay", key_mode.our_replay, powertools_mode.replay, 0.45),
    ):
        bare, mine, other = plain(key_mode.first_requests), ours(uri), its(uri)
        interleave(f"{what} beside Powertools", [bare, mine, other], requests)
        added = [difference(each, bare).median / 1000 for each in (mine, other)]
        print(f"\n{what} adds {added[0]:.0f} µs, with Powertools {added[1]:.0f} µs")
        rows.append(aim(f"{what} adds / Powertools", added[0] / added[1], limit, at="unix"))
    return rows


def _by_hand(uri: str, requests: int) -> dict[str, float]:
    """Return the ratio of each case to the same guard by hand."""
    rows = _on_redis(uri, "unix", requests)
    return {row["aim"]: row["value"] for row in rows if row["aim"].endswith(BY_HAND)}


def _compare(
    case: Case, work: Work, limits: dict[str, float], uri: str, at: str, requests: int
) -> list[dict]:
    """Measure one case, and show it; return the rows of its aims."""
    vars(WORK).update(vars(work))
    told = compare(case, at, uri, requests)
    vars(WORK).update(vars(READ))
    name = f"{case.mode}, {case.what}, {work.name}"
    rows = [
        aim(f"{name} / {other}", told["ratios"][other]["median"], limit, at=at)
        for other, limit in limits.items()
    ]
    if not JSON_ONLY:
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
