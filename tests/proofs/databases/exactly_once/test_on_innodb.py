"""`within=` on MariaDB: statements that commit, snapshots, writes before a guard."""

import pytest
from helpers.payment_database import Payment, pay, payments
from sqlalchemy import insert, select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from flask_idempotence.exactly_once.writes import may_write

pytestmark = pytest.mark.database


@pytest.fixture
def url(mariadb):
    return mariadb.new_database()


def test_a_view_may_go_on_after_a_statement_that_was_refused_alone(pay_app):
    def view(session):
        pay(session)
        with pytest.raises(IntegrityError):
            session.execute(insert(payments).values(amount=None))
        return "paid", 201

    site = pay_app(view)
    assert [site.post().status_code for _ in range(2)] == [201, 201]
    assert (site.runs, site.count()) == (1, 1)


@pytest.mark.parametrize("level", [None, "REPEATABLE READ", "SERIALIZABLE", "READ COMMITTED"])
def test_a_claim_is_renewed_beside_a_transaction_of_any_engine(mariadb, pay_app, level):
    """Its snapshot is older than the renewal, which REPEATABLE READ may refuse to overwrite."""

    def view(session):
        session.execute(select(payments)).all()
        pay(session)
        (key,) = site.store.scan("")
        with site.engine.begin() as connection:
            connection.execute(
                text("UPDATE flask_idempotence SET expires = expires + 1 WHERE `key` = :key"),
                {"key": key.encode()},
            )
        return "paid", 201

    checks = "SET /*M! innodb_snapshot_isolation = 1, */ @of_mariadb_alone = 1"
    options = {"connect_args": {"init_command": checks}}
    if level is not None:
        options["isolation_level"] = level
    site = pay_app(view, engine=options)
    assert [site.post().status_code for _ in range(2)] == [201, 201]
    assert (site.runs, site.count()) == (1, 1)


@pytest.mark.parametrize("how", ["by an option", "since a view has said so"])
def test_connections_that_commit_by_themselves_get_a_transaction(pay_app, how):
    options = {"connect_args": {"autocommit": True}} if how == "by an option" else {}
    site = pay_app(engine=options | {"pool_size": 1, "max_overflow": 0})
    if how != "by an option":
        with site.engine.connect() as connection:
            connection.execute(text("SET autocommit = 1"))
    site._view = lambda session: (pay(session), ("no", 503))[1]
    assert (site.post().status_code, site.count()) == (503, 0)
    site._view = None
    assert [site.post().status_code for _ in range(2)] == [201, 201]
    assert site.count() == 1


def test_an_error_that_is_the_statements_own_is_the_applications(pay_app):
    """PyMySQL's OperationalError is the class of outages, and of an unknown column."""

    site = pay_app(lambda session: (session.add(Payment(amount=1)), "paid")[1])
    with site.engine.begin() as connection:
        connection.execute(text("ALTER TABLE payments DROP COLUMN reference"))
    site.app.register_error_handler(OperationalError, lambda error: ("the application's", 500))
    assert site.post().text == "the application's"


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "  select * from payments where amount = 'update'",
        "/* trace=1 */ SELECT 1",
        "(SELECT 1) UNION (SELECT 2)",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "SET TRANSACTION READ WRITE",
        "SAVEPOINT sa_savepoint_1",
        "RELEASE SAVEPOINT sa_savepoint_1",
        "ROLLBACK TO SAVEPOINT sa_savepoint_1",
        "SHOW WARNINGS",
    ],
)
def test_statements_that_only_read(statement):
    assert not may_write(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO payments (amount) VALUES (1)",
        "/* SELECT */ UPDATE payments SET amount = 1",
        "WITH a AS (SELECT 1) DELETE FROM payments",
        "SELECT * FROM payments FOR UPDATE",
        "SELECT *\nFROM payments\nFOR  SHARE SKIP LOCKED",
        "SELECT * FROM payments LOCK IN SHARE MODE",
        "CALL pay()",
        "REPLACE INTO payments VALUES (1)",
        "ROLLBACK",
        "SELECTED",
        "BEGIN",
        "",
    ],
)
def test_statements_that_may_write(statement):
    assert may_write(statement)


def test_autocommit_that_a_view_has_set_harms_no_later_request(pay_app):
    site = pay_app(engine={"pool_size": 1, "max_overflow": 0})
    site._view = lambda session: (session.execute(text("SET autocommit=1")), ("paid", 201))[1]
    assert site.post("poison").status_code == 500
    site._view = None
    assert [site.post(f"k{number}", amount=number).status_code for number in (1, 2)] == [201] * 2
    assert site.amounts() == [1, 2]
    site._view = lambda session: (pay(session, 9), ("no", 422))[1]
    assert site.post("failed").status_code == 422
    assert site.amounts() == [1, 2]
