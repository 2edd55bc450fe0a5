"""Replies that are no answers to their commands, and refusals: what each operation makes of them.

A server that answers everything alike stands for a proxy in between, another protocol on the port,
or a connection whose replies belong to other commands.
"""

import itertools
import os

import pytest
import redis
from helpers.servers.processes import HOST
from helpers.store_assertions import claim, documented_user, works

from flask_idempotence import RedisStore, StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import (
    NO_FINGERPRINT,
    Claimed,
    Crashed,
    Done,
    Entry,
    Outcome,
    Renewal,
    Running,
    TokenOutcome,
)

OWNER = b"o" * 16

REPLIES = [
    *(
        b"",
        b"\r\n",
        b"+OK\r\n",
        b"+PONG\r\n",
        b"+\r\n",
        b":0\r\n",
        b":1\r\n",
        b":-1\r\n",
        b":7\r\n",
    ),
    *(b":abc\r\n", b":\r\n", b"$abc\r\n", b"$-5\r\n", b"$0\r\n\r\n", b"$1\r\nx\r\n", b"$-1\r\n"),
    *(
        b"*-1\r\n",
        b"*0\r\n",
        b"*abc\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n$-1\r\n",
        b"*2\r\n:1\r\n:2\r\n",
    ),
    *(b"*4\r\n:1\r\n:1\r\n:5\r\n:6\r\n", b"*2\r\n:3\r\n$1\r\nx\r\n", b"*1\r\n*1\r\n*0\r\n"),
    *(b"*1\r\n*3\r\n:0\r\n:16383\r\n:7\r\n", b"*4\r\n$1\r\nD\r\n+x\r\n+y\r\n+z\r\n"),
    *(
        b"-\r\n",
        b"-ERR no\r\n",
        b"-MOVED\r\n",
        b"-MOVED x y\r\n",
        b"-ASK 1 :::\r\n",
        b"-NOAUTH a\r\n",
    ),
    *(b"-LOADING x\r\n", b"-NOSCRIPT x\r\n", b"-READONLY x\r\n", b"-WRONGTYPE x\r\n", b"-%d\r\n"),
    *(b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x16\x03\x01\x00", b"%1\r\n+a\r\n:1\r\n", b"_\r\n"),
    *(b"#t\r\n", b",1.5\r\n", b"(123\r\n", b"=3\r\ntxt\r\n"),
]

OUTCOMES = (Claimed, Crashed, Done, Running, Outcome, TokenOutcome, Entry, int, type(None), list)

OPERATIONS = {
    "claim": lambda store: store.claim("a", OWNER, NO_FINGERPRINT, 60, 0),
    "renew": lambda store: store.renew([Renewal("a", OWNER, 60), Renewal("b", OWNER, 60)]),
    "complete": lambda store: store.complete("a", OWNER, NO_FINGERPRINT, b"r", 60),
    "release": lambda store: store.release("a", OWNER),
    "put_token": lambda store: store.put_token("a", b"", 60),
    "take_token": lambda store: store.take_token("a", b""),
    "peek": lambda store: store.peek("a"),
    "discard": lambda store: store.discard([("a", Entry("claim", 1.0, 1, mark=b"m"))]),
    "scan": lambda store: [next(store.scan("a"), None)],
    "remove": lambda store: store.remove("a"),
    "ping": lambda store: store.ping(),
    "facts": lambda store: list(store.facts()),
}


def uris(server):
    place = server.address
    return {
        "alone": f"redis://{place}/0",
        "with a database": server.url,
        "sentinel": f"redis+sentinel://{place}/shop",
        "cluster": f"redis+cluster://{place}",
    }


OFTEN = {("alone", 0), ("cluster", 1)}
TOPOLOGIES = "alone", "with a database", "sentinel", "cluster"


@pytest.mark.parametrize(
    ("topology", "wait_replicas"),
    [
        pytest.param(*cell, marks=() if cell in OFTEN else pytest.mark.deep)
        for cell in itertools.product(TOPOLOGIES, (0, 1))
    ],
)
def test_any_reply_is_an_outcome_or_an_error_of_the_store(server, topology, wait_replicas):
    options = {"deadline": 0.05, "wait_replicas": wait_replicas}
    uri = uris(server)[topology]
    for reply in REPLIES:
        server.answer = lambda connection, packet, reply=reply: connection.sendall(
            reply * packet.count(b"*")
        )
        for name, operation in OPERATIONS.items():
            store = open_store(uri, options)
            try:
                outcome = operation(store)
            except StoreError:
                continue
            assert isinstance(outcome, OUTCOMES), (name, reply)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "facts"])
def test_a_reply_that_is_no_answer_closes_its_connection(server, name):
    store = open_store(server.url, {"deadline": 5})
    for connections in (1, 2, 3):
        server.answer = lambda connection, packet: connection.sendall(
            b"*1\r\n*0\r\n" * packet.count(b"*")
        )
        with pytest.raises(StoreError, match="InvalidResponse") as caught:
            OPERATIONS[name](store)
        assert caught.value.sent
        assert len(server.connections) == connections


@pytest.fixture
def guarded(fresh_redis):
    admin = fresh_redis.client()

    def open_for(*rules, password="password"):
        admin.execute_command("ACL", "SETUSER", "shop", "reset", "on", f">{password}", *rules)
        return open_store(f"redis://shop:{password}@{HOST}:{fresh_redis.port}/0", {})

    return admin, open_for


EVERYTHING = ("~*", "&*", "+@all")


@pytest.mark.parametrize("refused", ["eval", "evalsha"])
@pytest.mark.parametrize("cached", [True, False])
def test_a_user_who_may_not_call_a_script_in_each_way_is_found_before_a_view(
    guarded, refused, cached
):
    admin, open_for = guarded
    if cached:
        works(open_for(*EVERYTHING))
    store = open_for(*EVERYTHING, f"-{refused}")
    for _ in range(2):
        with pytest.raises(StoreError, match="NoPermission") as caught:
            claim(store)
        assert not caught.value.sent
        assert not admin.exists("k")
    admin.execute_command("ACL", "SETUSER", "shop", f"+{refused}")
    works(store)


def test_a_right_that_is_taken_away_is_missed_before_the_next_view(guarded):
    admin, open_for = guarded
    store = open_for(*EVERYTHING)
    works(store)
    mine = os.urandom(16)
    assert store.claim("k", mine, NO_FINGERPRINT, 10, 0) == Claimed()
    admin.execute_command("ACL", "SETUSER", "shop", "-evalsha")
    with pytest.raises(StoreError, match="NoPermission") as caught:
        store.release("k", mine)
    assert not caught.value.sent
    with pytest.raises(StoreError, match="NoPermission"):
        claim(store, "another")
    assert not admin.exists("another")
    admin.execute_command("ACL", "SETUSER", "shop", "+evalsha")
    assert store.release("k", mine) is Outcome.OK
    works(store)


def test_the_documented_user_has_the_rights(guarded):
    admin, _ = guarded
    admin.execute_command("ACL", "SETUSER", *documented_user())


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "facts"])
@pytest.mark.parametrize("error", ["NOAUTH Authentication required.", "LOADING the dataset"])
def test_a_server_that_takes_no_command_has_done_nothing(server, name, error):
    server.answer = lambda connection, packet: connection.sendall(f"-{error}\r\n".encode())
    with pytest.raises(StoreError) as caught:
        OPERATIONS[name](open_store(server.url, {"deadline": 5}))
    assert not caught.value.sent


class Password(redis.CredentialProvider):
    """A credential provider, whose password changes."""

    def __init__(self):
        self.password = "first"

    def get_credentials(self):
        return "shop", self.password


def test_a_password_that_changes_is_asked_for_at_the_next_connection(fresh_redis):
    """Those that are open stay: Redis ends them only with their user."""
    admin, password = fresh_redis.client(), Password()
    admin.execute_command("ACL", "SETUSER", "shop", "on", ">first", *EVERYTHING)
    place = {"host": HOST, "port": fresh_redis.port, "credential_provider": password}
    store = RedisStore(redis.Redis(**place))
    works(store)
    admin.execute_command("ACL", "SETUSER", "shop", "resetpass", ">second")
    works(store)
    store._deployment.close()
    with pytest.raises(StoreError, match=r"WRONGPASS|invalid username") as caught:
        claim(store)
    assert not caught.value.sent
    password.password = "second"
    works(store)
