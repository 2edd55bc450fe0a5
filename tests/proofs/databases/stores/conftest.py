"""A store in a database of the module's own, which stays."""

import pytest
from helpers.sql_stores import sql_store
from sqlalchemy import NullPool


@pytest.fixture(scope="module")
def url(request):
    return request.getfixturevalue(request.module.PRODUCT).new_database()


@pytest.fixture
def store(request, url):
    deadline = getattr(request.module, "DEADLINE", 1)
    with sql_store(url, deadline=deadline, poolclass=NullPool) as store:
        store.clear("")
        yield store
