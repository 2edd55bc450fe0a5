"""Lua and Python come to the same names, fingerprints and canonical texts."""

import json
import random
import string

import pytest
from flask import request
from helpers.applications.gateway_app import make_app
from helpers.servers.nginx_gateway import JSON, PAY
from helpers.servers.processes import HOST, send
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flask_idempotence.guards.key import name_of
from flask_idempotence.request.fingerprint import Selection, canonical, canonical_request
from flask_idempotence.request.key_header import key_in_header

pytestmark = pytest.mark.gateway


@pytest.fixture(scope="module")
def app():
    return make_app()


class TestTheHash:
    def names(self, gateway, headers, body):
        answer = send(gateway.nginx.plain, "/gateway/names", "POST", headers, body)
        return tuple(answer.text.split())

    def names_by_python(self, app, headers, body):
        engine = app.extensions["idempotence"].engine
        at = {"base_url": f"http://{HOST}", "method": "POST"}
        with app.test_request_context(PAY, **at, headers=headers, data=body):
            sent = key_in_header(request, "Idempotency-Key")
            identities = engine.services.identities
            identity = identities.of(app, request, sent, unguessable=False)
            name = name_of(identity.text, "POST", request.endpoint, sent)
            name = engine.services.keyring.store_key(app, "key", request.endpoint, name)
            selection = Selection(files=True)
            asked = canonical_request(request, selection, "key", PAY)
            return name, engine.services.keyring.digest(app, asked).hex()

    def test_a_vector_is_frozen(self, gateway, app):
        headers = {"Authorization": "Bearer alice", "Idempotency-Key": "8e03978e"}
        # Without a body, too, they agree.
        assert self.names(gateway, headers, b"") == self.names_by_python(app, headers, b"")
        headers["Content-Type"] = JSON
        assert self.names(gateway, headers, BODY) == VECTOR
        assert self.names_by_python(app, headers, BODY) == VECTOR

    def test_five_hundred_at_random_agree(self, gateway, app):
        dice = random.Random(7)
        printable = string.ascii_letters + string.digits + string.punctuation

        def text(characters, longest):
            return "".join(dice.choices(characters, k=dice.randint(1, longest)))

        for _ in range(500):
            key = text(printable.replace(",", "").replace('"', "") + " ", 255).strip() or "k"
            quoted = key.replace("\\", "\\\\")
            headers = {
                "Authorization": f"{dice.choice(['Bearer', 'basic'])} {text(printable, 200)}",
                "Idempotency-Key": dice.choice([key, f'"{quoted}"']),
                "Content-Type": dice.choice([JSON, "application/JSON; charset=utf-8"]),
            }
            value = {
                text(string.ascii_letters + "\u00e9\u20ac\U0001f600", 5): dice.randint(-9, 10**20)
            }
            body = json.dumps(value, ensure_ascii=dice.random() < 0.5).encode()
            expected = self.names_by_python(app, headers, body)
            assert self.names(gateway, headers, body) == expected


BODY = b'{"amount": 12}'
VECTOR = (
    "idempotence:2:key:payments.pay:9cb610b7b8f904c965f066c6e84123d5",
    "cb0137042a6f94efc6e932a792d17f39",
)
"""Changing one of these orphans what is stored, as in tests/request/test_fingerprint.py."""

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.decimals(-(10**6), 10**6, places=4).map(float),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | st.just("ignored"), inner, max_size=4)
    ),
    max_leaves=12,
)


class TestCanonicalJson:
    def of_lua(self, gateway, text):
        return send(gateway.nginx.plain, "/gateway/canonical", "POST", {}, text).text

    def of_python(self, text):
        value = json.loads(text)
        if isinstance(value, dict):
            value.pop("ignored", None)
        return canonical(value).decode()

    @settings(
        max_examples=400,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(VALUES, st.booleans(), st.sampled_from([None, 1, "\t"]))
    def test_what_is_surely_the_same_is_the_same(self, gateway, value, ascii_only, indent):
        text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
        assert self.of_lua(gateway, text.encode()) == self.of_python(text)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("-0", "0"),
            ("-0.0", "-0.0"),
            ("12.50", "12.5"),
            ("0.0001", "0.0001"),
            ("0.10000000000000", "0.1"),
            ("123456789012345.0", "pass"),
            ("12345678901234.5", "12345678901234.5"),
            ("9" * 200, "9" * 200),
            ('{"b":[],"a":{}}', '{"a":{},"b":[]}'),
            ('{"\U0001f600":1,"\uffff":2,"~":3}', '{"~":3,"\\uffff":2,"\\ud83d\\ude00":1}'),
            (r'"\ud83d\ude00\/\u007f"', r'"\ud83d\ude00/\u007f"'),
        ],
    )
    def test_of_what_looks_the_same_and_is_not(self, gateway, text, expected):
        assert self.of_lua(gateway, text.encode()) == expected
        assert expected in ("pass", self.of_python(text))

    @pytest.mark.parametrize(
        "text",
        [
            b'{"a":1,"a":2}',
            b"", b"{", b"[1,]", b'{"a":1,}', b"01", b"1.", b".5", b"+1", b"1e3", b"1E400", b"NaN",
            b"Infinity", b"-", b"nul", b"true false", b'"\x01"', b'"a', rb'"\x"', rb'"\u12"',
            rb'"\ud800"', rb'"\udc00\ud800"', b'"\xed\xa0\x80"', b'"\xc0\xaf"', b'"\xff"', b"'a'",
            b"\xef\xbb\xbf1", b"1\x00", b"\x0b1", b"0.00001", b"1.2345678901234567",
            b"[" * 60 + b"]" * 60, b"1" * 400, b'{"a" 1}', b"{1:2}", b"[1 2]", b"0x10",
        ],
    )  # fmt: skip
    def test_what_is_not_certain_is_not_told(self, gateway, text):
        assert self.of_lua(gateway, text) == "pass"

    def test_any_text_that_it_reads_it_reads_as_python_does(self, gateway):
        dice, told = random.Random(11), 0
        pieces = [*"{}[],:", '"a"', '"b"', "1", "-0", "2.50", "null", " ", '"\\u00e9"']
        for _ in range(1500):
            text = "".join(dice.choices(pieces, k=dice.randint(1, 7)))
            by_lua = self.of_lua(gateway, text.encode())
            if by_lua != "pass":
                told += 1
                assert by_lua == self.of_python(text)
        assert told > 50
