#!/usr/bin/env python3
"""Turn a load into memory, shards and network, from what a key and an operation cost.

With no option it computes from the constants in capacity.json. `--measure` measures those anew,
`--docs` writes the table into docs/overhead.md.
"""

import argparse
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

CONSTANTS = Path(__file__).with_name("capacity.json")
PAGE = Path(__file__).parents[1] / "docs" / "overhead.md"
BEGIN, END = "<!-- the table: benchmarks/capacity.py --docs -->\n", "<!-- the table ends -->\n"

BUSY = 0.5
"""How much of a server's core is planned for."""

SHARD_BYTES = 16 * 2**30
"""What one server is to hold at most: a restart, or a new replica, has to load all of it."""

SPARE = 1.25
"""Memory is planned for with a quarter more: fragmentation, buffers, growth."""

EXPIRY = 32
"""Bytes of a key's entry in the table of expiries, which MEMORY USAGE does not count."""

ROUNDED_UP = 8
"""Bytes by which an allocator in steps of 16 rounds up the entry that MEMORY USAGE does count."""

IN_CLUSTER = 16
"""Bytes that a cluster adds to a key, to find the keys of a slot."""


@dataclass(frozen=True)
class Load:
    """What comes in, a second, and what is to be remembered of it.

    Attributes:
        mode: `"key"`, `"lock"` or `"token"`.
        rate: first requests a second.
        repeats: repeats for each first request.
        response: bytes of a response body, of JSON as services answer.
        live: seconds for which a key lives: the ttl, the interval, the token's lifetime.
    """

    mode: str
    rate: float
    repeats: float = 0.1
    response: int = 1000
    live: float = 86400


@dataclass(frozen=True)
class Plan:
    """What a load needs."""

    keys: float
    memory: float  # bytes, on the primaries, with what is spare
    cores: float  # of servers that do nothing else, fully used
    shards: int
    network: float  # bytes a second, in and out of the primaries


def plan(load: Load, constants: dict) -> Plan:
    keys = load.rate * load.live
    usage = usage_of(load, constants)
    costs, wire = constants["microseconds"], constants["wire"]
    names = {"key": ("claim", "complete"), "lock": ("claim",), "token": ("put", "take")}[load.mode]
    repeat = {"key": "replay", "lock": "refusal", "token": "take"}[load.mode]
    cost = sum(costs[name] for name in names) + load.repeats * costs[repeat]
    body = usage - constants["usage"]["0"] if load.mode == "key" else 0
    carried = sum(wire[name] for name in names) + load.repeats * wire[repeat]
    carried += body * (1 + load.repeats)
    cores = load.rate * cost / 1e6
    shards = 1
    while True:
        memory = keys * with_tables(usage, keys / shards, cluster=shards > 1) * SPARE
        needed = max(math.ceil(memory / SHARD_BYTES), math.ceil(cores / BUSY))
        if needed <= shards:
            break
        shards = max(needed, 3)  # the smallest cluster
    return Plan(keys, memory, cores, shards, load.rate * carried)


def usage_of(load: Load, constants: dict) -> float:
    """Return the MEMORY USAGE of one key; between two measured sizes, what lies between."""
    if load.mode != "key":
        return constants["usage"][load.mode]
    sizes = sorted(int(name) for name in constants["usage"] if name.isdigit())
    above = next((size for size in sizes if size >= load.response), sizes[-1])
    below = max((size for size in sizes if size < above), default=above)
    low, high = (constants["usage"][str(size)] for size in (below, above))
    share = (load.response - below) / (above - below) if above > below else 0
    return low + (high - low) * share


def with_tables(usage: float, keys: float, *, cluster: bool) -> float:
    """Return what a key takes in all: two hash tables have a bucket of 8 bytes for it, or two."""
    buckets = 2 ** math.ceil(math.log2(max(keys, 4))) / max(keys, 4)
    return usage + EXPIRY + ROUNDED_UP + 16 * buckets + (IN_CLUSTER if cluster else 0)


DAY = 86400
LOADS = [
    ("a shop: 5 payments a second", Load("key", 5)),
    ("50 guarded forms, a lock of one second", Load("lock", 50, live=1)),
    ("100 requests with a key", Load("key", 100)),
    ("1,000", Load("key", 1000)),
    ("10,000", Load("key", 10_000)),
    ("10,000, remembered for an hour", Load("key", 10_000, live=3600)),
    ("100,000, for an hour", Load("key", 100_000, live=3600)),
    ("1,000,000, for ten minutes", Load("key", 1_000_000, live=600)),
    ("1,000,000, for a day", Load("key", 1_000_000)),
    ("1,000,000 clicks, a lock of one second", Load("lock", 1_000_000, live=1)),
    ("100,000 tokens of five minutes", Load("token", 100_000, live=300)),
]


def table(constants: dict, loads: list[tuple[str, Load]] = LOADS) -> str:
    head = ("a second", "live keys", "memory", "cores of Redis", "primaries", "network")
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for name, load in loads:
        what = plan(load, constants)
        cells = (
            name,
            _count(what.keys),
            _bytes_told(what.memory),
            f"{what.cores:.2g}" if what.cores < 10 else f"{what.cores:.0f}",
            f"{what.shards:,}",
            f"{_bytes_told(what.network)}/s",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _count(number: float) -> str:
    for unit, name in ((1e9, " billion"), (1e6, " million")):
        if number >= unit:
            return f"{number / unit:.3g}{name}"
    return f"{number:,.0f}"


def _bytes_told(number: float) -> str:
    for power, name in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if number >= 1000**power:
            return f"{number / 1000**power:.3g} {name}"
    return f"{number:.0f} B"


def page_with(text: str, constants: dict) -> str:
    return re.sub(
        f"(?s){re.escape(BEGIN)}.*?{re.escape(END)}",
        lambda _: f"{BEGIN}\n{table(constants)}\n{END}",
        text,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", action="store_true", help="measure the constants")
    parser.add_argument("--docs", action="store_true", help="write the table into the page")
    parser.add_argument("--mode", choices=("key", "lock", "token"), default="key")
    parser.add_argument("--requests-per-second", type=float, metavar="N")
    parser.add_argument("--repeats", type=float, default=0.1, help="for each first request")
    parser.add_argument("--response-bytes", type=int, default=1000)
    parser.add_argument(
        "--ttl", type=float, help="seconds: of the record (a day), the lock (1), the token (300)"
    )
    asked = parser.parse_args()
    if asked.measure:
        from measuring import capacity_costs  # noqa: PLC0415 - needs the servers of the tests

        CONSTANTS.write_text(json.dumps(capacity_costs.measure(), indent=2) + "\n")
    constants = json.loads(CONSTANTS.read_text())
    if asked.docs:
        PAGE.write_text(page_with(PAGE.read_text(), constants))
    elif asked.requests_per_second:
        live = asked.ttl or {"key": DAY, "lock": 1, "token": 300}[asked.mode]
        load = Load(
            asked.mode, asked.requests_per_second, asked.repeats, asked.response_bytes, live
        )
        print(table(constants, [(f"{asked.requests_per_second:,.0f} ({asked.mode})", load)]))
    else:
        print(table(constants))


if __name__ == "__main__":
    main()
