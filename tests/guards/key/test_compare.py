"""`idempotent(compare=...)`: what a repeat must have in common with the first request."""

import io

import pytest
from flask import abort, request
from helpers.apps import KeyedApp, verdict

from flask_idempotence import ConfigurationError, idempotent


@pytest.fixture(params=["memory", "redis"])
def uri(request):
    return None if request.param == "memory" else request.getfixturevalue("redis_url")


JSON = "application/json"
LOOP = []
LOOP.append(LOOP)


def keyed_app(compare, *, uri=None, settings=None, **options):
    keyed = KeyedApp(lambda **_: {"run": keyed.runs}, uri=uri, settings=settings, compare=compare)
    keyed.add("/<shop>/paid", lambda **_: {"run": keyed.runs}, compare=compare, **options)
    return keyed


def form_order():
    return request.form.get("order")


class TestNothing:
    @pytest.mark.parametrize("encrypted", [False, True])
    def test_a_repeat_may_differ_in_all_that_the_key_does_not_say(self, uri, encrypted):
        key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
        settings = {"IDEMPOTENCE_KEY_ENCRYPTION_KEYS": [key]} if encrypted else {}
        keyed = keyed_app(False, uri=uri, settings=settings)
        sent = [{"json": {"sum": 1}}, {"data": b"<x/>"}, {"query_string": "a=1"}, {}]
        assert keyed.verdicts(*sent) == [200] + ["replay of 200"] * 3
        assert keyed.runs == 1

    def test_not_even_the_path_counts(self, uri):
        keyed = keyed_app(False, uri=uri)
        found = [keyed.send(path=path).json for path in ("/a/paid", "/b/paid")]
        assert found == [{"run": 1}] * 2

    def test_method_endpoint_and_key_count_as_ever(self, uri):
        keyed = keyed_app(False, uri=uri)
        sent = [{}, {"path": "/a/paid"}, {"method": "PUT"}, {"key": "another"}]
        assert keyed.verdicts(*sent) == [200] * 4


class TestAFunction:
    def test_its_value_is_all_that_counts(self, uri):
        keyed = keyed_app(form_order, uri=uri)
        found = keyed.verdicts(
            {"data": {"order": "1", "sent_at": "1"}},
            {"data": {"order": "1", "sent_at": "2"}},
            {"data": {"order": "2", "sent_at": "1"}},
            {"data": {"order": "1"}, "query_string": "x=1"},
        )
        assert found == [200, "replay of 200", "key-reused", "replay of 200"]

    def test_values_of_different_types_differ(self, uri):
        values = [1, 1.0, "1", [1], {"1": 1}, None, True]
        keyed = keyed_app(lambda: values[int(request.args["n"])], uri=uri)
        found = keyed.verdicts(*({"query_string": f"n={n}"} for n in range(len(values))))
        assert found == [200] + ["key-reused"] * (len(values) - 1)
        assert keyed.verdicts({"query_string": "n=0"}) == ["replay of 200"]

    def test_it_is_told_from_the_whole_request(self):
        """A route that changes from one to the other does not replay what was compared else."""
        keyed = keyed_app(lambda: ["key"])
        keyed.send()
        keyed.app.view_functions["view"] = idempotent(keyed.app.view_functions["view"].__wrapped__)
        assert verdict(keyed.send()) == "key-reused"

    @pytest.mark.parametrize(
        "value",
        [object(), {1: 2, "1": 3}, {"a": {1, 2}}, b"bytes", LOOP],
    )
    def test_a_value_that_json_cannot_hold_is_a_configuration_error(self, value):
        keyed = keyed_app(lambda: value)
        with pytest.raises(ConfigurationError, match="of 'view' must return a value that"):
            keyed.send()
        assert (keyed.runs, list(keyed.store.scan(""))) == (0, [])

    def test_an_answer_that_it_raises_is_the_answer_and_leaves_no_claim(self):
        keyed = keyed_app(lambda: abort(400, "No such order."))
        assert keyed.verdicts({}, {}) == [400, 400]
        assert (keyed.runs, list(keyed.store.scan(""))) == (0, [])


class Unread(io.BytesIO):
    """A body that counts how much of it is read."""

    size = 20 * 2**20
    taken = 0

    def __init__(self):
        super().__init__(b"x" * self.size)

    def read(self, size=-1, /):
        piece = super().read(size)
        self.taken += len(piece)
        return piece

    def readinto(self, buffer, /):
        count = super().readinto(buffer)
        self.taken += count
        return count


@pytest.mark.parametrize(("compare", "untouched"), [(False, 1), (lambda: 1, 1), (None, 0)])
@pytest.mark.parametrize("mimetype", ["application/json", "application/octet-stream"])
def test_a_large_body_is_left_to_the_view(compare, untouched, mimetype):
    body = Unread()
    seen = []

    def view():
        seen.append(body.taken == 0)
        return str(len(request.stream.read()))

    keyed = KeyedApp(view, compare=compare)
    environ = {"wsgi.input": body, "CONTENT_LENGTH": str(body.size)}
    answers = [
        keyed.send(environ_overrides=environ, content_type=mimetype) for _ in range(1 + untouched)
    ]
    assert [answer.text for answer in answers] == [str(body.size)] * len(answers)
    assert (seen, keyed.runs) == ([bool(untouched)], 1)
    assert body.taken == body.size  # the repeat was replayed without reading it


KEYS = {
    "a text": ("20261122", 200),
    "a number": (7, 200),
    "another alphabet": ("单号 1", 200),
    "255 characters": ("x" * 255, 200),
    "none": (None, "key-missing"),
    "empty": ("", "key-invalid"),
    "too long": ("x" * 256, "key-invalid"),
    "a bool": (True, "key-invalid"),
    "a list": (["1"], "key-invalid"),
    "an object": ({"id": 1}, "key-invalid"),
}
