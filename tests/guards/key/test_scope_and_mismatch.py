"""Key mode: whose a key is, and what a repeat must repeat."""

import contextlib
import io

import pytest
from flask import request
from helpers.apps import KeyedApp, killed
from werkzeug.datastructures import FileStorage
from werkzeug.test import encode_multipart


@pytest.fixture(params=["memory", "redis"])
def uri(request):
    return None if request.param == "memory" else request.getfixturevalue("redis_url")


@pytest.fixture
def keyed(uri):
    """A keyed app whose receipts tell the runs apart."""
    keyed = KeyedApp(lambda: {"run": keyed.runs}, uri=uri)
    return keyed


class TestScope:
    @pytest.mark.parametrize("source", ["session", "authorization", "address", "identity_loader"])
    def test_two_users_with_one_key_never_meet(self, keyed, source):
        users = [USERS[source](keyed, name) for name in ("ann", "bob")]
        found = [[keyed.send(**user).json["run"] for user in users] for _ in range(2)]
        assert found == [[1, 2], [1, 2]]


def signed_in(keyed, name):
    client = keyed.app.test_client()
    with client.session_transaction() as session:
        session["user_id"] = name
    return {"client": client}


def known_to_the_application(keyed, name):
    keyed.idempotence.identity_loader(lambda: request.headers.get("X-User"))
    return {"headers": {"X-User": name, "Authorization": "Bearer shared"}}


USERS = {
    "session": signed_in,
    "authorization": lambda keyed, name: {"headers": {"Authorization": f"Bearer {name}"}},
    "address": lambda keyed, name: {"environ_base": {"REMOTE_ADDR": f"address of {name}"}},
    "identity_loader": known_to_the_application,
}


def upload(content=b"one", name="photo.png", **fields):
    """Return a form with a file, between boundaries of its own."""
    boundary, body = encode_multipart({"photo": FileStorage(io.BytesIO(content), name), **fields})
    return {"data": body, "content_type": f"multipart/form-data; boundary={boundary}"}


def as_json(text):
    return {"data": text, "content_type": "application/json"}


SAME = {
    "JSON in another order": [as_json('{"a":1,"b":2}'), as_json('{ "b": 2, "a": 1 }')],
    "another header": [{"json": {}}, {"json": {}, "headers": {"X-Trace": "2"}}],
    "an ignored argument": [{"json": {"a": 1}}, {"json": {"a": 1, "csrf_token": "x"}}],
    "an ignored argument in the query": [{"path": "/"}, {"path": "/?csrf_token=x"}],
    "an argument the route ignores": [{"json": {"sent_at": 1}}, {"json": {"sent_at": 2}}],
    "a field that is ignored": [{"data": {"sent_at": "1"}}, {"data": {"sent_at": "2"}}],
    "a file under another boundary": [upload(a="1"), upload(a="1")],
    "a large file": [upload(b"x" * 2**20), upload(b"x" * 2**20)],
}

OTHER = {
    "no body": [{"json": {"sum": 7}}, {}],
    "no query": [{"path": "/?a=1"}, {"path": "/"}],
    "a field beside the file": [upload(a="1"), upload(a="2")],
    "the file": [upload(b"one"), upload(b"two")],
    "the last byte of a large file": [upload(b"x" * 2**20), upload(b"x" * (2**20 - 1) + b"y")],
    "the name of the file": [upload(name="a.png"), upload(name="b.png")],
    "no file": [upload(a="1"), {"data": {"a": "1"}, "content_type": "multipart/form-data"}],
}


class TestMismatch:
    @pytest.mark.parametrize("what", SAME)
    def test_what_says_the_same_is_a_repeat(self, what):
        keyed = KeyedApp(ignore=["sent_at"])
        assert keyed.verdicts(*SAME[what]) == [200, "replay of 200"]

    @pytest.mark.parametrize("what", OTHER)
    def test_another_request_is_refused_and_takes_nothing_from_the_first(self, what):
        keyed = KeyedApp()
        first, other = OTHER[what]
        found = keyed.verdicts(first, other, first)
        assert found == [200, "key-reused", "replay of 200"]
        assert keyed.runs == 1

    def test_it_is_told_where_the_first_one_died(self):
        keyed = KeyedApp(killed, guarantee="at-most-once")
        with contextlib.suppress(SystemExit):
            keyed.send(json=[1])
        keyed.clock.advance(31)
        assert keyed.verdicts({"json": [2]}, {"json": [1]}) == ["key-reused", "outcome-unknown"]

    def test_a_file_may_be_ignored(self):
        keyed = KeyedApp(ignore=["photo"])
        found = keyed.verdicts(upload(b"one", a="1"), upload(b"two", a="1"), upload(b"one", a="2"))
        assert found == [200, "replay of 200", "key-reused"]

    def test_the_setting_names_what_is_ignored(self):
        keyed = KeyedApp(settings={"IDEMPOTENCE_IGNORED_ARGS": ["now"]}, ignore={"sent_at"})
        bodies = [{"now": 1, "sent_at": 1}, {"now": 2, "sent_at": 2}, {"csrf_token": "x"}]
        found = keyed.verdicts(*[{"json": body} for body in bodies])
        assert found == [200, "replay of 200", "key-reused"]
