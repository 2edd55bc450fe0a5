"""Common advice against duplicates that docs/sql-techniques.md calls wrong or incomplete."""

import sys
import threading
import uuid
import zlib

import pytest
from helpers.callers.recipe_requests import RecipeSite, statuses, wait_for_each_other
from helpers.row_locks import new_tables, run_in, transaction
from helpers.servers.processes import all_at_once, environment, run_to_end, until
from sqlalchemy import make_url, text

from example_app.recipes import optimistic_lock

pytestmark = pytest.mark.database

ROWS = 20_000
CONSUMER = """
import os, signal, sys
import redis
from flask_idempotence import Running
from helpers.applications.plain import app, idempotence

url, scheme, dies = sys.argv[1:]
client = redis.Redis.from_url(url)

def effect():
    if dies == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    client.incr("effects")

if scheme == "setnx":
    if client.set("seen:m1", 1, nx=True, ex=3600):
        effect()
    sys.exit("acknowledged")

with app.app_context():
    try:
        with idempotence.once("messages", "m1") as message:
            if message.first:
                effect()
    except Running:
        sys.exit("requeued")
sys.exit("acknowledged")
"""


def deliver(url, scheme, fate="lives"):
    command = [sys.executable, "-c", CONSUMER, url, scheme, fate]
    done = run_to_end(command, env=environment(url, lease=1))
    return done.stderr.strip() if done.returncode > 0 else done.returncode


def test_dropping_a_message_because_setnx_failed_loses_it(fresh_redis):
    assert deliver(fresh_redis.url, "setnx", "dies") == -9
    assert deliver(fresh_redis.url, "setnx") == "acknowledged"
    with fresh_redis.client() as client:
        assert client.get("effects") is None  # nobody did the work, and nobody will


def test_once_requeues_a_message_until_the_lease_of_a_dead_consumer_ends(fresh_redis):
    assert deliver(fresh_redis.url, "once", "dies") == -9
    assert until(lambda: deliver(fresh_redis.url, "once") == "acknowledged", 30)
    assert deliver(fresh_redis.url, "once") == "acknowledged"
    with fresh_redis.client() as client:
        assert client.get("effects") == b"1"


def test_the_loser_of_an_optimistic_lock_may_be_a_rival(site, monkeypatch):
    wait_for_each_other(monkeypatch, optimistic_lock, "changed", 2)
    path = "optimistic-lock/mug"
    answers = site.at_once(*((path, {"percent": p, "version": 1}) for p in (10, 50)))
    assert statuses(answers) == {200: 1, 409: 1}
    assert site.truth("prices")["mug"] in {1100, 1500}  # not 1650: the other change is not done


@pytest.fixture(params=["postgres", "mariadb"])
def server(request):
    return request.getfixturevalue(request.param)


def race(url, select, **options):
    both_have_read = threading.Barrier(2, timeout=30)

    def insert_if_missing():
        with transaction(url, **options) as connection:
            assert connection.execute(text(select)).first() is None
            both_have_read.wait()
            return run_in(connection, "INSERT INTO recipe_plain_orders (reference) VALUES ('A')")

    errors = all_at_once([insert_if_missing] * 2)
    with transaction(url) as connection:
        rows = connection.scalar(text("SELECT count(*) FROM recipe_plain_orders"))
    return sorted(errors, key=str), rows


LOOK = "SELECT * FROM recipe_plain_orders WHERE reference = 'A'"


@pytest.mark.parametrize(
    ("select", "options", "expected"),
    [
        (LOOK, {}, {"postgresql": ([None, None], 2), "mysql": ([None, None], 2)}),
        (f"{LOOK} FOR UPDATE", {}, {"postgresql": ([None, None], 2), "mysql": ([1213, None], 1)}),
        (
            LOOK,
            {"isolation_level": "SERIALIZABLE"},
            {"postgresql": (["40001", None], 1), "mysql": ([1213, None], 1)},
        ),
    ],
    ids=["plain", "for update", "serializable"],
)
def test_a_locking_read_locks_no_missing_row_on_postgresql_and_deadlocks_on_innodb(
    server, select, options, expected
):
    url = new_tables(server)
    assert race(url, select, **options) == expected[make_url(url).get_backend_name()]


def test_a_number_of_the_database_makes_each_copy_a_row_of_its_own(server):
    with transaction(new_tables(server)) as connection:
        for _ in range(2):
            connection.execute(text("INSERT INTO recipe_orders (reference) VALUES (NULL)"))
        assert connection.scalar(text("SELECT count(*) FROM recipe_orders")) == 2


def size_of(url, ids):
    table = "sized (id CHAR(32) PRIMARY KEY, payload CHAR(200) DEFAULT '') CHARACTER SET ascii"
    with transaction(url, f"CREATE OR REPLACE TABLE {table}") as connection:
        insert = text("INSERT INTO sized (id) VALUES (:id)")
        connection.execute(insert, [{"id": each} for each in ids])
        connection.commit()
        connection.execute(text("ANALYZE TABLE sized")).all()
        where = "WHERE table_schema = DATABASE() AND table_name = 'sized'"
        size = f"SELECT data_length FROM information_schema.tables {where}"
        return connection.scalar(text(size))


def test_random_primary_keys_take_more_pages_of_innodb_than_ordered_ones(mariadb):
    url = mariadb.new_database()
    ordered = size_of(url, [f"{number:032x}" for number in range(ROWS)])
    random = size_of(url, [uuid.uuid4().hex for _ in range(ROWS)])
    assert random > ordered * 1.2


# Shards

WHOLE = "CREATE TABLE part PARTITION OF handled FOR VALUES WITH (MODULUS 1, REMAINDER 0)"


def test_a_unique_key_of_a_partitioned_table_must_hold_the_column_of_the_partitions(server):
    url = new_tables(server)
    is_postgres = url.startswith("postgresql")
    by_user = "PARTITION BY HASH (user_id)" + " PARTITIONS 2" * (not is_postgres)
    table = "CREATE TABLE handled (id VARCHAR(64), user_id INT, PRIMARY KEY ({})) " + by_user
    with transaction(url) as connection:
        refused = run_in(connection, table.format("id"))
        assert refused == ("0A000" if is_postgres else 1503)
        assert run_in(connection, table.format("id, user_id")) is None
        if is_postgres:
            connection.execute(text(WHOLE))
        for user in (1, 2):  # the same message, sent on by two services
            connection.execute(text(f"INSERT INTO handled VALUES ('m', {user})"))
        assert connection.scalar(text("SELECT count(*) FROM handled")) == 2


@pytest.mark.parametrize(("route", "effects"), [("sender", 10), ("message", 5)])
def test_a_message_is_handled_once_a_shard_unless_its_id_is_the_shard_key(
    server, tmp_path, route, effects
):
    sites = [RecipeSite(server.new_database(), tmp_path) for _ in range(2)]
    for sender in ("Ada", "Grace"):
        form = {"message": "m", "sender": sender}
        shard = sites[zlib.crc32(form[route].encode()) % 2]
        shard.post("deduplication-table/mug", message="m", pieces=5)
    assert sum(site.truth("stock") for site in sites) == effects
    for site in sites:
        site.close()
