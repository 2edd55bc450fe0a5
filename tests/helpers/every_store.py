"""Storage URIs of every kind of store, for tests of guards that hold on each."""

import pytest

EVERY_STORE = [
    *("memory", "redis", "sqlite"),
    *(pytest.param(name, marks=pytest.mark.database) for name in ("postgresql", "mysql")),
]
SHARED_STORES = EVERY_STORE[1:]
"""Those that several processes can share."""


def storage_settings(kind, request):
    """Return the settings of an empty store; it is given the time that a busy machine takes."""
    options = {} if kind == "memory" else {"deadline": 30}
    return {
        "IDEMPOTENCE_STORAGE_URI": storage_uri(kind, request),
        "IDEMPOTENCE_STORAGE_OPTIONS": options,
    }


def storage_uri(kind, request):
    if kind == "memory":
        return "memory://"
    if kind == "redis":
        return request.getfixturevalue("redis_url")
    sa = pytest.importorskip("sqlalchemy")
    from flask_idempotence import SqlStore  # noqa: PLC0415 - it needs the extra

    if kind == "sqlite":
        uri = f"sqlite:///{request.getfixturevalue('tmp_path')}/store.db"
    else:
        server = {"postgresql": "postgres", "mysql": "mariadb"}[kind]
        uri = request.getfixturevalue(server).new_database()
    engine = sa.create_engine(uri)
    SqlStore(engine).create_table()
    engine.dispose()
    return uri
