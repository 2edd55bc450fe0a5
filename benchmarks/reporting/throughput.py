"""Throughput and latency of a whole service: guarded against unguarded, under Gunicorn, by wrk."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers.servers.processes import HOST, Gunicorn
from measuring.command import row_of
from measuring.timing import Spread
from reporting.stores import Stores

CONNECTIONS = 16
VIEWS = ("fast", "database")
GUARDS = ("plain", "lock", "key")
SCRIPT = """
local sent, run = 0, os.getenv("RUN")
wrk.method = "POST"
request = function()
  sent = sent + 1
  local headers = {["Content-Type"] = "application/json",
                   ["Idempotency-Key"] = run .. "-" .. sent}
  return wrk.format(nil, nil, headers, '{"order": "' .. run .. '-' .. sent .. '"}')
end
done = function(summary, latency)
  io.write(string.format('\\n{"requests": %d, "microseconds": %d, "errors": %d, "p50": %.1f, ' ..
    '"p99": %.1f}\\n', summary.requests, summary.duration, summary.errors.status +
    summary.errors.read + summary.errors.timeout, latency:percentile(50), latency:percentile(99)))
end
"""


def measure(stores: Stores, rounds: int, seconds: int) -> list[dict]:
    """Send each route so many rounds of requests, in turn; return a row for each."""
    if not shutil.which("wrk"):
        print("... wrk is not installed: no throughput", file=sys.stderr)
        return []
    routes = [f"/{guard}/{view}" for view in VIEWS for guard in GUARDS]
    told = {route: [] for route in routes}
    environment = {"IDEMPOTENCE_STORAGE_URI": stores.redis.url}
    here = Path(__file__).parent
    with Gunicorn(
        "guarded_service:app", workers=2, threads=8, env=environment, cwd=here
    ) as gunicorn:
        for number in range(rounds + 1):
            print(f"... throughput: round {number} of {rounds}", file=sys.stderr, flush=True)
            for route in routes:
                got = _load(gunicorn.port, route, seconds if number else 1)
                if number:  # the first warms up
                    told[route].append(got)
            routes.append(routes.pop(0))
    return [_row(route, told) for route in told]


def _load(port: int, route: str, seconds: int) -> dict:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT)
        script.flush()
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", script.name]
        environment = {**os.environ, "RUN": os.urandom(8).hex()}
        done = subprocess.run(
            [*command, f"http://{HOST}:{port}{route}"],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
        )
    got = json.loads(done.stdout.splitlines()[-1])
    if got["errors"]:
        raise RuntimeError(f"{route}: {got['errors']} requests of {got['requests']} failed")
    return got


def _row(route: str, told: dict[str, list[dict]]) -> dict:
    _, guard, view = route.split("/")
    rates = [got["requests"] / got["microseconds"] * 1e6 for got in told[route]]
    plain = [got["requests"] / got["microseconds"] * 1e6 for got in told[f"/plain/{view}"]]
    ratios = [mine / its for mine, its in zip(rates, plain, strict=True)]
    return {
        "view": view,
        "guard": guard,
        "requests a second": round(statistics.median(rates)),
        "of the unguarded": row_of(Spread.of(ratios), 3),
        "p50, ms": round(statistics.median(got["p50"] for got in told[route]) / 1000, 2),
        "p99, ms": round(statistics.median(got["p99"] for got in told[route]) / 1000, 2),
    }
