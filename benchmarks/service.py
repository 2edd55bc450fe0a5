#!/usr/bin/env python3
"""Compare the throughput of a guarded service with that of an unguarded one.

Gunicorn with two workers, wrk and Redis share the machine's cores. Each route gets its requests in
turn, in rounds; every request has a body and a key of its own, and must be answered with 200.

    uv run python benchmarks/service.py                  # threads
    uv run --with gevent python benchmarks/service.py    # and greenlets
"""

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.servers.processes import HOST, Gunicorn, RedisServer
from measuring.aims import aim
from measuring.command import finish, parser_of, positive, print_versions, quiet, row_of
from measuring.timing import Spread

CONNECTIONS = 16
VIEWS = ("fast", "database")
GUARDS = ("plain", "floor", "lock", "key")
"""`floor` sends the lock's one command by redis-py: what a lock costs at least, by hand."""
LEAST = {"lock": 0.75, "key": 0.60}
"""The least throughput of a fast view behind each guard, of the unguarded."""

P99_AT_MOST = 1.5
WORKERS = ("gthread", "gevent")
SCRIPT = """
local sent, run = 0, os.getenv("RUN")
local fill = string.rep("x", tonumber(os.getenv("BYTES")))
wrk.method = "POST"
request = function()
  sent = sent + 1
  local headers = {["Content-Type"] = "application/json",
                   ["Idempotency-Key"] = run .. "-" .. sent}
  return wrk.format(nil, nil, headers, '{"order": "' .. run .. '-' .. sent ..
    '", "note": "' .. fill .. '"}')
end
done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format('\\n{"requests": %d, "microseconds": %d, "errors": %d, "p50": %.1f, ' ..
    '"p99": %.1f}\\n', summary.requests, summary.duration, errors.connect + errors.status +
    errors.read + errors.write + errors.timeout, latency:percentile(50), latency:percentile(99)))
end
"""


def measure(
    redis: RedisServer,
    rounds: int,
    seconds: int,
    *,
    views: tuple[str, ...] = VIEWS,
    worker_class: str = "gthread",
    size: int = 50,
) -> list[dict]:
    """Load each route in turn, and return a row for each; none where wrk is not installed.

    Args:
        redis: the server that the application stores in; it is emptied.
        rounds: the rounds of each route.
        seconds: the seconds of a round.
        views: the views of `guarded_service`.
        worker_class: of Gunicorn's two workers.
        size: the bytes of the body, beside some fifty.
    """
    if not shutil.which("wrk"):
        print("... wrk is not installed: no throughput", file=sys.stderr)
        return []
    routes = [f"/{guard}/{view}" for view in views for guard in GUARDS]
    results = {route: [] for route in routes}
    options = {"threads": 8} if worker_class == "gthread" else {}
    environment = {"IDEMPOTENCE_STORAGE_URI": redis.url}
    with Gunicorn(
        "guarded_service:app",
        workers=2,
        worker_class=worker_class,
        env=environment,
        cwd=Path(__file__).parent,
        **options,
    ) as gunicorn:
        for number in range(rounds + 1):
            print(f"... throughput: round {number} of {rounds}", file=sys.stderr, flush=True)
            for route in routes:
                result = _load(redis, gunicorn.port, route, seconds if number else 1, size)
                if number:  # the first warms up
                    results[route].append(result)
            routes.append(routes.pop(0))
    return [_row(route, results) for route in results]


def _load(redis: RedisServer, port: int, route: str, seconds: int, size: int) -> dict:
    """Load a route for some seconds; check that every request was a first one, with a 200."""
    redis.client().flushall()
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT)
        script.flush()
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", script.name]
        environment = {**os.environ, "RUN": os.urandom(8).hex(), "BYTES": str(size)}
        done = subprocess.run(
            [*command, f"http://{HOST}:{port}{route}"],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
        )
    result = json.loads(done.stdout.splitlines()[-1])
    if result["errors"]:
        raise RuntimeError(f"{route}: {result['errors']} of {result['requests']} requests failed")
    if route.startswith("/key") and redis.client().dbsize() < result["requests"]:
        raise RuntimeError(f"{route}: fewer records than {result['requests']} requests")
    return result


def _row(route: str, results: dict[str, list[dict]]) -> dict:
    _, guard, view = route.split("/")
    mine, plain = results[route], results[f"/plain/{view}"]
    rates = [_rate(result) for result in mine]
    ratios = [_rate(own) / _rate(bare) for own, bare in zip(mine, plain, strict=True)]
    tails = [own["p99"] / bare["p99"] for own, bare in zip(mine, plain, strict=True)]
    return {
        "view": view,
        "guard": guard,
        "requests a second": round(statistics.median(rates)),
        "of the unguarded": row_of(Spread.of(ratios), 3),
        "p50, ms": round(statistics.median(result["p50"] for result in mine) / 1000, 2),
        "p99, ms": round(statistics.median(result["p99"] for result in mine) / 1000, 2),
        "p99 to the unguarded": row_of(Spread.of(tails), 3),
    }


def _rate(result: dict) -> float:
    return result["requests"] / result["microseconds"] * 1e6


def _aims(row: dict, at: str) -> list[dict]:
    guard = row["guard"]
    if guard not in LEAST:
        return []
    name = guard if row["view"] == "fast" else f"{guard}, {row['view']}"
    rate, tail = row["of the unguarded"]["median"], row["p99 to the unguarded"]["median"]
    return [
        aim(f"{name}: throughput", rate, LEAST[guard], at=at, at_least=True),
        aim(f"{name}: 99th percentile", tail, P99_AT_MOST, at=at),
    ]


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=positive, default=10, metavar="N")
    parser.add_argument("--seconds", type=positive, default=2, metavar="N", help="of each round")
    parser.add_argument("--workers", choices=WORKERS, help="the worker class (default: each)")
    parser.add_argument(
        "--bytes", type=positive, default=50, metavar="N", help="of the body, beside some fifty"
    )
    arguments = parser.parse_args()
    quiet()
    if not shutil.which("wrk"):
        parser.error("wrk is not installed")
    aims = []
    for worker in [arguments.workers] if arguments.workers else WORKERS:
        if worker == "gevent" and not importlib.util.find_spec("gevent"):
            print("left out: gevent, which is not installed")
            continue
        with RedisServer() as redis:
            print_versions("flask", "gunicorn", "redis", Redis=redis.version)
            rows = measure(
                redis,
                arguments.rounds,
                arguments.seconds,
                views=("fast", "unread"),
                worker_class=worker,
                size=arguments.bytes,
            )
        aims += [aim for row in rows for aim in _aims(row, worker)]
        _show(worker, rows)
    return finish(arguments, aims)


def _show(worker: str, rows: list[dict]) -> None:
    print(f"\n{worker:<18} requests/s  of the unguarded (p10 to p90)   p50, ms   p99, ms")
    for row in rows:
        median, p10, p90 = row["of the unguarded"].values()
        share = f"{median:.3f} ({p10:.3f} to {p90:.3f})"
        print(
            f"  {row['guard'] + ', ' + row['view']:<16} {row['requests a second']:10} {share:>30} "
            f"{row['p50, ms']:9.2f} {row['p99, ms']:9.2f}"
        )


if __name__ == "__main__":
    sys.exit(main())
