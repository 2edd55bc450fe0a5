"""Forms of more than 1 MiB, forms beyond a limit, and bodies that are no form in truth."""

import hashlib

import pytest
from flask import Request, request
from helpers.request_bodies import (
    FORM,
    GUARDS,
    JSON,
    PARTS,
    app_with,
    large,
    nothing,
    part,
    post,
    send,
)

from flask_idempotence import no_repeat_submit, one_time_token
from flask_idempotence.request.body import IN_MEMORY
from flask_idempotence.request.forms import MOST_TEXT

END = b"--x--\r\n"
FILE = '; filename="f"'
LONG = "x" * 400_000
LARGE = b"".join(part(name, LONG) for name in "abc")
LIMITS = {"MAX_FORM_MEMORY_SIZE": 500_000, "MAX_FORM_PARTS": 1000}


def statuses(guard, *bodies, content_type=PARTS, **headers):
    app = app_with(nothing, guard)
    return [post(app, body, content_type, **headers).status_code for body in bodies]


def fields(*texts):
    """Return a long form for each text, which is the last field's."""
    return [LARGE + part("d", text) + END for text in texts]


DIGEST = hashlib.sha256(LONG.encode()).hexdigest()
LATE, EARLY = LONG[:-1] + "y", "y" + LONG[1:]
FILES = [part("f", "1" * IN_MEMORY + end, FILE) for end in "112"]
ORDERS = [part(name, LONG) for name in "abc"] + [part("d", "1")]
COMPARED = {
    "to the last byte": ("lock", fields(LONG, LONG, LATE, EARLY), [200, 409, 200, 200]),
    "the same for a key": ("key", fields(LONG, LONG, LATE), [200, 200, 422]),
    "short fields and names": (
        "lock",
        [LARGE + last + END for last in (part("d", "1"), part("d", "2"), part("e", "1"), b"")],
        [200] * 4,
    ),
    "the digest as a text": (
        "lock",
        fields(LONG, DIGEST, f"sha256 {DIGEST}", f'["sha256","{DIGEST}"]'),
        [200] * 4,
    ),
    "files for a key": ("key", [LARGE + file + END for file in FILES], [200, 200, 422]),
    "no files for a lock": (
        "lock",
        [part("a", LONG) + part("b", "é") + file + END for file in (*FILES[1:], b"")],
        [200, 409, 409],
    ),
    "not what is ignored": (no_repeat_submit(60, ignore=["d"]), fields(LONG, LATE), [200, 409]),
    "only what is chosen": (no_repeat_submit(60, only=["a"]), fields(LONG, LATE), [200, 409]),
    "in any order": ("lock", [b"".join(p) + END for p in (ORDERS, ORDERS[::-1])], [200, 409]),
}


@pytest.mark.parametrize("what", COMPARED)
def test_long_forms_are_compared(what):
    guard, bodies, expected = COMPARED[what]
    assert statuses(GUARDS.get(guard, guard), *bodies) == expected


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (PARTS, LARGE),
        (PARTS, LARGE.replace(b"Content-Disposition", b"Other") + END),
        ("multipart/form-data", LARGE + END),
        ("multipart/form-data; boundary=é", LARGE + END),
        (JSON, large(b'{"a": 1}')),
    ],
    ids=["no end", "no name", "no boundary", "no ASCII", "long JSON"],
)
def test_one_that_cannot_be_read_counts_by_its_bytes(content_type, body):
    sent = [body, body, body + b" "]
    lock = no_repeat_submit(60, only=["order"]) if content_type == JSON else GUARDS["lock"]
    assert statuses(lock, *sent, content_type=content_type) == [200, 409, 200]
    assert statuses(GUARDS["key"], *sent, content_type=content_type) == [200, 200, 422]


@pytest.mark.parametrize("only", [None, {"b"}])
def test_a_form_that_is_too_long_to_be_parsed_is_compared_whole(only):
    long = b"a=" + b"x" * IN_MEMORY
    sent = [long + end for end in (b"1", b"1", b"2")]
    found = statuses(no_repeat_submit(60, only=only), *sent, content_type=FORM)
    assert found == [200, 409, 200]


@pytest.mark.parametrize("guard", [None, "lock", "key"])
@pytest.mark.parametrize(
    "body",
    [
        part("a", "x" * 500_001) + LARGE + END,
        LARGE + part("a", "x" * 500_001) + END,
        LARGE + part("a", "1") * 998 + END,
    ],
    ids=["first", "last", "parts"],
)
def test_the_limits_of_a_form_hold(body, guard):
    app = app_with(lambda: request.form, GUARDS.get(guard), **LIMITS)
    assert post(app, body, PARTS).status_code == 413


BEYOND = {
    "a long text": part("a", "x" * 500_001),
    "many parts": part("a", "1") * 1001,
    "much text": b"".join(part(f"{n}", LONG) for n in range(MOST_TEXT // len(LONG) + 1)),
}


@pytest.mark.skipif(Request.max_content_length.fset is None, reason="Flask 3.1 sets limits")
@pytest.mark.parametrize("kind", BEYOND)
class TestBeyondALimit:
    """The guard compares by bytes what it may not parse, and the view decides."""

    def statuses(self, guard, *bodies):
        app = app_with(lambda: str(len(request.get_data())), guard, **LIMITS)
        return [
            post(app, body, f"multipart/form-data; boundary={boundary}").status_code
            for body, boundary in bodies
        ]

    @pytest.mark.parametrize("guard", [None, "lock", "key"])
    def test_a_view_reads_the_bytes(self, kind, guard):
        body = BEYOND[kind] + END
        app = app_with(lambda: str(len(request.get_data())), GUARDS.get(guard), **LIMITS)
        assert post(app, body, PARTS).data == str(len(body)).encode()

    def test_all_bytes_count(self, kind):
        one, two = BEYOND[kind] + part("b", "1") + END, BEYOND[kind] + part("b", "2") + END
        sent = [(one, "x"), (one, "x"), (two, "x")]
        assert self.statuses(GUARDS["lock"], *sent) == [200, 409, 200]
        assert self.statuses(GUARDS["key"], *sent) == [200, 200, 422]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"rating":"A+"}', b'{"rating":"A "}'),
        (b'{"a=":"A+"}', b'{"a=":"A "}'),
        (b'{"a=":"%41"}', b'{"a=":"A"}'),
        (b"A+B", b"A B"),
        (b"<a b='+'/>", b"<a b=' '/>"),
        (b"a=\xc3\xa9+", b"a=\xc3\xa9 "),
        (b"a=1\n", b"a=1\r\n"),
        (b"a=1&a=\xff", b"a=1&a=\xfe"),
    ],
)
@pytest.mark.parametrize("only", [None, {"rating"}])
def test_a_body_that_is_not_plainly_a_form_counts_by_its_bytes(one, other, only):
    for guard, expected in ((no_repeat_submit(60, only=only), [200, 409, 200]),
                            (GUARDS["key"], [200, 200, 422])):  # fmt: skip
        assert statuses(guard, one, one, other, content_type=FORM) == expected


@pytest.mark.parametrize("form", ["a=A+B", "a[]=A+B", "a=A+B&mail=ann@shop.example:80/x,(1)'!"])
def test_a_form_counts_by_its_values_however_it_is_escaped(form):
    again = form.replace("+", "%20").replace("a", "%61", 1)
    sent = [each.encode() for each in (form, again, form + "2")]
    assert statuses(GUARDS["lock"], *sent, content_type=FORM) == [200, 409, 200]


@pytest.mark.parametrize("rest", [b"", LARGE], ids=["short", "long"])
@pytest.mark.parametrize(("guard", "more"), [("lock", ""), ("key", ""), ("key", FILE)])
def test_one_with_a_part_without_a_name_counts_by_its_bytes(guard, more, rest):
    named = part("null", "1", more) + rest + END
    nameless = named.replace(b'; name="null"', b"")
    with_other = nameless.replace(END, part("d", "1") + END)
    other = 200 if guard == "lock" else 422
    repeat = 409 if guard == "lock" else 200
    assert statuses(GUARDS[guard], nameless, nameless, named) == [200, repeat, other]
    assert statuses(GUARDS[guard], with_other, with_other) == [200, repeat]


class TestTokens:
    @pytest.fixture
    def app(self):
        app = app_with(nothing, one_time_token())
        # Only some releases of Werkzeug apply it to URL-encoded forms.
        app.config["MAX_FORM_MEMORY_SIZE"] = None
        return app

    @pytest.fixture
    def token(self, app):
        return app.test_client().get("/token").json["token"]

    def sent(self, app, body, content_type, headers=()):
        length = {"CONTENT_LENGTH": str(len(body))}
        return send(app, body, content_type, length, headers)

    def outcomes(self, *arguments):
        return [self.sent(*arguments).status_code for _ in range(2)]

    @pytest.mark.parametrize("first", [True, False])
    @pytest.mark.parametrize("content_type", [FORM, PARTS])
    def test_one_is_found_in_a_long_form_and_spent_once(self, app, token, content_type, first):
        if content_type == FORM:
            pair, rest = f"idempotence_token={token}".encode(), b"a=" + b"x" * 3 * IN_MEMORY
            body = b"&".join((pair, rest) if first else (rest, pair))
        else:
            pair = part("idempotence_token", token)
            body = (pair + LARGE if first else LARGE + pair) + END
        assert self.outcomes(app, body, content_type) == [200, 409]

    @pytest.mark.parametrize("name", ["idempotence%5ftoken", "%69dempotence_token"])
    @pytest.mark.parametrize("at", [0, 1, 5, 20, 60])
    def test_one_is_found_across_pieces_and_under_an_escaped_name(self, app, token, at, name):
        before = b"a=" + b"x" * ((1 << 16) - at - 3) + b"&"
        body = before + f"{name}={token}&b=".encode() + b"x" * IN_MEMORY
        assert self.outcomes(app, body, FORM) == [200, 409]

    @pytest.mark.parametrize("content_type", [FORM, PARTS])
    @pytest.mark.parametrize("texts", [["{}", "other"], ["{}" + LONG]], ids=["two", "long"])
    def test_several_and_long_ones_are_refused(self, app, token, content_type, texts):
        texts = [text.format(token) for text in texts]
        body = "&".join(["a=" + "x" * IN_MEMORY, *(f"idempotence_token={t}" for t in texts)])
        if content_type == PARTS:
            fields = [part("idempotence_token", text) for text in texts]
            body = (LARGE + b"".join(fields) + END).decode()
        answer = self.sent(app, body.encode(), content_type)
        assert answer.headers["Idempotence-Refusal"] == "token-invalid"

    @pytest.mark.parametrize("content_type", [FORM, PARTS])
    def test_in_a_form_that_is_too_long_to_be_read_it_is_not_searched_for(
        self, app, token, content_type
    ):
        body = f"a={'x' * MOST_TEXT}&idempotence_token={token}".encode()
        if content_type == PARTS:
            body = BEYOND["much text"] + part("idempotence_token", token) + END
        assert self.sent(app, body, content_type).status_code == 413
        headers = {"Idempotence-Token": token}
        assert self.sent(app, body, content_type, headers).status_code == 200

    def test_none_is_found_where_werkzeug_finds_no_field(self, app, token):
        body = f"idempotence_token={token}&a={'x' * IN_MEMORY}".encode() + b"\xff"
        assert self.sent(app, body, FORM).status_code == 400
