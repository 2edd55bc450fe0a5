"""Fixtures shared by all tests."""

import gc
import importlib
import importlib.util
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.servers.processes import RedisServer, redis_binary, redis_version
from helpers.servers.topologies import has_tls

pytest.register_assert_rewrite("flask_idempotence.testing.contract")

# Images of Python often switch bytecode off: hundreds of processes would compile everything again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# What is imported and collected, ten thousand tests in each process, is no garbage.
gc.disable()


MEMORY = Path("/dev/shm")


def pytest_configure(config: pytest.Config) -> None:
    """Put the files of tests into memory, where SQLite waits for no disk; not those of proofs."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2**31 and not config.option.markexpr:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_finish() -> None:
    """Let the collector look at what the tests make, and at that alone."""
    gc.freeze()
    gc.enable()


LEFT_OUT = {}

OF_SQL = (
    *("stores/sql", "exactly_once", "guards/key/test_payment_callbacks.py", "proofs/databases"),
    *("proofs/commands/test_database_commands.py", "proofs/endurance"),
    *("proofs/partitions/test_partitions.py", "proofs/servers/test_payment_notifications.py"),
)
if importlib.util.find_spec("sqlalchemy") is None:
    LEFT_OUT |= dict.fromkeys(OF_SQL, "sqlalchemy: not installed")

try:
    binary = redis_binary()
    SERVER = f"redis server: {binary} {redis_version(binary)}"
    if not has_tls():
        LEFT_OUT["stores/redis/test_tls.py"] = "TLS: the server was built without it"
except Exception as error:
    SERVER = f"redis server: none ({error})"

collect_ignore = list(LEFT_OUT)

ASKED_FOR = (
    *("browser", "chaos", "clients", "database", "deep", "endurance", "fuzz", "gateway"),
    *("gevent", "lifecycle", "mutation", "partition", "prose", "queue", "servers", "timed"),
    *("topology", "typing", "wsgi"),
)
"""Kinds of tests that run only where they are asked for."""


def pytest_report_header(config: pytest.Config) -> list[str]:
    lines = [f"{reason}, its tests are left out" for reason in sorted(set(LEFT_OUT.values()))]
    if not shutil.which("node"):
        lines.append("node: not found, the tests of the script are left out")
    unasked = [kind for kind in ASKED_FOR if not asks_for(kind, config)]
    return [SERVER, *lines, f"left out, but for -m NAME: {', '.join(unasked)}"]


def asks_for(kind: str, config: pytest.Config) -> bool:
    return kind in config.option.markexpr


DATABASES = {
    *("postgres", "postgresql", "on_postgres", "psycopg", "psycopg2", "pg8000"),
    *("mariadb", "mysql", "on_mariadb", "pymysql"),
}


def needs_database(item: pytest.Item) -> bool:
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return bool(
        {"postgres", "fresh_postgres", "mariadb", "fresh_mariadb"}.intersection(item.fixturenames)
        or DATABASES.intersection(value for value in values if isinstance(value, str))
    )


MARK_OF_FILE = re.compile(r"(?m)^pytestmark = (.*)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file of a kind that is not asked for."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    marked = MARK_OF_FILE.search(collection_path.read_text(encoding="utf-8"))
    kinds = re.findall(r"pytest\.mark\.(\w+)", marked[1]) if marked else ()
    return any(kind in ASKED_FOR and not asks_for(kind, config) for kind in kinds) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what starts a database and is of no other kind; leave out what is not asked for."""
    for item in filter(needs_database, items):
        if not any(mark.name in ASKED_FOR for mark in item.iter_markers()):
            item.add_marker("database")
    unasked = {kind for kind in ASKED_FOR if not asks_for(kind, config)}
    chosen, left_out = [], []
    for item in items:
        is_unasked = any(mark.name in unasked for mark in item.iter_markers())
        (left_out if is_unasked else chosen).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter) -> None:
    """Print what tests have counted, whichever process they ran in."""
    for told in terminalreporter.stats.get("passed", []) + terminalreporter.stats.get(
        "failed", []
    ):
        for name, text in told.user_properties:
            if name == "report" and told.when == "call":
                terminalreporter.write_line(f"\n{text}")


def started(module: str, name: str, scope: str, **options: float) -> Any:

    @pytest.fixture(scope=scope)
    def server() -> Iterator:
        kind = getattr(importlib.import_module(f"helpers.servers.{module}"), name)
        with kind(**options) as running:
            yield running

    return server


# One for the whole run; a test that configures, freezes or kills one takes a fresh one.
redis_server = started("processes", "RedisServer", "session")
fresh_redis = started("processes", "RedisServer", "function")
postgres = started("postgres", "PostgresServer", "session")
fresh_postgres = started("postgres", "PostgresServer", "function")
mariadb = started("mariadb", "MariaDbServer", "session")
fresh_mariadb = started("mariadb", "MariaDbServer", "function")
rabbitmq = started("rabbitmq", "RabbitServer", "session")
fresh_rabbitmq = started("rabbitmq", "RabbitServer", "function")
sentinel_group = started("topologies", "SentinelGroup", "session", down_after=10)
cluster = started("topologies", "Cluster", "session", timeout=15)  # a moved slot comes back
tls_server = started("topologies", "TlsServer", "session")


@pytest.fixture(scope="session", autouse=True)
def patient_stores(pytestconfig: pytest.Config) -> None:
    """Let a store wait for its server as long as a busy machine may stall; not in proofs."""
    if pytestconfig.option.markexpr:
        return
    import flask_idempotence  # noqa: PLC0415 - its assertions are to be rewritten first

    kinds = (
        ("RedisStore", "SqlStore") if importlib.util.find_spec("sqlalchemy") else ("RedisStore",)
    )
    for kind in kinds:
        getattr(flask_idempotence, kind).__init__.__kwdefaults__["deadline"] = 5.0


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Switch the collector off: at the limit of recursion, the finalizers it calls would fail."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> Iterator[str]:
    with redis_server.client() as client:
        client.flushall()
    yield redis_server.url
    redis_server.close_clients()


@pytest.fixture
def proxy(redis_server: RedisServer, redis_url: str) -> Iterator[Any]:
    from helpers.servers.faults import Proxy  # noqa: PLC0415 - few tests need it

    with Proxy(redis_server) as between:
        yield between


@pytest.fixture(scope="session")
def pgbouncer(postgres: Any) -> Iterator:
    """A pooler in transaction mode in front of that PostgreSQL, with three connections to it."""
    from helpers.servers.pgbouncer import PgBouncer  # noqa: PLC0415 - its driver may be missing

    with PgBouncer(postgres) as pooler:
        yield pooler


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database: a file, and one of PostgreSQL and of MariaDB."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/books.db"
    server = "postgres" if request.param == "postgresql" else "mariadb"
    return request.getfixturevalue(server).new_database()


@pytest.fixture
def pay_app(url: str) -> Iterator[Any]:
    from helpers.payment_database import PaymentApp  # noqa: PLC0415 - it needs SQLAlchemy

    made = []

    def make(*args: Any, **kwargs: Any) -> PaymentApp:
        made.append(PaymentApp(kwargs.pop("url", url), *args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def pauses() -> Any:
    """The waits of a caller, which take no time."""
    from helpers.callers.http_callers import Pauses  # noqa: PLC0415 - it needs the libraries of the client

    return Pauses()


@pytest.fixture(params=["requests", "httpx", "async httpx"])
def make_caller(request: pytest.FixtureRequest, pauses: Any) -> Iterator[Any]:
    from helpers.callers.http_callers import CALLERS, retries_with  # noqa: PLC0415 - the same

    made = []

    def make(*, rules: dict | None = None, **options: Any) -> Any:
        patience = retries_with(pauses, **(rules or {}))
        made.append(CALLERS[request.param](patience, pauses, **options))
        return made[-1]

    yield make
    for caller in made:
        caller.close()


@pytest.fixture
def call(make_caller: Any) -> Any:
    return make_caller()


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An nginx with the gateway of docs/gateway in front of the example, not to be broken."""
    from helpers.servers.nginx_gateway import make_world, missing  # noqa: PLC0415 - these need what only they need

    if missing() and "CI" not in os.environ:
        pytest.skip(f"the gateway needs {', '.join(missing())}")
    with make_world(tmp_path_factory.mktemp("gateway")) as world:
        yield world
        # It was refused no command, and may use none that writes.
        assert world.redis.client().acl_log() == []


@pytest.fixture(autouse=True)
def real_time():
    """Set the clock back that a test has advanced: many tests compare it with the real one."""
    yield
    # Not above: its assertions are to be rewritten first.
    from flask_idempotence import MemoryStore  # noqa: PLC0415
    from flask_idempotence.engine.engine import Engine  # noqa: PLC0415
    from flask_idempotence.testing import clock  # noqa: PLC0415

    if Engine.clock is not time.monotonic:
        Engine.clock = MemoryStore.clock = time.monotonic
        clock._monotonic.seconds = 0.0


@pytest.fixture(autouse=True)
def no_pending_work():
    """End what keepers still do for a test: it costs the later tests time, and logs."""
    yield
    from flask_idempotence.engine.keeper import KEEPERS  # noqa: PLC0415 - as above

    for keeper in KEEPERS:
        if keeper._held or keeper._retry_queue:
            keeper._forget()
