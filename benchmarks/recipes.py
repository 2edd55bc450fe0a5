#!/usr/bin/env python3
"""Measure the recipes of the example under 32 concurrent clients on PostgreSQL.

    uv run python benchmarks/recipes.py --seconds 10

The example runs under Gunicorn, two workers with 16 threads each, on a PostgreSQL that is started
for it and flushes to the disk as it does in production; the guards have their table in the same
database. Each recipe is asked three ways: the technique, the guard, and the view behind the guard
with all guards switched off ("bare"). "Apart": each client is a sender of its own, and each of its
requests about something of its own. "One": all send the same request in the name of one sender,
over and over. The ways to ask a recipe take turns, in five rounds.

Clients, server and database share the machine: compare the rows with one another, not with those
of another machine. Failed is what was answered with 500 or more, or not at all.
"""

import argparse
import datetime
import http.client
import itertools
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from sqlalchemy import create_engine, text

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.servers.postgres import PostgresServer
from helpers.servers.processes import HOST, Gunicorn

from example_app.recipes.sessions import RecipeDatabase
from flask_idempotence import SqlStore

ROOT = Path(__file__).parents[1]
CLIENTS = 32
ROUNDS = 5
ROWS = 100_000
FIRST = 1000
"""Number of the first row that is ours; below are those of the example."""

Ask = Callable[[int], tuple[str, dict]]
"""Makes a path and a form of a number; the same number is the same request."""


@dataclass(frozen=True)
class Recipe:
    """A technique and its guard."""

    name: str
    guard: str
    technique: Ask
    guarded: Ask


RECIPES = [
    Recipe(
        "unique index",
        "`@idempotent()`",
        lambda n: ("unique-index", {"reference": f"r{n}"}),
        lambda n: ("unique-index/guarded", {"reference": f"r{n}"}),
    ),
    Recipe(
        "deduplication table",
        "`once(within=)`",
        lambda n: (f"deduplication-table/s{n}", {"message": f"m{n}", "pieces": 1}),
        lambda n: (f"deduplication-table/s{n}/guarded", {"message": f"m{n}", "pieces": 1}),
    ),
    Recipe(
        "optimistic lock",
        "`@idempotent()`",
        lambda n: (f"optimistic-lock/p{n}", {"percent": next(_percents)}),
        lambda n: (f"optimistic-lock/p{n}/guarded", {"percent": 10, "change": f"c{n}"}),
    ),
    Recipe(
        "pessimistic lock",
        "`@no_repeat_submit(5)`",
        lambda n: (f"pessimistic-lock/{n}", {"amount": 1}),
        lambda n: (f"pessimistic-lock/{n}/guarded", {"amount": 1}),
    ),
    Recipe(
        "state machine",
        "`@no_repeat_submit(5)`",
        lambda n: (f"state-machine/{n}", {"status": "shipped"}),
        lambda n: (f"state-machine/{n}/guarded", {"status": "shipped"}),
    ),
    Recipe(
        "counter",
        "`@no_repeat_submit(60)`",
        lambda n: ("counter", {"voter": f"v{n}"}),
        lambda n: ("counter/guarded", {"voter": f"v{n}"}),
    ),
    Recipe(
        "lock and unique index",
        "`@idempotent(within=)`",
        lambda n: ("payments", {"reference": f"r{n}", "amount": 1}),
        lambda n: ("payments/guarded", {"reference": f"r{n}", "amount": 1}),
    ),
]
_percents = itertools.cycle([10, -9])  # so that a price stays a price


@dataclass
class Told:
    """What the clients of one measurement saw."""

    seconds: float = 0
    statuses: Counter = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)

    def add(self, other: "Told") -> None:
        self.seconds += other.seconds
        self.statuses += other.statuses
        self.times += other.times

    @property
    def rate(self) -> float:
        return sum(self.statuses.values()) / self.seconds

    @property
    def milliseconds(self) -> tuple[float, float]:
        cuts = statistics.quantiles(self.times, n=100, method="inclusive")
        return cuts[49] * 1000, cuts[98] * 1000

    def share(self, wanted: Callable[[int], bool]) -> float:
        found = sum(count for status, count in self.statuses.items() if wanted(status))
        return found / sum(self.statuses.values())


@dataclass
class Run:
    """One way to ask a recipe.

    Args:
        port: of the example.
        ask: makes the requests.
        numbers: of which it makes them.
        one: whether that is always the same, in the name of one sender.
    """

    port: int
    ask: Ask
    numbers: Iterator[int]
    one: bool = False
    told: Told = field(default_factory=Told)

    def __post_init__(self):
        if self.one:
            self.numbers = itertools.repeat(next(self.numbers))


def measure(run: Run, seconds: float) -> Told:
    """Have all clients ask for so many seconds."""
    told, lock = Told(), threading.Lock()
    barrier = threading.Barrier(CLIENTS + 1)

    def client(name: int) -> None:
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Authorization": f"Bearer client-{0 if run.one else name}",
        }
        connection = http.client.HTTPConnection(HOST, run.port, timeout=60)
        statuses, times = Counter(), []
        barrier.wait()
        end = time.monotonic() + seconds
        while (start := time.monotonic()) < end:
            path, form = run.ask(next(run.numbers))
            body = urllib.parse.urlencode(form)
            try:
                connection.request("POST", f"/recipes/{path}", body, headers)
                response = connection.getresponse()
                response.read()
                statuses[response.status] += 1
            except (OSError, http.client.HTTPException):
                connection.close()
                statuses[0] += 1
            times.append(time.monotonic() - start)
        connection.close()
        with lock:
            told.statuses += statuses
            told.times += times

    threads = [threading.Thread(target=client, args=[name]) for name in range(CLIENTS)]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = time.monotonic()
    for thread in threads:
        thread.join()
    told.seconds = time.monotonic() - start
    return told


def prepare(url: str) -> None:
    """Make the tables, and enough rows for every request to have its own."""
    database = RecipeDatabase(url)
    database.prepare()
    ours = {"first": FIRST, "last": FIRST + ROWS - 1}
    rows = "generate_series(:first, :last) AS n"
    with database.engine.begin() as connection:
        for columns, values in (
            ("recipe_stock (product, pieces)", "'s' || n, 0"),
            ("recipe_prices (product, cents, version)", "'p' || n, 1000, 1"),
            ("recipe_accounts (number, balance)", "n, 1000000000"),
            ("recipe_parcels (number, status)", "n, 'packed'"),
        ):
            connection.execute(text(f"INSERT INTO {columns} SELECT {values} FROM {rows}"), ours)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
    database.engine.dispose()
    engine = create_engine(url)
    SqlStore(engine).create_table()
    engine.dispose()


def example(url: str, folder: str, *, guarded: bool) -> Gunicorn:
    """Return the example under Gunicorn, with the recipes and the guards in one database."""
    environment = {
        "EXAMPLE_DATABASE": str(Path(folder, "shop.sqlite3")),
        "IDEMPOTENCE_STORAGE_URI": url,
        "FLASK_IDEMPOTENCE_STORAGE_OPTIONS": '{"deadline": 10}',
        "FLASK_IDEMPOTENCE_ENABLED": "true" if guarded else "false",
        "PYTHONWARNINGS": "ignore",
    }
    return Gunicorn(
        "example_app:create_app()", workers=2, threads=CLIENTS // 2, env=environment, cwd=ROOT
    )


def tell(title: str, name: str, bare: Told, apart: Told, one: Told | None = None) -> None:
    """Print a row of the table."""
    median, slowest = apart.milliseconds
    cells = [title, name, f"{apart.rate:.0f}", f"{apart.rate / bare.rate:.2f}"]
    cells += [f"{median:.0f} / {slowest:.0f}"]
    if one is None:
        cells += ["", "", ""]
    else:
        cells += [f"{one.rate:.0f}", f"{one.share(lambda s: 200 <= s < 300):.1%}"]
        cells += [f"{one.share(lambda s: 400 <= s < 500):.1%}"]
    runs = [apart] if one is None else [apart, one]
    failures = sum(run.statuses[s] for run in runs for s in run.statuses if s < 200 or s >= 500)
    print("| " + " | ".join([*cells, str(failures)]) + " |")
    refused = apart.share(lambda status: not 200 <= status < 300)
    if refused > 0:
        print(f"{name}: apart, not all succeeded: {apart.statuses}", file=sys.stderr)


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5, help="of each (default: %(default)s)")
    seconds = parser.parse_args().seconds
    sys.stdout.reconfigure(line_buffering=True)
    numbers = itertools.count(FIRST)
    with ExitStack() as stack:
        flushing = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "128MB"}
        server = stack.enter_context(PostgresServer(**flushing))
        url = server.new_database()
        prepare(url)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        port, bare_port = (
            stack.enter_context(example(url, folder, guarded=guarded)).port
            for guarded in (True, False)
        )
        with server.connect() as connection:
            postgres = connection.execute("SHOW server_version").fetchone()[0]
        names = ("sqlalchemy", "psycopg", "flask", "gunicorn")
        versions = ", ".join(f"{name} {version(name)}" for name in names)
        print(
            f"{datetime.date.today()}; {os.cpu_count()} cores (load {os.getloadavg()[0]:.0f} at "  # noqa: DTZ011
            f"the start), PostgreSQL {postgres}, CPython {platform.python_version()}, "
            f"{versions}; {CLIENTS} clients, {seconds:g} s each\n"
        )
        print(
            "| | view | apart: requests/s | of bare | median / p99, ms "
            "| one: requests/s | success | refused | failed |"
        )
        print("|---|---|---|---|---|---|---|---|---|")

        for recipe in RECIPES:
            runs = [Run(bare_port, recipe.guarded, numbers)]
            for ask in (recipe.technique, recipe.guarded):
                runs += [Run(port, ask, numbers, one) for one in (False, True)]
            for run in runs:
                measure(Run(run.port, run.ask, numbers), 0.2)  # warms up
            for _ in range(ROUNDS):
                for run in runs:
                    run.told.add(measure(run, seconds / ROUNDS))
            bare, *told = (run.told for run in runs)
            tell(recipe.name, "the technique", bare, *told[:2])
            tell("", recipe.guard, bare, *told[2:])
            tell("", "bare", bare, bare)
        if next(numbers) >= FIRST + ROWS:
            raise RuntimeError("There were not enough rows: ask for fewer seconds.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
