"""The method of redis-py that is overridden, and its settings, on the oldest and newest."""

import pytest
import redis
from helpers.store_assertions import works
from redis.connection import Connection
from redis.exceptions import RedisError, ResponseError

from flask_idempotence import RedisStore
from flask_idempotence.stores import open_store
from flask_idempotence.stores.redis.link import ConnectionFactory, deadline, error_code, pack


def link_of(client):
    deadline.begin(5)
    return ConnectionFactory(client.connection_pool).connect()


def test_every_wait_of_a_connection_goes_through_the_socket_with_the_deadline(redis_server):
    for client in (redis_server.client(), redis.Redis.from_url(redis_server.unix_url)):
        link = link_of(client)
        assert link._sock is link.over
        pong, error = link.exchange(pack("PING") + pack("NONSENSE"), 2)
        assert pong == b"PONG"
        assert isinstance(error, ResponseError)
        with deadline.limit(0.1), pytest.raises(redis.TimeoutError):
            link.exchange(pack("BLPOP", "nothing", 0), 1)
        link.disconnect()


def test_a_connection_costs_no_round_trip_before_its_first_command(fresh_redis):
    with fresh_redis.client() as behind:
        behind.config_resetstat()
        open_store(fresh_redis.url, {}).ping()
        sent = {name for name in behind.info("commandstats") if name.startswith("cmdstat_")}
    assert sent <= {"cmdstat_ping", "cmdstat_config|resetstat", "cmdstat_config", "cmdstat_info"}


def test_a_pool_leaves_nothing_behind_in_our_connections(redis_server, redis_url):
    client = redis_server.client(protocol=3, decode_responses=True)
    client.ping()
    link = link_of(client)
    assert link.get_protocol() == 2
    notifications = getattr(link, "maint_notifications_config", None)
    assert not notifications or not notifications.enabled  # they would relax the time-outs
    assert link.retry._retries == 0
    link.disconnect()
    works(RedisStore(client))


@pytest.mark.parametrize(
    "line",
    [
        *("MOVED 7 127.0.0.1:7001", "ASK 7 127.0.0.1:7001", "TRYAGAIN later", "CLUSTERDOWN x"),
        *("READONLY x", "NOPERM x", "NOSCRIPT x", "OOM x", "MASTERDOWN x", "CROSSSLOT x"),
        *("WRONGTYPE x", "MISCONF x", "NOREPLICAS x", "BUSY x"),
    ],
)
def test_the_code_of_an_error_is_found_with_a_class_and_without(line):
    parser = Connection(protocol=2)._parser
    for error in (parser.parse_error(line), ResponseError(line)):
        assert isinstance(error, RedisError)
        assert error_code(error) == line.split()[0]
        assert str(error).split()[-1] == line.split()[-1]
