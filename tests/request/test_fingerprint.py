"""The fingerprint: equal requests agree, different ones differ, and it is the same for ever."""

import io
import json
import struct
from urllib.parse import urlencode

import pytest
from flask import request
from helpers.apps import make_app
from hypothesis import given, settings
from hypothesis import strategies as st

from flask_idempotence import ConfigurationError
from flask_idempotence.config.settings import Config
from flask_idempotence.request.fingerprint import (
    MOST_FRACTIONS,
    Keyring,
    Selection,
    canonical_request,
)

ALL = Selection()
app = make_app()


@app.route("/orders/<int:number>/<path:rest>", methods=["POST", "PUT"])
@app.route("/orders", methods=["POST", "PUT"], endpoint="orders")
def view(**arguments):
    return {}


def text(selection=ALL, path="/orders", method="POST", **options):
    with app.test_request_context(path, method=method, **options):
        return canonical_request(request, selection)


def as_json(text):
    return {"data": text, "content_type": "application/json"}


# Changing one of these orphans what users have stored: it is a new version of the keyspace.
VECTORS = [
    ({}, b'["POST","orders",{},{}]'),
    ({"json": {"b": 1, "a": [1, 1.0, "1", True, None]}},
     b'["POST","orders",{},{},"json",{"a":[1,1.0,"1",true,null],"b":1}]'),
    ({"json": 2**70}, b'["POST","orders",{},{},"json",1180591620717411303424]'),
    ({"json": "\ud800é"}, b'["POST","orders",{},{},"json","\\ud800\\u00e9"]'),
    ({"data": "null", "content_type": "application/json"},
     b'["POST","orders",{},{},"json",null]'),
    ({"data": {"b": ["2", "1"], "a": "x"}},
     b'["POST","orders",{},{},"form",{"a":["x"],"b":["2","1"]}]'),
    ({"data": {"a": "x", "f": (io.BytesIO(b"file"), "f.txt")}},
     b'["POST","orders",{},{},"form",{"a":["x"]}]'),
    ({"data": b"<xml/>", "content_type": "application/xml"},
     b'["POST","orders",{},{},"bytes",'
     b'"6eb820e0f9762c611c2a77189f686afeca64dfb212e023017e0346e7ab826c39"]'),
    ({"data": '{"a":[1,0.10000000000000001,"x"]}', "content_type": "application/json"},
     b'["POST","orders",{},{},"exact",'
     b'{"a":[1,[NaN,"0.10000000000000001"],"x"]}]'),
    ({"path": "/orders/7/a%2Fb?q=2&q=1&p="},
     b'["POST","view",{"number":7,"rest":"a/b"},{"p":[""],"q":["2","1"]}]'),
]  # fmt: skip


@pytest.mark.parametrize(("options", "expected"), VECTORS)
def test_frozen_vectors_of_the_canonical_text(options, expected):
    assert text(**options) == expected


@pytest.mark.parametrize(
    ("config", "frozen"),
    [
        (Config(), "0a7626ff1ff1df71760a60c1ffd7f21e"),
        (Config(hash_key=b"0123456789abcdef"), "b1705a7d315faffc187a121f25f4e352"),
    ],
    ids=["secret", "hash key"],
)
def test_frozen_vectors_of_the_keyed_hash(config, frozen):
    assert Keyring(config).digest(app, b"message").hex() == frozen


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"json": 1}, {"json": 1.0}),
        ({"json": 1}, {"json": True}),
        ({"data": "null", "content_type": "application/json"}, {}),
        ({"json": [1, 2]}, {"json": [2, 1]}),
        ({"json": 10**400}, {"json": 10**400 + 1}),
        ({"json": {"a": "1"}}, {"data": {"a": "1"}}),
        ({"path": "/orders?a=1"}, {"data": {"a": "1"}}),
        ({"data": {"a": "1", "b": "2"}}, {"data": {"a": '1"],"b":["2'}}),
        ({"path": "/orders/1/2"}, {"path": "/orders/12/2"}),
        ({"method": "PUT"}, {"method": "POST"}),
        ({"data": b"\x00\x01"}, {"data": b"\x00\x02"}),
        ({"data": b"{"}, {"data": b"{{"}),
        ({"json": '["json",1]'}, {"json": ["json", 1]}),
        (as_json("0.1"), as_json("0.10000000000000001")),
        (as_json("1.0"), as_json("1.00")),
        (as_json("1.0"), as_json("1e0")),
        (as_json("12345678901234567.0"), as_json("12345678901234568.0")),
        (as_json("1e400"), as_json("1e401")),
        (as_json("1e400"), as_json("Infinity")),
        (as_json("1e-400"), as_json("0.0")),
        (as_json("1e-99999999999999999999"), as_json("0.0")),
        (as_json("[1e400]"), as_json('[[NaN,"1e400"]]')),
        (as_json("[1e400,1e400]"), as_json('[1e400,[NaN,"1e400"]]')),
        (as_json("[1e400,NaN]"), as_json('[1e400,"NaN"]')),
        (as_json('{"a":1,"a":2}'), as_json('{"a":2,"a":1}')),
        (as_json("1" * 5000), as_json("1" * 5001)),
        (as_json('"😀"'.encode()), as_json(b'"\xed\xa0\xbd\xed\xb8\x80"')),  # a pair of surrogates
    ],
)
def test_what_differs_differs(one, other):
    assert text(**one) != text(**other)


def test_a_body_that_somebody_else_consumed_is_an_error_and_no_collision():
    with app.test_request_context("/orders", method="POST", json={"a": 1}):
        request.stream.read()
        with pytest.raises(ConfigurationError, match=r"request\.get_data"):
            canonical_request(request, ALL)


def test_selections():
    both = Selection(frozenset("ab"), frozenset("bc"))
    assert both.of({"a": 1, "b": 2, "c": 3, "d": 4}) == {"a": 1}
    assert ALL.of({"a": 1}) == {"a": 1}
    only = Selection(only=frozenset({"a"}))
    assert text(only, json=[1, 2]) == text(only, json=[3])
    assert text(only, data=b"x") == text(only, data=b"y")


# Properties

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value, random):
    """Return an equal value whose objects list their names in another order."""
    if isinstance(value, dict):
        names = list(value)
        random.shuffle(names)
        return {name: shuffled(value[name], random) for name in names}
    if isinstance(value, list):
        return [shuffled(item, random) for item in value]
    return value


def same(one, other):
    """Whether two JSON values are the same, types and all."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


def written(value, random, pairs=lambda value: list(value.items())):
    """Return JSON with escapes and blanks at random, and objects of these pairs in any order."""
    if isinstance(value, dict):
        named = [f"{written(name, random)}: {written(item, random, pairs)}"
                 for name, item in pairs(value)]  # fmt: skip
        random.shuffle(named)
        return f"{{{' , '.join(named)}}}"
    if isinstance(value, list):
        return f"[{', '.join(written(item, random, pairs) for item in value)} ]"
    if not isinstance(value, str):
        return json.dumps(value)
    points = struct.iter_unpack(">H", value.encode("utf-16-be", "surrogatepass"))
    forms = ("\\u{:04x}", "\\u{:04X}")
    return f'"{"".join(plain_or(random, random.choice(forms), *point) for point in points)}"'


def plain_or(random, form, point):
    plain = chr(point) if chr(point).isalnum() or point == ord(":") else ""
    if chr(point) == "\\":
        plain = "\\\\"
    return plain if plain and random.random() < 0.5 else form.format(point)


texts = st.text() | st.text(":\\u03aAb", max_size=12)
with_colons = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
WAYS = [ALL, Selection(ignored=frozenset({"a", ":"})), Selection(only=frozenset({"a", ":"}))]


@settings(deadline=None)
@given(with_colons, st.randoms(use_true_random=False), st.sampled_from(WAYS))
def test_equal_json_agrees_however_it_is_written(value, random, selection):
    plain, otherwise = json.dumps(value), written(value, random).encode()
    assert same(json.loads(otherwise), json.loads(plain))
    agreed = text(selection, **as_json(plain))
    assert agreed == text(selection, **as_json(otherwise))
    assert b'"bytes"' not in agreed.replace(b'\\"', b"")


@settings(deadline=None)
@given(with_colons, st.randoms(use_true_random=False), st.sampled_from(WAYS))
def test_json_with_a_name_twice_counts_by_its_bytes(value, random, selection):
    again = written(
        {"a": value, "b": {"c": value}}, random,
        lambda value: [*value.items(), random.choice([*value.items(), ("x", 1)])] if value else [],
    ).encode()  # fmt: skip
    doubled = has_a_name_twice(again)
    assert (b',"bytes","' in text(selection, **as_json(again))[-80:]) == doubled


def has_a_name_twice(body):
    found = []
    json.loads(body, object_pairs_hook=lambda pairs: found.append(pairs) or dict(pairs))
    return any(len(dict(pairs)) < len(pairs) for pairs in found)


MANY = json.dumps([1.5] * (MOST_FRACTIONS + 1))


@pytest.mark.parametrize("number", ["1.5", "1e+16", "-0.0"])
def test_so_many_fractions_are_compared_as_doubles(number):
    kinds = [text(**as_json(json.dumps({"a": [0, *[float(number)] * count]})))
             for count in (MOST_FRACTIONS, MOST_FRACTIONS + 1)]  # fmt: skip
    assert [kind.split(b",")[4] for kind in kinds] == [b'"json"', b'"exact"']
    assert kinds[1].count(f'[NaN,"{number}"]'.encode()) == MOST_FRACTIONS + 1


NUMBERS = ["1.5", "1.50", "1e5", "NaN", MANY]
LIKE_PAIRS = ['[NaN, "1.50"]', '["[NaN,", "1.50"]', '"[NaN,\\"1.50\\"]"', '{"[NaN,": 1.50}']


@pytest.mark.parametrize("counted", [0, *NUMBERS, *LIKE_PAIRS])
@pytest.mark.parametrize(
    "selection", [Selection(ignored=frozenset({"at"})), Selection(only=frozenset({"a"}))]
)
def test_a_number_that_is_left_out_decides_nothing(counted, selection):
    alone = text(selection, **as_json(f'{{"a": {counted}}}'))
    for at in (0, *NUMBERS):
        assert text(selection, **as_json(f'{{"a": {counted}, "at": {at}}}')) == alone, at


@settings(deadline=None)
@given(values, values)
def test_json_that_differs_differs(one, other):
    one, other = json.dumps(one), json.dumps(other)
    agree = text(**as_json(one)) == text(**as_json(other))
    assert agree == same(json.loads(one), json.loads(other))


pairs = st.lists(st.tuples(st.text('ab=&[]",:', max_size=4), st.text('ab=&[]",:', max_size=4)))


def grouped(listed):
    by_name = {}
    for name, value in listed:
        by_name.setdefault(name, []).append(value)
    return by_name


@settings(deadline=None)
@given(pairs, pairs)
def test_no_delimiter_trick_collides(one, other):
    form, same_values = "application/x-www-form-urlencoded", grouped(one) == grouped(other)
    one, other = urlencode(one), urlencode(other)
    assert (text(query_string=one) == text(query_string=other)) == same_values
    assert (
        text(data=one, content_type=form) == text(data=other, content_type=form)
    ) == same_values


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([
    "application/json", "application/x-www-form-urlencoded", "text/plain", "",
    "multipart/form-data; boundary=x", "application/vnd.api+json", "multipart/form-data",
]))  # fmt: skip
def test_any_bytes_as_any_type_have_a_text(body, content_type):
    assert text(data=body, content_type=content_type) == text(data=body, content_type=content_type)
