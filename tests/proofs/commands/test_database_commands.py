"""The commands on a store in a database."""

import re
import time

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from helpers.applications.doctor_apps import GOOD, names_of, production_app
from helpers.cli_shell import Shell, invoke
from helpers.repository import ROOT, text_of

from flask_idempotence.cli.checks import STORE_CHECKS
from flask_idempotence.cli.doctor import collect, examine
from flask_idempotence.stores.base import NO_FINGERPRINT
from flask_idempotence.stores.sql import metadata

pytestmark = pytest.mark.servers

PAGE = ROOT / "docs" / "how-to" / "sql-store.md"


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    return request.getfixturevalue(request.param).new_database()


@pytest.fixture
def app(url):
    app = production_app(IDEMPOTENCE_STORAGE_URI=url)
    yield app
    store_of(app).close()
    store_of(app).engine.dispose()


def store_of(app):
    return app.extensions["idempotence"].store


def fill(store):
    for number in range(30):
        store.claim(f"idempotence:2:lock:order:{number:032x}", bytes(16), NO_FINGERPRINT, 0.05, 0)
    store.complete(f"idempotence:2:key:pay:{99:032x}", bytes(16), NO_FINGERPRINT, b"r", 60)
    time.sleep(0.1)


def test_the_transcripts_are_what_the_commands_print(tmp_path):
    shell = Shell(
        tmp_path,
        FLASK_IDEMPOTENCE_STORAGE_URI=f"sqlite:///{tmp_path}/shop.db",
        FLASK_SECRET_KEY=GOOD,
    )
    blocks = re.findall(r"(?ms)^```console\n(.*?)^```$", text_of(PAGE))
    shown = "".join(blocks).split("$ flask --app shop idempotence ")[1:]
    assert len(shown) == 3
    for command, printed in (part.split("\n", 1) for part in shown):
        assert shell.terminal(*command.split()).out.strip() == printed.strip()


@pytest.mark.parametrize("by_hand", [False, True])
def test_init_db_creates_the_table_once_or_shows_its_statements(app, by_hand):
    if by_hand:
        shown = invoke(app, "init-db", "--sql").output
        with store_of(app).engine.begin() as connection:
            for statement in shown.split(";")[:-1]:
                connection.exec_driver_sql(statement)
    else:
        assert "Created" in invoke(app, "init-db").output
    again = invoke(app, "init-db")
    assert "exists and is up to date" in again.output
    assert again.exit_code == 0
    store_of(app).ping()


def test_init_db_says_what_another_table_lacks(app):
    with store_of(app).engine.begin() as connection:
        key = connection.dialect.identifier_preparer.quote("key")
        connection.exec_driver_sql(f"CREATE TABLE flask_idempotence ({key} VARCHAR(255) NOT NULL)")
    done = invoke(app, "init-db")
    assert done.exit_code == 1
    assert "lacks kind, owner, fingerprint" in done.output


@pytest.mark.parametrize("command", [["stats"], ["prune"], ["purge", "--all"]])
def test_a_command_that_meets_no_table_says_what_to_do(app, command):
    done = invoke(app, *command)
    assert done.exit_code == 1
    assert "flask idempotence init-db" in done.output


@pytest.mark.parametrize("command", ["init-db", "prune"])
def test_what_is_for_databases_says_so_elsewhere(command):
    done = invoke(production_app(), command)
    assert done.exit_code == 1
    assert "MemoryStore" in done.output


def test_prune_removes_what_has_expired_and_no_more(app):
    store = store_of(app)
    store.create_table()
    fill(store)
    assert "30 removed." in invoke(app, "prune", "--batch", "7", "--pause", "0").output
    assert store.prune() == 0
    assert len(list(store.scan(""))) == 1


def found_in(app, *names):
    return {each.check: each for each in examine(collect(app)) if each.check in names}


def test_the_doctor_finds_nothing_where_all_is_well(app):
    store_of(app).create_table()
    found = found_in(app, *names_of(STORE_CHECKS))
    name = store_of(app).engine.dialect.name
    pooler = ["pooler"] if name == "postgresql" else []
    names = ["store", "version", "table", "durability", *pooler, "clock"]
    assert list(found) == names
    wrong = {name for name, each in found.items() if each.severity != "ok"}
    assert wrong == ({"durability"} if name != "sqlite" else set())  # the servers have no fsync


def test_the_migration_on_the_page_makes_the_table(app):
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```$", text_of(PAGE))
    [code] = [block for block in blocks if "alembic" in block]
    namespace = {}
    exec(code, namespace)
    store = store_of(app)
    with store.engine.begin() as connection:
        context = MigrationContext.configure(connection)
        with Operations.context(context):
            namespace["upgrade"]()
        assert compare_metadata(context, metadata) == []
    store.ping()
    with store.engine.begin() as connection:
        context = MigrationContext.configure(connection)
        with Operations.context(context):
            namespace["downgrade"]()
    assert store.facts()[0].missing == ("flask_idempotence",)
