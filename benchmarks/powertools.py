#!/usr/bin/env python3
"""Compare key mode with AWS Lambda Powertools' `idempotent_function` on Redis.

Both guard the same Flask route, in one process, one run, requests interleaved, over redis-py's
synchronous client and TCP to the same server, which is started for it on loopback. Told is the
time that each adds to a request: its median less that of the route without a guard.

    uv run --group bench python benchmarks/powertools.py
"""

import sys
import warnings

import redis
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer
from flask import request
from measuring.command import RedisServer, microseconds, row_of, run, tell_versions
from measuring.timing import Variant, added, interleave
from modes import key_mode
from modes.order_app import answer, application, plain

PACKAGES = ("flask", "redis", "aws-lambda-powertools")
FULL = "Powertools, full"
SETTINGS = """\
Both: a remembered response lives for a day. Ours: @idempotent(required=True), else the defaults.
It scopes the key by sender, endpoint and method, compares method, query and body with those of the
first request, and remembers status, headers and body.
Powertools: expires_after_seconds as ours; a Lambda context that tells 30 s of remaining time, as
its documentation asks for (without one it warns at every call, and the claim of a process that
died stays); md5 and no local cache, which are its defaults. It remembers what the function
returned.
  full   event_key_jmespath="[sender, key]" and, on first requests,
         payload_validation_jmespath="body". Not on replays: in its Redis persistence (3.37), the
         record of a completed call has lost the hash of the payload, and every replay raises
         IdempotencyValidationError.
  least  the key alone, as data_keyword_argument; nothing else is looked at.
  cached full and validating, with use_local_cache: a replay that comes to the process of the
         first request is answered from its memory, and Redis is not asked."""


class Lambda:
    """What Powertools asks of a Lambda context."""

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return key_mode.LEASE * 1000


def full(url: str, *, validates: bool, cached: bool = False):
    """Return a view that has Powertools look at what we look at."""
    config = IdempotencyConfig(
        event_key_jmespath="[sender, key]",
        payload_validation_jmespath="body" if validates else "",
        expires_after_seconds=key_mode.TTL,
        use_local_cache=cached,
        lambda_context=Lambda(),
    )

    @idempotent_function(
        data_keyword_argument="asked", config=config, persistence_store=_persistence(url)
    )
    def create(*, asked: dict) -> dict:
        del asked
        return answer()

    def view() -> dict:
        sender = request.headers.get("Authorization") or request.remote_addr
        key = request.headers["Idempotency-Key"]
        return create(asked={"sender": sender, "key": key, "body": request.get_json()})

    return view


def least(url: str):
    """Return a view that has Powertools look at the key, and at nothing else."""
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


def groups(url: str) -> dict[str, tuple[float, list[Variant]]]:
    """Return what is compared: the route without a guard, ours, bare round trips, and theirs.

    The number is the limit of ours to theirs where both look at the same.
    """
    return {
        "first request": (
            0.75,
            [
                plain(key_mode.first_requests),
                key_mode.ours(url),
                key_mode.floor(url),
                first(FULL, full(url, validates=True)),
                first("Powertools, least", least(url)),
            ],
        ),
        "replay": (
            0.40,
            [
                plain(key_mode.first_requests),
                key_mode.our_replay(url),
                key_mode.replay_floor(url),
                replay(FULL, full(url, validates=False)),
                replay("Powertools, least", least(url)),
                replay("Powertools, cached", full(url, validates=True, cached=True)),
            ],
        ),
    }


def compare(title: str, limit: float, compared: list[Variant], requests: int) -> dict:
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
        row = {"against": variant.name, **row_of(against, 3), "limit": None, "missed": False}
        if variant.name == FULL:
            row |= {"limit": limit, "missed": against.median > limit}
        result["ratios"].append(row)
    return result


def show(group: dict) -> None:
    print(f"\n{group['title']:<44}  median     p10     p90   added")
    for row in group["variants"]:
        times = " ".join(f"{row[name]:7.1f}" for name in ("median", "p10", "p90", "added"))
        print(f"  {row['name']:<42} {times} µs")
    for row in group["ratios"]:
        name = f"added, ours / {row['against']}"
        ratio = " ".join(f"{row[name]:7.3f}" for name in ("median", "p10", "p90"))
        limit = f"limit {row['limit']:.2f}" if row["limit"] else "no limit"
        print(f"  {name:<56} {ratio} x  {limit}{'  MISSED' if row['missed'] else ''}")


def measure(server: RedisServer, requests: int, told: dict) -> None:
    """Measure everything and show it as it comes."""
    tell_versions(server, PACKAGES, told)
    print(SETTINGS)
    told["groups"] = []
    for title, (limit, compared) in groups(server.url).items():
        group = compare(title, limit, compared, requests)
        told["groups"].append(group)
        show(group)


if __name__ == "__main__":
    sys.exit(run(__doc__, measure))
