"""What a repeat costs that the gateway answers, and what the gateway costs all others.

wrk sends the same payment again and again, then payments with new keys, through one nginx: once by
the gateway of docs/gateway, once past it. Flask is the example on two Gunicorn workers. It needs
nginx, libnginx-mod-http-lua, lua-nginx-redis, redis-server and wrk.

    uv run python benchmarks/gateway.py
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.servers.nginx_gateway import ACL, JSON, PAY, Nginx, application, send
from helpers.servers.processes import RedisServer

BODY = '{"amount": 7}'
SCRIPT = """
wrk.method = "POST"
wrk.body = '%s'
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer alice"
local count, seed = 0, "%s"
request = function()
  count = count + 1
  wrk.headers["Idempotency-Key"] = %s
  return wrk.format()
end
"""
KEYS = {"repeats": '"the same"', "first requests": "seed .. tostring(wrk.thread) .. count"}


def rate(url, script, seconds):
    """Return the requests per second that wrk reports, and how many were no success."""
    command = ["wrk", "-t1", "-c16", f"-d{seconds}s", "-s", str(script), f"{url}/api/payments"]
    report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", report)
    return float(re.search(r"Requests/sec: +([\d.]+)", report)[1]), int(failed[1]) if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=5, help="of each run (default: 5)")
    parser.add_argument("--rounds", type=int, default=5, help="in turn (default: 5)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, RedisServer() as redis:
        folder = Path(name)
        redis.client().execute_command("ACL", "SETUSER", *ACL)
        with (
            application(redis.url, folder, workers=2) as flask,
            Nginx(flask.port, redis.port) as nginx,
        ):
            headers = {"Content-Type": JSON, "Authorization": "Bearer alice"}
            first = send(flask.url, PAY, headers | {"Idempotency-Key": "the same"}, BODY.encode())
            assert first.status == 201
            ways = {"gateway": nginx.url, "past": nginx.plain_url}
            for kind, key in KEYS.items():
                rounds = []
                for turn in range(arguments.rounds):
                    rates = []
                    for way, url in ways.items():
                        script = folder / "script.lua"
                        script.write_text(SCRIPT % (BODY, f"{way}{turn}-", key))
                        told, failed = rate(url, script, arguments.seconds)
                        assert not failed, f"{failed} of {kind} failed"
                        rates.append(told)
                    rounds.append(rates)
                by_gateway, past = map(statistics.median, zip(*rounds, strict=True))
                ratios = sorted(by_gateway / past for by_gateway, past in rounds)
                print(
                    f"{kind}: {by_gateway:.0f}/s by the gateway, {past:.0f}/s past it; ratio "
                    f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
                )
            verdicts = nginx.verdicts
            print({verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))})


if __name__ == "__main__":
    main()
