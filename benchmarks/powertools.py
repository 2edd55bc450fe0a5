#!/usr/bin/env python3
"""Compare key mode with AWS Lambda Powertools' `idempotent_function` on Redis.

Both guard the same Flask route, in one process, one run, requests interleaved, over redis-py's
synchronous client and TCP to the same server, which is started on loopback. The figure is the time
that each adds to a request: its median less that of the route without a guard.

    uv run --group bench python benchmarks/powertools.py
"""

import sys
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import redis
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer
from flask import request
from helpers.servers.processes import RedisServer
from measuring.aims import Table, aim, rows_of
from measuring.command import finish, microseconds, parser_of, quiet, row_of, versions_of
from measuring.timing import Variant, added, interleave
from modes import key_mode
from modes.order_app import answer, application, plain

LIMITS = {"first request": 0.75, "replay": 0.33}
"""Ours to theirs at most, where both compare the same."""

FULL = "Powertools, full"
SETTINGS = """\
Both: a remembered response lives for a day. Ours: @idempotent(required=True), else the defaults.
It scopes the key by sender, endpoint and method, compares method, query and body with those of the
first request, and remembers status, headers and body.
Powertools: expires_after_seconds as ours; a Lambda context with 30 s of remaining time, as its
documentation demands (without one it warns at every call, and the claim of a process that died
stays); md5 and no local cache, which are its defaults. It remembers the function's return value.
  full   event_key_jmespath="[sender, key]" and, on first requests,
         payload_validation_jmespath="body". Not on replays: in its Redis persistence (3.37), the
         record of a completed call has lost the hash of the payload, and every replay raises
         IdempotencyValidationError.
  least  the key alone, as data_keyword_argument.
  cached full and validating, with use_local_cache: a replay that comes to the process of the
         first request is answered from its memory, without Redis."""


class Lambda:
    """The part of a Lambda context that Powertools reads."""

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return key_mode.LEASE * 1000


def full(url: str, *, validates: bool, cached: bool = False):
    """Return a view whose Powertools settings are as complete as our defaults."""
    config = IdempotencyConfig(
        event_key_jmespath="[sender, key]",
        payload_validation_jmespath="body" if validates else "",
        expires_after_seconds=key_mode.TTL,
        use_local_cache=cached,
        lambda_context=Lambda(),
    )

    @idempotent_function(
        data_keyword_argument="call", config=config, persistence_store=_persistence(url)
    )
    def create(*, call: dict) -> dict:
        del call
        return answer()

    def view() -> dict:
        sender = request.headers.get("Authorization") or request.remote_addr
        key = request.headers["Idempotency-Key"]
        return create(call={"sender": sender, "key": key, "body": request.get_json()})

    return view


def least(url: str):
    """Return a view in which Powertools takes the key alone."""
    config = IdempotencyConfig(expires_after_seconds=key_mode.TTL, lambda_context=Lambda())

    @idempotent_function(
        data_keyword_argument="key", config=config, persistence_store=_persistence(url)
    )
    def create(*, key: str) -> dict:
        del key
        return answer()

    def view() -> dict:
        return create(key=request.headers["Idempotency-Key"])

    return view


def _persistence(url: str) -> CachePersistenceLayer:
    with warnings.catch_warnings():
        # The name that is to be used is one for the class that is not.
        warnings.simplefilter("ignore", DeprecationWarning)
        return CachePersistenceLayer(client=redis.Redis.from_url(url))


def first(name: str, view) -> Variant:
    return Variant(name, application(name, view), key_mode.first_requests)


def replay(name: str, view) -> Variant:
    app = application(name, view)
    return Variant(name, app, key_mode.replays(app), replays=True)


def groups(url: str) -> dict[str, list[Variant]]:
    """Return the variants of each group: no guard, ours, bare round trips, and theirs."""
    return {
        "first request": [
            plain(key_mode.first_requests),
            key_mode.ours(url),
            key_mode.floor(url),
            first(FULL, full(url, validates=True)),
            first("Powertools, least", least(url)),
        ],
        "replay": [
            plain(key_mode.first_requests),
            key_mode.our_replay(url),
            key_mode.replay_floor(url),
            replay(FULL, full(url, validates=False)),
            replay("Powertools, least", least(url)),
            replay("Powertools, cached", full(url, validates=True, cached=True)),
        ],
    }


def compare(title: str, compared: list[Variant], requests: int) -> dict:
    """Measure one group and return its part of the report."""
    interleave(title, compared, requests)
    bare, ours, *others = compared
    base = microseconds(bare.nanoseconds).median
    result = {"title": title, "variants": [], "ratios": []}
    for variant in compared:
        times = microseconds(variant.nanoseconds)
        row = {"name": variant.name, **row_of(times, 1)}
        result["variants"].append({**row, "added": round(times.median - base, 1)})
    for variant in others:
        against = added(ours, variant, bare)
        result["ratios"].append({"against": variant.name, **row_of(against, 3)})
        if variant.name == FULL:
            name = f"added to a {title}"
            result["aims"] = [aim(name, against.median, LIMITS[title], at="TCP")]
    return result


def show_group(group: dict) -> None:
    print(f"\n{group['title']:<44}  median     p10     p90   added")
    for row in group["variants"]:
        times = " ".join(f"{row[name]:7.1f}" for name in ("median", "p10", "p90", "added"))
        print(f"  {row['name']:<42} {times} µs")
    for row in group["ratios"]:
        name = f"added, ours / {row['against']}"
        print(f"  {name:<42} {row['median']:7.3f} {row['p10']:7.3f} {row['p90']:7.3f}")


def main() -> int:
    """Run the benchmark from the command line; return the status to exit with."""
    arguments = parser_of(__doc__).parse_args()
    quiet()
    report = {"groups": []}
    with RedisServer() as server:
        report["versions"] = versions_of(
            "flask", "redis", "aws-lambda-powertools", Redis=server.version
        )
        print(SETTINGS)
        for title, compared in groups(server.url).items():
            group = compare(title, compared, arguments.requests)
            report["groups"].append(group)
            show_group(group)
    return finish(report, arguments, {"ours / Powertools, full": Table(rows_of(report))})


if __name__ == "__main__":
    sys.exit(main())
