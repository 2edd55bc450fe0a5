"""The locks, snapshots and counts of InnoDB that docs/sql-techniques.md describes."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.callers.recipe_requests import RecipeSite, statuses, wait_for_each_other
from helpers.row_locks import code_of, new_tables, run_in, transaction, wait_for_waiting
from helpers.servers.processes import all_at_once
from sqlalchemy import create_engine, select, text, update
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

from example_app.recipes import optimistic_lock
from example_app.recipes.models import Order, Parcel, Price

pytestmark = pytest.mark.database

ORDER = "INSERT INTO recipe_orders (reference) VALUES ('A')"
DUPLICATE, LOCK_TIMEOUT, DEADLOCK, NO_SAVEPOINT = 1062, 1205, 1213, 1305
IMPATIENT = "SET SESSION innodb_lock_wait_timeout = 1"


@pytest.fixture
def url(mariadb):
    return new_tables(mariadb)


@pytest.fixture
def session(url):
    """A session at InnoDB's default isolation level, REPEATABLE READ."""
    engine = create_engine(url)
    with Session(engine) as session:
        yield session
    engine.dispose()


def insert_alone(url):
    with transaction(url) as connection:
        return run_in(connection, ORDER)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_copies_of_an_insert_get_1062_after_its_commit_and_1213_after_its_rollback(url, end):
    with transaction(url, ORDER) as first, ThreadPoolExecutor() as pool:
        copies = pool.submit(all_at_once, [lambda: insert_alone(url)] * 5)
        wait_for_waiting(url, 5)
        getattr(first, end)()
        errors = copies.result()
    if end == "commit":
        assert errors == [DUPLICATE] * 5
    else:
        assert sorted(errors, key=str) == [DEADLOCK] * 4 + [None]


def insert_in_a_savepoint(session):
    with pytest.raises(IntegrityError) as refused, session.begin_nested():
        session.add(Order(reference="A"))  # written at the end of the savepoint
    assert code_of(refused.value) == DUPLICATE


def test_an_old_snapshot_does_not_show_the_row_that_refused_the_insert(url, session):
    order = select(Order).filter_by(reference="A")
    assert session.scalar(order) is None  # the first read makes the snapshot
    insert_alone(url)
    insert_in_a_savepoint(session)
    assert session.scalar(order) is None
    assert session.scalar(order.with_for_update(read=True)).reference == "A"  # a locking read
    session.rollback()
    assert session.scalar(order).reference == "A"  # a new transaction


def test_read_committed_shows_the_row_that_refused_the_insert(url, session):
    session.connection(execution_options={"isolation_level": "READ COMMITTED"})
    order = select(Order).filter_by(reference="A")
    assert session.scalar(order) is None
    insert_alone(url)
    insert_in_a_savepoint(session)
    assert session.scalar(order).reference == "A"


def test_a_deadlock_takes_the_savepoint_and_all_before_it(url, session):
    with transaction(url, "UPDATE recipe_stock SET pieces = 7") as other:
        session.execute(text("UPDATE recipe_accounts SET balance = 1 WHERE number = 1"))
        with ThreadPoolExecutor() as pool:
            # The heavier transaction survives: InnoDB rolls back the one with fewer changes.
            other.execute(text("UPDATE recipe_parcels SET status = 'heavier'"))
            blocked = pool.submit(
                run_in, other, "UPDATE recipe_accounts SET balance = 2 WHERE number = 1"
            )
            wait_for_waiting(url, 1)
            with pytest.raises(OperationalError) as lost, session.begin_nested():
                session.execute(text("UPDATE recipe_stock SET pieces = 8"))
            assert code_of(lost.value) == NO_SAVEPOINT  # SQLAlchemy wanted to roll back to it
            assert code_of(lost.value.__context__) == DEADLOCK
            assert blocked.result() is None
    session.rollback()
    assert session.scalar(text("SELECT balance FROM recipe_accounts WHERE number = 1")) == 2


def test_a_lock_timeout_rolls_back_the_statement_only(url):
    with transaction(url, "UPDATE recipe_stock SET pieces = 7"), transaction(url) as other:
        other.execute(text(IMPATIENT))
        other.execute(text(ORDER))
        with pytest.raises(OperationalError) as late:
            other.execute(text("UPDATE recipe_stock SET pieces = 8"))
        assert code_of(late.value) == LOCK_TIMEOUT
        other.commit()
        assert other.scalar(text("SELECT count(*) FROM recipe_orders")) == 1


def test_a_trailing_space_makes_no_other_reference(url):
    insert_alone(url)
    with transaction(url) as connection:
        assert run_in(connection, ORDER.replace("'A'", "'A '")) == DUPLICATE


@pytest.mark.parametrize(("indexed", "error"), [(False, LOCK_TIMEOUT), (True, None)])
def test_a_locking_read_without_an_index_locks_all_rows(url, indexed, error):
    with transaction(url) as connection:
        for statement in (
            "CREATE TABLE seats (number INT PRIMARY KEY, hall INT)",
            "INSERT INTO seats VALUES (1, 1), (2, 2), (3, 3)",
            *["CREATE INDEX by_hall ON seats (hall)"] * indexed,
        ):
            connection.execute(text(statement))
        connection.commit()
    hold = "SELECT * FROM seats WHERE hall = 1 FOR UPDATE"
    with transaction(url, hold), transaction(url, IMPATIENT) as other:
        assert run_in(other, "UPDATE seats SET hall = 9 WHERE number = 3") == error


def test_a_locking_read_of_a_missing_row_blocks_the_inserts_of_other_rows(url):
    missing = "SELECT * FROM recipe_orders WHERE reference = 'A' FOR UPDATE"
    another = "INSERT INTO recipe_orders (reference) VALUES ('B')"
    with transaction(url, missing), transaction(url, IMPATIENT) as other:
        assert run_in(other, another) == LOCK_TIMEOUT


def test_a_loser_that_reads_again_in_its_old_snapshot_reads_the_old_version(url, session):
    version = select(Price.version).filter_by(product="mug")
    assert session.scalar(version) == 1
    with transaction(url) as rival:
        run_in(rival, "UPDATE recipe_prices SET version = 2 WHERE product = 'mug'")
    change = update(Price).filter_by(product="mug", version=1).values(cents=1100, version=2)
    assert session.execute(change).rowcount == 0
    assert session.scalar(version) == 1  # each further attempt in here would lose, too
    session.rollback()
    assert session.scalar(version) == 2


def test_an_unchanged_row_is_counted_by_sqlalchemy_and_not_by_the_plain_driver(
    mariadb, url, session
):
    unconditional = "UPDATE recipe_parcels SET status = 'shipped' WHERE number = 1"
    with mariadb.connect(url.rpartition("/")[2]) as connection, connection.cursor() as cursor:
        assert [cursor.execute(unconditional) for _ in range(2)] == [1, 0]  # rows changed
    assert session.execute(text(unconditional)).rowcount == 1  # rows found
    conditional = update(Parcel).filter_by(number=1, status="packed").values(status="shipped")
    assert session.execute(conditional).rowcount == 0  # the same either way


def test_snapshot_isolation_of_mariadb_refuses_the_write_that_would_be_lost(
    url, tmp_path, monkeypatch
):
    url += "?init_command=SET innodb_snapshot_isolation=1"
    site = RecipeSite(url, tmp_path)
    wait_for_each_other(monkeypatch, optimistic_lock, "changed", 2)
    path = "optimistic-lock/mug/guarded"
    answers = site.at_once(*((path, {"percent": 10, "change": c}) for c in "ab"))
    assert statuses(answers) == {200: 1, 503: 1}
    assert site.truth("prices")["mug"] == 1100
    site.close()
