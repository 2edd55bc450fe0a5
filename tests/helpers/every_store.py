"""Storage URIs of every kind of store, for tests of guards that hold on each."""

import pytest

EVERY_STORE = ["memory", "redis", "sqlite", pytest.param("postgresql", marks=pytest.mark.database)]
SHARED_STORES = EVERY_STORE[1:]
"""Those that several processes can share."""


def storage_uri(kind, request):
    """Return the URI of an empty store; a database has its table."""
    if kind == "memory":
        return "memory://"
    if kind == "redis":
        return request.getfixturevalue("redis_url")
    import sqlalchemy as sa  # noqa: PLC0415 - an extra

    from flask_idempotence import SqlStore  # noqa: PLC0415 - it needs the extra

    if kind == "sqlite":
        uri = f"sqlite:///{request.getfixturevalue('tmp_path')}/store.db"
    else:
        uri = request.getfixturevalue("postgres").new_database()
    engine = sa.create_engine(uri)
    SqlStore(engine).create_table()
    engine.dispose()
    return uri
