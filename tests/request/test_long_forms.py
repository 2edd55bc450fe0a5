"""Forms of more than 1 MiB, forms beyond a limit, and bodies that are no form in truth."""

import hashlib

import pytest
from flask import Request, request
from helpers.request_bodies import FORM, GUARDS, PARTS, app_with, nothing, part, post, send

from flask_idempotence import no_repeat_submit, one_time_token
from flask_idempotence.request.body import IN_MEMORY
from flask_idempotence.request.forms import MOST_TEXT

END = b"--x--\r\n"
FILE = '; filename="f"'
LONG = "x" * 400_000
LARGE = b"".join(part(name, LONG) for name in "abc")


def statuses(guard, *bodies, content_type=PARTS, **headers):
    app = app_with(nothing, guard)
    return [post(app, body, content_type, **headers).status_code for body in bodies]


class TestComparison:
    @pytest.mark.parametrize("position", [0, 70_000, len(LONG) - 1])
    def test_long_fields_are_compared_to_the_last_byte(self, position):
        other = LONG[:position] + "y" + LONG[position + 1 :]
        sent = [LARGE + part("d", text) + END for text in (LONG, LONG, other)]
        assert statuses(GUARDS["key"], *sent) == [200, 200, 422]
        assert statuses(GUARDS["lock"], *sent) == [200, 409, 200]

    def test_short_fields_and_names_are_compared(self):
        last = [part("d", "1"), part("d", "1"), part("d", "2"), part("e", "1"), b""]
        sent = [LARGE + each + END for each in last]
        assert statuses(GUARDS["lock"], *sent) == [200, 409, 200, 200, 200]

    def test_the_digest_as_a_text_is_another_request(self):
        digest = hashlib.sha256(LONG.encode()).hexdigest()
        texts = [LONG, digest, f"sha256 {digest}", f'["sha256","{digest}"]']
        sent = [LARGE + part("d", text) + END for text in texts]
        assert statuses(GUARDS["lock"], *sent) == [200] * 4

    def test_the_boundary_does_not_count(self):
        app = app_with(nothing, GUARDS["lock"])
        body = LARGE + END
        answers = [
            post(app, body, PARTS),
            post(app, body.replace(b"--x", b"--yy"), "multipart/form-data; boundary=yy"),
        ]
        assert [answer.status_code for answer in answers] == [200, 409]

    def test_a_long_file_beside_it_changes_nothing_where_files_do_not_count(self):
        fields = part("a", LONG) + part("b", "é")
        files = [part("f", "1", FILE), part("f", "2" * IN_MEMORY, FILE), b""]
        sent = [fields + file + END for file in files]
        assert statuses(GUARDS["lock"], *sent) == [200, 409, 409]

    def test_files_count_for_a_key(self):
        files = [part("f", "1" * IN_MEMORY + end, FILE) for end in "112"]
        assert statuses(GUARDS["key"], *(LARGE + file + END for file in files)) == [200, 200, 422]

    def test_names_are_ignored_and_chosen(self):
        ignoring = no_repeat_submit(60, ignore=["d"])
        choosing = no_repeat_submit(60, only=["a"])
        sent = [LARGE + part("d", text) + END for text in (LONG, LONG + "y")]
        assert statuses(ignoring, *sent) == statuses(choosing, *sent) == [200, 409]

    def test_the_order_of_long_and_short_fields_does_not_matter(self):
        parts = [part(name, LONG) for name in "abc"] + [part("d", "1")]
        sent = [b"".join(each) + END for each in (parts, parts[::-1])]
        assert statuses(GUARDS["lock"], *sent) == [200, 409]

    @pytest.mark.parametrize(
        ("content_type", "body"),
        [
            (PARTS, LARGE),
            (PARTS, LARGE.replace(b"Content-Disposition", b"Other") + END),
            ("multipart/form-data", LARGE + END),
            ("multipart/form-data; boundary=é", LARGE + END),
        ],
        ids=["no end", "no name", "no boundary", "no ASCII"],
    )
    def test_one_that_cannot_be_read_counts_by_its_bytes(self, content_type, body):
        found = statuses(GUARDS["lock"], body, body, body + b" ", content_type=content_type)
        assert found == [200, 409, 200]

    @pytest.mark.parametrize("guard", ["lock", "key"])
    @pytest.mark.parametrize(
        "body",
        [
            part("a", "x" * 500_001) + LARGE + END,
            LARGE + part("a", "x" * 500_001) + END,
            LARGE + part("a", "1") * 998 + END,
        ],
        ids=["first", "last", "parts"],
    )
    def test_the_limits_of_a_form_hold(self, body, guard):
        limits = {"MAX_FORM_MEMORY_SIZE": 500_000, "MAX_FORM_PARTS": 1000}
        apps = [app_with(lambda: request.form, each, **limits) for each in (None, GUARDS[guard])]
        assert [post(app, body, PARTS).status_code for app in apps] == [413, 413]


LIMITS = {"MAX_FORM_MEMORY_SIZE": 500_000, "MAX_FORM_PARTS": 1000}
BEYOND = {
    "a long text": part("a", "x" * 500_001),
    "many parts": part("a", "1") * 1001,
    "much text": b"".join(part(f"{n}", LONG) for n in range(MOST_TEXT // len(LONG) + 1)),
}


@pytest.mark.skipif(Request.max_content_length.fset is None, reason="Flask 3.1 sets limits")
@pytest.mark.parametrize("kind", BEYOND)
class TestBeyondALimit:
    """The guard compares by bytes what it may not parse, and the view decides."""

    def posts(self, guard, *bodies):
        def view():
            return str(len(request.get_data()))

        app = app_with(view, guard, **LIMITS)
        return [
            post(app, body, f"multipart/form-data; boundary={boundary}")
            for body, boundary in bodies
        ]

    def statuses(self, *arguments):
        return [answer.status_code for answer in self.posts(*arguments)]

    def test_a_view_reads_the_bytes(self, kind):
        body = BEYOND[kind] + END
        for guard in ("lock", "key", None):
            [answer] = self.posts(GUARDS.get(guard), (body, "x"))
            assert (answer.status_code, answer.data) == (200, str(len(body)).encode())

    def test_the_boundary_does_not_count_and_all_else_does(self, kind):
        body = BEYOND[kind] + part("b", "1") + END
        again = body.replace(b"--x", b"--" + b"y" * 60)
        # Boundaries across the pieces that are read.
        shifted = [(body.replace(b"--x", b"--" + b"z" * n), "z" * n) for n in range(1, 40, 5)]
        other = body.replace(b"\r\n1\r\n", b"\r\n2\r\n", 1)
        sent = [(body, "x"), (again, "y" * 60), *shifted, (other, "x")]
        assert self.statuses(GUARDS["lock"], *sent) == [200, *[409] * 9, 200]
        assert self.statuses(GUARDS["key"], *sent) == [*[200] * 10, 422]

    def test_the_order_and_the_place_of_boundaries_count(self, kind):
        rest = BEYOND[kind]
        one, two = part("b", "1"), part("c", "1")
        sent = [rest + one + two + END, rest + two + one + END, rest + one[:-2] + two + END]
        assert self.statuses(GUARDS["lock"], *((body, "x") for body in sent)) == [200] * 3


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
    def client_of(self, guard):
        app = app_with(nothing, guard)
        return app, app.test_client().get("/token").json["token"]

    def sent(self, app, body, content_type):
        return send(app, body, content_type, {"CONTENT_LENGTH": str(len(body))}).status_code

    @pytest.mark.parametrize("first", [True, False])
    @pytest.mark.parametrize("content_type", [FORM, PARTS])
    def test_one_is_found_in_a_long_form_and_spent_once(self, content_type, first):
        app, token = self.client_of(one_time_token())
        if content_type == FORM:
            pair, rest = f"idempotence_token={token}".encode(), b"a=" + b"x" * 3 * IN_MEMORY
            body = b"&".join((pair, rest) if first else (rest, pair))
        else:
            pair = part("idempotence_token", token)
            body = (pair + LARGE if first else LARGE + pair) + END
        assert [self.sent(app, body, content_type) for _ in "12"] == [200, 409]

    @pytest.mark.parametrize("at", [0, 1, 5, 20, 60])
    def test_one_is_found_across_pieces(self, at):
        app, token = self.client_of(one_time_token())
        before = b"a=" + b"x" * ((1 << 16) - at - 3) + b"&"
        body = before + f"idempotence_token={token}&b=".encode() + b"x" * IN_MEMORY
        assert [self.sent(app, body, FORM) for _ in "12"] == [200, 409]

    @pytest.mark.parametrize("name", ["idempotence%5ftoken", "%69dempotence_token"])
    def test_its_name_may_be_escaped(self, name):
        app, token = self.client_of(one_time_token())
        body = f"a={'x' * IN_MEMORY}&{name}={token}".encode()
        assert [self.sent(app, body, FORM) for _ in "12"] == [200, 409]

    @pytest.mark.parametrize(
        "form",
        ["idempotence_token={}&idempotence_token=other", "idempotence_token={}" + LONG],
    )
    @pytest.mark.parametrize("content_type", [FORM, PARTS])
    def test_several_and_long_ones_are_refused(self, content_type, form):
        app, token = self.client_of(one_time_token())
        form = form.format(token)
        body = f"a={'x' * IN_MEMORY}&{form}".encode()
        if content_type == PARTS:
            pairs = [pair.split("=") for pair in form.split("&")]
            body = LARGE + b"".join(part(*pair) for pair in pairs) + END
        answer = send(app, body, content_type, {"CONTENT_LENGTH": str(len(body))})
        assert answer.headers["Idempotence-Refusal"] == "token-invalid"

    @pytest.mark.parametrize("content_type", [FORM, PARTS])
    def test_in_a_form_that_is_too_long_to_be_read_it_is_not_searched_for(self, content_type):
        app, token = self.client_of(one_time_token())
        body = f"a={'x' * MOST_TEXT}&idempotence_token={token}".encode()
        if content_type == PARTS:
            body = BEYOND["much text"] + part("idempotence_token", token) + END
        assert self.sent(app, body, content_type) == 413
        whole = {"CONTENT_LENGTH": str(len(body))}
        headers = {"Idempotence-Token": token}
        assert send(app, body, content_type, whole, headers).status_code == 200

    def test_none_is_found_where_werkzeug_finds_no_field(self):
        app, token = self.client_of(one_time_token())
        body = f"idempotence_token={token}&a={'x' * IN_MEMORY}".encode() + b"\xff"
        assert self.sent(app, body, FORM) == 400
