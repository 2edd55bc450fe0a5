"""What docs/run-in-production.md says of servers, deployments and backups, on real ones."""

import os
import shutil
import signal
import time

import pytest
from helpers.apps import make_app
from helpers.servers.processes import RedisServer, is_alive, until
from helpers.servers.workers import Operation, Service
from helpers.store_assertions import claim

from flask_idempotence import idempotent, one_time_token
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Crashed, Done, Outcome, Running

pytestmark = pytest.mark.lifecycle


HEADERS = {"Idempotency-Key": "1", "Authorization": "Bearer alice", "X-Team": "blue"}
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
OLD = "an old secret of some length"


class TestTheServer:
    def test_what_is_written_at_once_outlives_a_kill(self):
        with RedisServer(*DURABLE) as server:
            store, owner = open_store(server.url, {}), os.urandom(16)
            store.claim("done", owner, NO_FINGERPRINT, 60, 0)
            assert store.complete("done", owner, NO_FINGERPRINT, b"r", 60) is Outcome.OK
            store.put_token("t", b"", 60)
            assert claim(store, "running") == Claimed()
            assert claim(store, "short", lease=0.5) == Claimed()
            server.kill()
            time.sleep(0.5)
            server.start()
            assert claim(store, "done") == Done(True, b"r")
            assert store.take_token("t", b"").name == "TAKEN"
            assert isinstance(claim(store, "running"), Running)
            # A lease goes on while the server is away.
            assert claim(store, "short") == Claimed()

    def test_a_server_that_evicts_lets_a_repeat_through(self, fresh_redis):
        store, behind = open_store(fresh_redis.url, {}), fresh_redis.client()
        assert claim(store) == Claimed()
        behind.config_set("maxmemory-policy", "allkeys-random")
        behind.config_set("maxmemory", 1)
        assert until(lambda: not behind.exists("k"))
        behind.config_set("maxmemory", 0)
        assert claim(store) == Claimed()

    def test_a_restored_backup_is_as_if_nothing_had_happened_since(self):
        with RedisServer("--dbfilename", "backup.rdb") as server:
            store, owner = open_store(server.url, {}), os.urandom(16)
            store.claim("done", owner, NO_FINGERPRINT, 60, 0)
            store.complete("done", owner, NO_FINGERPRINT, b"r", 60)
            store.claim("was running", owner, NO_FINGERPRINT, 0.5, 60)
            server.client().save()
            shutil.copy(server.directory / "backup.rdb", server.directory / "kept")
            store.complete("was running", owner, NO_FINGERPRINT, b"r", 60)
            store.claim("began later", owner, NO_FINGERPRINT, 60, 0)
            server.kill()
            shutil.copy(server.directory / "kept", server.directory / "backup.rdb")
            time.sleep(0.5)
            server.start()
            assert claim(store, "done") == Done(True, b"r")
            assert claim(store, "was running") == Crashed(True)
            assert claim(store, "began later") == Claimed()

    def test_without_persistence_a_primary_comes_back_empty_and_empties_its_replicas(self):
        with RedisServer() as primary, RedisServer() as replica:
            replica.client().replicaof("127.0.0.1", primary.port)
            store = open_store(primary.url, {})
            assert claim(store) == Claimed()
            assert until(lambda: replica.client().exists("k"), 10)
            primary.kill()
            primary.start()
            assert until(lambda: not replica.client().exists("k"), 10)
            assert claim(store) == Claimed()


def test_a_token_that_was_issued_without_the_store_counts_as_spent(fresh_redis):
    app = make_app(IDEMPOTENCE_STORAGE_URI=fresh_redis.url, IDEMPOTENCE_ON_STORE_ERROR="allow")
    app.add_url_rule("/", "view", one_time_token()(lambda: "spent"), methods=["POST"])
    fresh_redis.stop()
    token = app.test_client().get("/token").json["token"]
    fresh_redis.start()
    answer = app.test_client().post("/", headers={"Idempotence-Token": token})
    assert answer.json["type"] == "urn:flask-idempotence:token-spent"


def app_on(redis_url, runs, *, endpoint="pay", **settings):
    app = make_app(IDEMPOTENCE_STORAGE_URI=redis_url, **settings)

    @app.post("/pay", endpoint=endpoint)
    @idempotent
    def pay():
        runs.append(1)
        return "paid"

    return app.test_client()


class TestDeployments:
    """Two processes of different releases, or of different settings, share one store."""

    def run_both(self, redis_url, old, new):
        runs = []
        before, after = (app_on(redis_url, runs, **settings) for settings in (old, new))
        answers = [client.post("/pay", headers=HEADERS) for client in (before, after, before)]
        return [answer.status_code for answer in answers], len(runs)

    @pytest.mark.parametrize(
        "new",
        [
            {"SECRET_KEY": "another secret of some length"},
            {"SECRET_KEY": "another secret", "SECRET_KEY_FALLBACKS": ["and yet another"]},
            {"IDEMPOTENCE_HASH_KEY": "another secret of some length"},
            {"IDEMPOTENCE_IDENTITY_HOST": False},
            {"IDEMPOTENCE_IDENTITY_HEADERS": ["X-Team"]},
            {"IDEMPOTENCE_PREFIX": "another"},
            {"endpoint": "renamed"},
            {"IDEMPOTENCE_IDENTITY": ("ip",)},
        ],
        ids=" ".join,
    )
    def test_what_makes_up_the_store_key_must_not_change_between_them(self, redis_url, new):
        assert self.run_both(redis_url, {}, new) == ([200, 200, 200], 2)

    @pytest.mark.parametrize(
        "new",
        [
            {"SECRET_KEY": OLD},
            {"SECRET_KEY": "new", "SECRET_KEY_FALLBACKS": [OLD]},
            {"SECRET_KEY": "new", "IDEMPOTENCE_HASH_KEY": OLD},
        ],
        ids=["the same", "fallback", "hash key"],
    )
    def test_releases_that_agree_replay_each_others_responses(self, redis_url, new):
        assert self.run_both(redis_url, {"SECRET_KEY": OLD}, new) == ([200, 200, 200], 1)

    def test_a_record_of_a_newer_release_is_an_error_and_never_a_second_run(
        self, redis_url, redis_server
    ):
        runs = []
        client = app_on(redis_url, runs)
        client.post("/pay", headers=HEADERS)
        [key] = redis_server.client().keys()
        value = redis_server.client().get(key)
        redis_server.client().set(key, value[:33] + b"\x03" + value[34:], keepttl=True)
        answer = client.post("/pay", headers=HEADERS)
        assert (answer.status_code, answer.json["type"]) == (
            409,
            "urn:flask-idempotence:response-not-stored",
        )
        assert runs == [1]

    def test_a_graceful_reload_in_mid_view_lets_it_finish_and_loses_no_answer(self, redis_server):
        # Preloaded, so that a busy machine has new workers before the old one's time is over.
        with Service(redis_server, lease=1, extra=("--preload",)) as service:
            operation = Operation(service, "reloaded", "/once", plans=["gate"])
            thread, answers = operation.begin()
            old = operation.worker()
            os.kill(service.pid, signal.SIGHUP)
            ready = until(lambda: service.log.count("worker ready:") == 4, 20)
            assert ready, service.log
            # For longer than a lease: the old worker still renews it.
            until_then = time.monotonic() + 1.5
            while time.monotonic() < until_then:
                assert operation.post().slug == "key-in-progress"
                time.sleep(0.05)
            operation.open_gate()
            thread.join()
            again = operation.post()
            assert (answers[0].run, again.run, operation.runs) == (1, 1, 1)
            assert again.headers["Idempotent-Replayed"] == "true"
            assert until(lambda: not is_alive(old), 20)
