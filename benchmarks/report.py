#!/usr/bin/env python3
"""Measure modes and a service once more, and write docs/reports/benchmarks/report.md.

    uv run python benchmarks/report.py            # all of it, in 20 minutes
    uv run python benchmarks/report.py --quick    # whether it works; elsewhere

Parts: each mode on each store (modes), and the throughput of a whole service, which needs wrk
(service). A part that is measured alone replaces its own section.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import service
from measuring.command import quiet
from measuring.machine import in_words, machine
from measuring.pages import table
from measuring.stores import REDIS, Stores, open_stores, requests_for
from modes.comparison import CASES, FIRST, FLOOR, OTHERS, UNGUARDED, compare

DIRECTORY = Path(__file__).parents[1] / "docs" / "reports" / "benchmarks"
PACKAGES = ("flask", "redis")
REQUESTS, QUICK_REQUESTS = 3000, 20
INTRODUCTION = """\
# Benchmark report

The cost of every mode on every store, measured. One command writes this page and
[`report.json`](report.json):

```sh
uv run python benchmarks/report.py
```

- Times are medians, in microseconds unless another unit is named.
- Ratios compare requests that were sent in turn in one process, so that other load slows both. In
  parentheses: the same ratio over blocks of 100 requests, 10th to 90th percentile.
- Requests go directly to the application, without a network; Redis and the databases are on the
  same machine.

[Overhead](../../overhead.md) has memory, shards and network, [the aims](../aims.md) what a guard
may cost. [Earlier measurements](earlier.md) has live keys, simultaneous duplicates, bodies, and
each step of a request."""
MODES = """\
## Each mode on each store

- *Ours*: the guarded view. It reads its JSON and answers; a slower view does not make the guard
  slower.
- *Unguarded*: the same view without a guard.
- *By hand*: the guard that a developer might write with the same store. It reads the body, hashes
  it with the identity, queries the store, and for a key keeps the answer.
- *Floor*: a view that sends the same operations with random keys and does nothing else; for a
  replay or a refusal it sends one and has its answer ready.

By hand and floor send the extension's scripts through redis-py on Redis, and execute plain
statements through SQLAlchemy in a database, each with its own commit. In a database, a repeat by
hand begins with an INSERT, for which PostgreSQL locks the row and flushes. Databases have their
default settings, flush to the disk, and get a quarter of the requests."""
WHERE_THE_TIME_GOES = """\
## Where the time goes

Mostly into the store's commands. On Redis over TCP, *added* is the time beyond the view without a
guard, and *commands* what the floor adds: the same ones, sent by redis-py. A floor that does not
run the view has no such share."""
SERVICE = """\
## A whole service

Gunicorn with two workers of eight threads, Redis over TCP, `wrk` with sixteen connections, all on
the same two cores. The view *database* reads JSON, waits for 5 ms and answers; *plain* has no
guard; *floor* sends the lock's command through redis-py and nothing else. They take turns in
rounds. A ratio is the median over the rounds, in parentheses the 10th to 90th percentile, to the
unguarded view of the same round.

[The aims](../aims.md#a-whole-service) has a view that does nothing but read JSON, from a run of
its own: `benchmarks/service.py`, which needs an idle machine."""
BESIDE_PEERS = """\
## Compared with other libraries

[The comparison](../../comparison.md) has the outcome, [its report](../peers.md) every case; the
results are in [`peers-correctness.json`](peers-correctness.json) and
[`peers-speed.json`](peers-speed.json).
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=[*PARTS], action="append", help="may be repeated")
    parser.add_argument(
        "--quick", action="store_true", help="short rounds: shows that it works, measures nothing"
    )
    parser.add_argument("--directory", type=Path, help="for the page and the figures")
    arguments = parser.parse_args()
    quiet()
    elsewhere = tempfile.mkdtemp(prefix="report-") if arguments.quick else DIRECTORY
    directory = arguments.directory or Path(elsewhere)
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "report.json"
    report = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    began = time.monotonic()
    with open_stores() as stores:
        for line in stores.left_out:
            print(line)
        for part in arguments.only or PARTS:
            report[part] = _measure(part, stores, arguments.quick)
            file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (directory / "report.md").write_text(page_of(report), encoding="utf-8")
    print(f"written in {time.monotonic() - began:.0f} s: {directory / 'report.md'}")
    return 0


def _measure(part: str, stores: Stores, is_quick: bool) -> dict:
    """Return what the report keeps of a part."""
    print(f"... {part}", file=sys.stderr, flush=True)
    began = time.monotonic()
    with stores.redis.client() as client:
        client.flushall()
    told = machine(**stores.versions, **{name: version(name) for name in PACKAGES})
    rows = PARTS[part][0](stores, is_quick)
    print(f"{part}: {len(rows)} rows in {time.monotonic() - began:.0f} s")
    return {"machine": told, "rows": rows, "left out": stores.left_out if part == "modes" else []}


def _measure_modes(stores: Stores, is_quick: bool) -> list[dict]:
    requests = QUICK_REQUESTS if is_quick else REQUESTS
    uris = stores.uris()
    return [
        compare(case, name, uri, requests_for(name, requests))
        for case in CASES
        for name, uri in uris.items()
    ]


def _measure_service(stores: Stores, is_quick: bool) -> list[dict]:
    rounds, seconds = (1, 1) if is_quick else (15, 2)
    return service.measure(stores.redis, rounds, seconds, views=("database",))


def page_of(report: dict) -> str:
    """Return the page with a section for each part that was measured."""
    parts = [INTRODUCTION]
    for name, (_, section) in PARTS.items():
        if told := report.get(name):
            parts += [*section(told["rows"]), *told["left out"], in_words(told["machine"])]
    return "\n\n".join([*parts, BESIDE_PEERS])


def _modes(rows: list[dict]) -> list[str]:
    head = ["mode", "request", "store", *(f"{name}, µs" for name in ("ours", *OTHERS))]
    head += [f"ours to {name}" for name in OTHERS]
    body = [
        [
            *(row[name] for name in ("mode", "what", "store")),
            *(_median(row["times"].get(name)) for name in ("ours", *OTHERS)),
            *(_spread(row["ratios"].get(name)) for name in OTHERS),
        ]
        for row in rows
    ]
    return [MODES, table(head, body), WHERE_THE_TIME_GOES, _where_the_time_goes(rows)]


def _where_the_time_goes(rows: list[dict]) -> str:
    body = []
    for row in rows:
        if row["store"] == REDIS:
            ours, bare, floor = (row["times"][of]["median"] for of in ("ours", UNGUARDED, FLOOR))
            added, commands = ours - bare, floor - bare
            cells = [f"{commands:.0f}", f"{added - commands:.0f}", f"{commands / added:.0%}"]
            runs = row["what"] == FIRST
            name = f"{row['mode']}: {row['what']}"
            body.append([name, f"{added:.0f}", *(cells if runs else [""] * len(cells))])
    head = ["request", "added, µs", "commands, µs", "the rest, µs", "share of commands"]
    return table(head, body)


def _service(rows: list[dict]) -> list[str]:
    if not rows:
        return ["## A whole service", "Not measured: `wrk` is not installed."]
    rate, p50, p99 = "requests a second", "p50, ms", "p99, ms"
    body = []
    for row in rows:
        share = _spread(row["of the unguarded"])
        cells = [f"{row[rate]:,}", share, str(row[p50]), str(row[p99])]
        body.append([row["view"], row["guard"], *cells])
    return [SERVICE, table(["view", "guard", rate, "of the unguarded", p50, p99], body)]


def _median(row: dict | None) -> str:
    return f"{row['median']:.0f}" if row else ""


def _spread(row: dict | None) -> str:
    return f"{row['median']:.2f} ({row['p10']:.2f} to {row['p90']:.2f})" if row else ""


Measure = Callable[[Stores, bool], list[dict]]
Section = Callable[[list[dict]], list[str]]
PARTS: dict[str, tuple[Measure, Section]] = {
    "modes": (_measure_modes, _modes),
    "service": (_measure_service, _service),
}


if __name__ == "__main__":
    sys.exit(main())
