"""Key mode: what a repeat must repeat."""

import contextlib
import io
from uuid import UUID

import pytest
from flask import abort, request
from helpers.apps import KeyedApp, killed, verdict
from werkzeug.datastructures import FileStorage
from werkzeug.test import encode_multipart

from flask_idempotence import idempotent


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
    "a large file under another boundary": [upload(b"x" * 2**20), upload(b"x" * 2**20)],
}


@pytest.mark.parametrize("what", SAME)
def test_what_says_the_same_is_a_repeat(what):
    keyed = KeyedApp(ignore=["sent_at"])
    assert keyed.verdicts(*SAME[what]) == [200, "replay of 200"]


OTHER = {
    "an element of the body": [{"json": {"a": 1, "b": 2}}, {"json": {"a": 1, "b": 3}}],
    "the type of an element": [{"json": {"a": 1}}, {"json": {"a": "1"}}],
    "the bytes": [{"data": b"1"}, {"data": b"2"}],
    "no body": [{"json": {"sum": 7}}, {}],
    "the query": [{"path": "/?a=1"}, {"path": "/?a=2"}],
    "no query": [{"path": "/?a=1"}, {"path": "/"}],
    "the path": [{"path": "/orders/1"}, {"path": "/orders/2"}],
    "a form": [{"data": {"a": "1"}}, {"data": {"a": "2"}}],
    "a field beside the file": [upload(a="1"), upload(a="2")],
    "the last byte of a large file": [upload(b"x" * 2**20), upload(b"x" * (2**20 - 1) + b"y")],
    "the name of the file": [upload(name="a.png"), upload(name="b.png")],
    "no file": [upload(a="1"), {"data": {"a": "1"}, "content_type": "multipart/form-data"}],
}


@pytest.mark.parametrize("what", OTHER)
def test_the_fingerprint_covers_the_whole_payload(what):
    """Another request is refused, and takes nothing from the first."""
    keyed = KeyedApp()
    keyed.add("/orders/<int:number>", lambda number: "done")
    first, other = OTHER[what]
    assert keyed.verdicts(first, other, first) == [200, "key-reused", "replay of 200"]
    assert keyed.runs == 1


def test_another_request_is_told_where_the_first_one_died():
    keyed = KeyedApp(killed, guarantee="at-most-once")
    with contextlib.suppress(SystemExit):
        keyed.send(json=[1])
    keyed.clock.advance(31)
    assert keyed.verdicts({"json": [2]}, {"json": [1]}) == ["key-reused", "outcome-unknown"]


def test_a_file_may_be_ignored():
    keyed = KeyedApp(ignore=["photo"])
    found = keyed.verdicts(upload(b"one", a="1"), upload(b"two", a="1"), upload(b"one", a="2"))
    assert found == [200, "replay of 200", "key-reused"]


def test_the_setting_names_what_is_ignored():
    keyed = KeyedApp(settings={"IDEMPOTENCE_IGNORED_ARGS": ["now"]}, ignore={"sent_at"})
    bodies = [{"now": 1, "sent_at": 1}, {"now": 2, "sent_at": 2}, {"csrf_token": "x"}]
    found = keyed.verdicts(*[{"json": body} for body in bodies])
    assert found == [200, "replay of 200", "key-reused"]


# What a repeat must have in common, by `compare=`


def keyed_app(compare, **options):
    keyed = KeyedApp(lambda **_: {"run": keyed.runs}, compare=compare, **options)
    keyed.add("/<shop>/paid", lambda **_: {"run": keyed.runs}, compare=compare)
    return keyed


class TestNothingCompared:
    @pytest.mark.parametrize("keys", [(), ("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",)])
    def test_a_repeat_may_differ_in_all_that_the_key_does_not_say(self, keys, redis_url):
        settings = {"IDEMPOTENCE_KEY_ENCRYPTION_KEYS": keys}
        keyed = keyed_app(False, uri=redis_url, settings=settings)
        sent = [{"json": {"sum": 1}}, {"data": b"<x/>"}, {"query_string": "a=1"}, {}]
        assert keyed.verdicts(*sent) == [200] + ["replay of 200"] * 3
        assert keyed.runs == 1

    def test_method_endpoint_and_key_count_as_ever_and_the_path_does_not(self):
        keyed = keyed_app(False)
        sent = [{}, {"path": "/a/paid"}, {"path": "/b/paid"}, {"method": "PUT"}, {"key": "b"}]
        assert keyed.verdicts(*sent) == [200, 200, "replay of 200", 200, 200]


class TestAFunctionCompares:
    def test_its_value_is_all_that_counts(self):
        keyed = keyed_app(lambda: request.form.get("order"))
        found = keyed.verdicts(
            {"data": {"order": "1", "sent_at": "1"}},
            {"data": {"order": "1", "sent_at": "2"}},
            {"data": {"order": "2", "sent_at": "1"}},
            {"data": {"order": "1"}, "query_string": "x=1"},
        )
        assert found == [200, "replay of 200", "key-reused", "replay of 200"]

    def test_values_of_different_types_differ(self):
        values = [1, 1.0, "1", [1], {"1": 1}, None, True, UUID(int=1), [UUID(int=2)]]
        keyed = keyed_app(lambda: values[int(request.args["n"])])
        found = keyed.verdicts(*({"query_string": f"n={n}"} for n in range(len(values))))
        assert found == [200] + ["key-reused"] * (len(values) - 1)
        assert keyed.verdicts({"query_string": "n=0"}) == ["replay of 200"]

    def test_it_is_told_from_the_whole_request(self):
        """A route that changes from one to the other does not replay what was compared else."""
        keyed = keyed_app(lambda: ["key"])
        keyed.send()
        keyed.app.view_functions["view"] = idempotent(keyed.app.view_functions["view"].__wrapped__)
        assert verdict(keyed.send()) == "key-reused"

    def test_an_answer_that_it_raises_is_the_answer_and_leaves_no_claim(self):
        keyed = keyed_app(lambda: abort(400, "No such order."))
        assert keyed.verdicts({}, {}) == [400, 400]
        assert (keyed.runs, list(keyed.store.scan(""))) == (0, [])


@pytest.mark.parametrize(("compare", "is_left"), [(False, True), (lambda: 1, True), (None, False)])
def test_a_large_body_is_left_to_the_view(compare, is_left):
    seen, size = [], 20 * 2**20

    def view():
        seen.append(body.tell())
        return str(len(request.stream.read()))

    keyed = KeyedApp(view, compare=compare)
    for is_repeat in (False, True) if is_left else (False,):
        body = io.BytesIO(b"x" * size)
        environ = {"CONTENT_LENGTH": str(size), "wsgi.input": body}
        assert keyed.send(environ_overrides=environ).text == str(size)
        assert body.tell() == (0 if is_repeat else size)  # a repeat is replayed without reading it
    assert seen == [0 if is_left else size]
