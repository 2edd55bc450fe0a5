"""A store in a database of the module's own, which stays, and connections beside it."""

import pytest
from sqlalchemy import NullPool, create_engine

from flask_idempotence import SqlStore


@pytest.fixture(scope="module")
def url(request):
    return request.getfixturevalue(request.module.PRODUCT).new_database()


@pytest.fixture
def engine(url):
    engine = create_engine(url, poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.fixture
def store(request, engine):
    store = SqlStore(engine, deadline=getattr(request.module, "DEADLINE", 1))
    store.create_table()
    store.clear("")
    yield store
    store.close()
