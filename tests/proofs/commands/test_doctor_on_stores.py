"""The doctor on the store: on real servers, well and ill."""

import pytest
from helpers.applications.doctor_apps import GOOD, names_of, production_app, severity
from helpers.apps import bare_app
from helpers.servers.processes import HOST, RedisServer, until

from flask_idempotence import Idempotence, RedisStore
from flask_idempotence.cli.checks import STORE_CHECKS
from flask_idempotence.cli.doctor import collect, examine

pytestmark = pytest.mark.servers

OF_DATABASES = {"table", "durability", "pooler"}
OF_STORES = names_of(STORE_CHECKS)
OF_SERVERS = dict.fromkeys(name for name in OF_STORES if name not in OF_DATABASES)


def test_a_server_that_is_as_it_should_be(fresh_redis):
    fresh_redis.client().config_set("appendonly", "yes")
    app = production_app(IDEMPOTENCE_STORAGE_URI=fresh_redis.url)
    found = list(examine(collect(app)))
    assert {each.check: each.severity for each in found if each.check in OF_STORES} == (
        dict.fromkeys(OF_SERVERS, "ok")
    )
    assert fresh_redis.client().dbsize() == 0  # the probe is gone


def test_the_memory_that_a_server_uses_is_its_own_word(fresh_redis):
    server = fresh_redis.client()
    server.set("x", b"x" * 4_000_000)
    server.config_set("maxmemory", server.info("memory")["used_memory"] * 10 // 9)
    assert severity("memory", production_app(IDEMPOTENCE_STORAGE_URI=fresh_redis.url)) == "warning"


def test_replicas_against_those_that_are_waited_for(fresh_redis):
    store = RedisStore(fresh_redis.client())
    app = bare_app(SECRET_KEY=GOOD)
    Idempotence(app, store=store)
    with RedisServer("--replicaof", HOST, str(fresh_redis.port)) as replica:
        assert until(
            lambda: replica.client().info("replication")["master_link_status"] == "up", 30
        )
        assert until(lambda: store.facts()[0].replicas == 1, 10)
        assert severity("replicas", app) == "note"
        store._deployment.replicas = 1
        assert severity("replicas", app) == "ok"
        store._deployment.replicas = 2
        assert severity("replicas", app) == "error"
