"""Listeners of the application at every event of SQLAlchemy, on PostgreSQL and MariaDB."""

from contextlib import closing

import pytest
from helpers.listeners import EVENTS, KINDS, ListeningApp, faults_at
from helpers.payment_database import by_driver

pytestmark = pytest.mark.database

DATABASES = {
    "psycopg": ("postgres", {}),
    "psycopg, repeatable read": ("postgres", {"isolation_level": "REPEATABLE READ"}),
    "pg8000": ("postgres", {}),
    "pg8000, repeatable read": ("postgres", {"isolation_level": "REPEATABLE READ"}),
    "pymysql": ("mariadb", {}),
    "pymysql, read committed": ("mariadb", {"isolation_level": "READ COMMITTED"}),
}


@pytest.fixture(scope="module", params=DATABASES)
def site(request):
    server, engine = DATABASES[request.param]
    url = request.getfixturevalue(server).new_database()
    url = by_driver(url, request.param.partition(",")[0])
    elsewhere = request.getfixturevalue(server).new_database()
    with closing(ListeningApp(url, elsewhere, **engine)) as site:
        yield site


@pytest.mark.filterwarnings("ignore:Exception ignored.*BaseConnection.__del__")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # pg8000's, in the pool
@pytest.mark.parametrize("status", [201, 422])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("to", "name"), EVENTS)
# Of an object whose listener has raised.
@pytest.mark.filterwarnings("ignore:Exception ignored.*InstanceState._cleanup")
def test_a_listener_may_do_what_it_may_without_a_guard(site, to, name, kind, status):
    assert faults_at(site, to, name, kind, status) == {}
