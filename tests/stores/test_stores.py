"""The stores: the contract on each, and what is special about one."""

import os

import pytest
import redis
from helpers.apps import make_app
from helpers.store_assertions import is_true_in_a_child

from flask_idempotence import (
    ConfigurationError,
    MemoryStore,
    RedisStore,
    Store,
    StoreError,
    idempotent,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Done, Outcome, Renewal, Running
from flask_idempotence.testing import FakeClock, StoreContract, clear_store


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def clock(self):
        return FakeClock()

    @pytest.fixture
    def store(self, clock):
        self.advance = clock.advance
        return MemoryStore(clock=clock)

    def test_a_full_store_refuses_and_evicts_nothing(self, clock):
        store = MemoryStore(max_entries=2, clock=clock)
        store.claim("a", os.urandom(16), NO_FINGERPRINT, 5, 0)
        store.claim("b", os.urandom(16), NO_FINGERPRINT, 10, 0)
        with pytest.raises(StoreError, match="full"):
            store.claim("c", os.urandom(16), NO_FINGERPRINT, 10, 0)
        assert isinstance(store.claim("a", os.urandom(16), NO_FINGERPRINT, 5, 0), Running)
        clock.advance(5)
        assert store.claim("c", os.urandom(16), NO_FINGERPRINT, 10, 0) == Claimed()

    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_a_child_process_does_not_inherit_a_locked_lock(self, store):
        with store._lock:
            assert is_true_in_a_child(lambda: list(store.scan("")) == [])


class MinimalStore(Store):
    """A store of a user's own, with all that a request needs and nothing else."""

    def __init__(self, clock):
        kept = MemoryStore(clock=clock)
        for name in ("claim", "renew", "complete", "release", "put_token", "take_token"):
            setattr(self, name, getattr(kept, name))

    claim = renew = complete = release = put_token = take_token = None


class TestAStoreThatCannotBeListed(StoreContract):
    @pytest.fixture
    def store(self):
        clock = FakeClock()
        self.advance = clock.advance
        return MinimalStore(clock)

    def test_needs_no_other_method_for_any_guard(self, store):
        app = make_app(store=store)
        app.add_url_rule("/lock", "lock", no_repeat_submit(60)(lambda: "ok"), methods=["POST"])
        app.add_url_rule("/key", "key", idempotent(lambda: "ok"), methods=["POST"])
        app.add_url_rule("/token-guard", "token", one_time_token()(lambda: "ok"), methods=["POST"])
        client = app.test_client()
        headers = {"Idempotence-Token": client.get("/token").get_json()["token"]}
        assert [client.post("/lock").status_code for _ in range(2)] == [200, 409]
        assert [client.post("/token-guard", headers=headers).status_code for _ in range(2)] == [
            200,
            409,
        ]
        answers = [client.post("/key", headers={"Idempotency-Key": "k"}) for _ in range(2)]
        assert [answer.headers.get("Idempotent-Replayed") for answer in answers] == [None, "true"]

    @pytest.mark.parametrize(
        "command",
        [["stats"], ["inspect", "abcdef"], ["release", "abcdef"], ["purge", "--all"]],
        ids=lambda command: command[0],
    )
    def test_is_named_by_the_commands_that_list(self, store, command):
        runner = make_app(store=store).test_cli_runner()
        done = runner.invoke(args=["idempotence", *command])
        assert done.exit_code == 1
        assert "This store cannot be listed: MinimalStore" in done.output

    def test_is_named_by_clear_store(self, store):
        with pytest.raises(ConfigurationError, match="MinimalStore"):
            clear_store(make_app(store=store))

    def test_is_examined_by_the_doctor(self, store):
        done = make_app(store=store).test_cli_runner().invoke(args=["idempotence", "doctor"])
        assert done.exit_code in (0, 1), done.output
        assert "cannot be listed" not in done.output
        assert done.exception is None or isinstance(done.exception, SystemExit)


class TestRedisStore(StoreContract):
    @pytest.fixture(params=[{}, {"protocol": 3, "decode_responses": True}], ids=["ours", "set"])
    def store(self, redis_url, request):
        client = redis.Redis.from_url(redis_url, **request.param)
        yield RedisStore(client, deadline=10)  # a busy machine is no failure
        client.close()


class TestRedisStoreAlone:
    @pytest.fixture
    def store(self, redis_url):
        return open_store(redis_url, {})

    def test_a_ready_client_is_not_altered(self, redis_server, redis_url):
        client = redis.Redis.from_url(redis_url, decode_responses=True, socket_timeout=77)
        before = dict(client.connection_pool.connection_kwargs)
        store = RedisStore(client)
        store.put_token("t", b"x", 60)
        assert client.get("t") == "Tx"
        assert client.connection_pool.connection_kwargs == before
        assert client.connection_pool._created_connections == 1  # its own, for the line above
        client.close()

    def test_a_value_that_is_not_ours_is_no_claim_and_no_wrong_answer(self, redis_server, store):
        redis_server.client().set("k", "something else")
        assert store.claim("k", os.urandom(16), NO_FINGERPRINT, 10, 0) == Done(True, b"")
        redis_server.client().delete("k")
        redis_server.client().lpush("k", "a list")
        with pytest.raises(StoreError):
            store.claim("k", os.urandom(16), NO_FINGERPRINT, 10, 0)

    def test_one_broken_key_does_not_keep_the_others_from_being_renewed(self, redis_server, store):
        owners = [os.urandom(16) for _ in range(3)]
        for number, owner in enumerate(owners):
            store.claim(f"k{number}", owner, NO_FINGERPRINT, 10, 0)
        redis_server.client().delete("k1")
        redis_server.client().lpush("k1", "a list")
        renewals = [Renewal(f"k{number}", owner, 10) for number, owner in enumerate(owners)]
        assert store.renew(renewals) == [Outcome.OK, Outcome.STALE, Outcome.OK]
        assert store.renew(renewals[1:2]) == [Outcome.STALE]
