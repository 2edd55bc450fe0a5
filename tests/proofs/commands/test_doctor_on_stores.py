"""The doctor on the store: on real servers, well and ill."""

import pytest
from helpers.applications.doctor_apps import GOOD, found_by, production_app, severity
from helpers.apps import bare_app
from helpers.servers.processes import HOST, RedisServer, until

from flask_idempotence import Idempotence, RedisStore
from flask_idempotence.cli.doctor import collect, examine
from flask_idempotence.cli.doctor.store import STORE_CHECKS

pytestmark = pytest.mark.servers

OF_DATABASES = {"table", "durability", "room", "pooler"}
OF_SERVERS = [name for name in STORE_CHECKS if name not in OF_DATABASES]


@pytest.fixture
def app(redis_url):
    return production_app(IDEMPOTENCE_STORAGE_URI=redis_url)


def test_a_server_that_is_as_it_should_be(fresh_redis):
    server = fresh_redis.client()
    server.config_set("appendonly", "yes")
    app = production_app(IDEMPOTENCE_STORAGE_URI=fresh_redis.url)
    found = list(examine(collect(app)))
    assert {each.check: each.severity for each in found if each.check in STORE_CHECKS} == (
        dict.fromkeys(OF_SERVERS, "ok")
    )
    assert server.dbsize() == 0  # the probe is gone


def test_a_server_that_hides_what_it_is(fresh_redis):
    fresh_redis.client().acl_setuser(
        "guest",
        enabled=True,
        nopass=True,
        categories=["+@all"],
        commands=["-info", "-config", "-time"],
        keys=["*"],
    )
    app = production_app(IDEMPOTENCE_STORAGE_URI=fresh_redis.url.replace("//", "//guest:x@"))
    for name in set(OF_SERVERS) - {"store"}:
        assert severity(name, app) == "note", name


@pytest.mark.parametrize(
    ("version", "expected"),
    [((6, 0, 16), "error"), ((5, 0), "error"), ((6, 2, 0), "ok"), ((7, 4, 1), "ok")],
)
def test_a_server_that_is_too_old(app, version, expected):
    assert severity("version", app, version=version) == expected


@pytest.mark.parametrize(
    ("policy", "limit", "expected"),
    [
        ("noeviction", "100mb", "ok"),
        ("allkeys-lru", "100mb", "error"),
        ("volatile-ttl", "100mb", "error"),
        ("volatile-lru", "0", "warning"),
    ],
)
def test_a_server_that_evicts(fresh_redis, policy, limit, expected):
    fresh_redis.client().config_set("maxmemory-policy", policy)
    fresh_redis.client().config_set("maxmemory", limit)
    assert (
        severity("eviction", production_app(IDEMPOTENCE_STORAGE_URI=fresh_redis.url)) == expected
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"appendonly": "no", "save": ""}, "warning"),
        ({"appendonly": "no", "save": "60 1"}, "warning"),
        ({"appendonly": "yes", "appendfsync": "no"}, "warning"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "ok"),
        ({"appendonly": "yes", "appendfsync": "always"}, "ok"),
    ],
    ids=str,
)
def test_a_server_that_forgets_at_a_restart(fresh_redis, settings, expected):
    for name, value in settings.items():
        fresh_redis.client().config_set(name, value)
    assert (
        severity("persistence", production_app(IDEMPOTENCE_STORAGE_URI=fresh_redis.url))
        == expected
    )


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [(0.2, "ok"), (-4, "ok"), (6, "warning"), (-29, "warning"), (31, "error")],
)
def test_clocks_that_differ(app, ahead, expected):
    assert severity("clock", app, clock_ahead=ahead) == expected


@pytest.mark.parametrize(
    ("used", "limit", "expected"),
    [
        (74, 100, "ok"),
        (76, 100, "warning"),
        (94, 100, "warning"),
        (96, 100, "error"),
        (96, 0, "ok"),
    ],
)
def test_a_server_whose_memory_runs_out(app, used, limit, expected):
    facts = {"memory_used": used, "memory_limit": limit, "memory_of_machine": 10_000}
    assert severity("memory", app, **facts) == expected


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


def test_signals_that_cannot_be_published(fresh_redis, tmp_path):
    def found(url, **settings):
        app = production_app(IDEMPOTENCE_STORAGE_URI=url, **settings)
        return found_by("watch", app)

    fresh_redis.client().execute_command(
        *["ACL", "SETUSER", "guest", "on", "nopass", "~*", "resetchannels", "+@all"]
    )
    guest = fresh_redis.url.replace("//", "//guest:x@")
    on = {"IDEMPOTENCE_WATCH": True}
    assert found(fresh_redis.url).severity == "ok"
    assert found(fresh_redis.url, **on).severity == "ok"
    assert found("memory://", **on).severity == "note"
    assert found(f"sqlite:///{tmp_path}/no.db", **on).severity == "note"
    assert found(guest).severity == "ok"
    forbidden = found(guest, **on)
    assert forbidden.severity == "warning"
    assert "NoPermissionError" in forbidden.finding
    assert "idempotence:watch" in forbidden.remedy
