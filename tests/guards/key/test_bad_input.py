"""Key mode and whatever a client sends: no error of ours."""

import io

from flask import request
from helpers.apps import KeyedApp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from werkzeug.test import EnvironBuilder, run_wsgi_app

NASTY = (
    *(b"\0", b"\r\n", b'"', b'"\\', b'","', b":", b"*", b"\x7f", b"\xc3\xa9", b"k" * 300, b"%ff"),
    *(b"..", b"/", b"[", b"http://", b"-1", b"1e9", b"chunked", b"Bearer ", b"text/html;q=nan"),
)
RAW = st.lists(st.sampled_from(NASTY) | st.binary(max_size=5), max_size=5).map(
    lambda pieces: b"".join(pieces).decode("latin-1")  # as a server hands it on
)
FIELDS = (
    *("HTTP_IDEMPOTENCY_KEY", "HTTP_IDEMPOTENCE_TOKEN", "HTTP_AUTHORIZATION", "HTTP_COOKIE"),
    *("HTTP_ACCEPT", "HTTP_HOST", "HTTP_TRANSFER_ENCODING", "HTTP_X_FORWARDED_FOR", "REMOTE_ADDR"),
    *("CONTENT_LENGTH", "CONTENT_TYPE", "QUERY_STRING", "SCRIPT_NAME", "REQUEST_METHOD"),
)
CONTENT_TYPES = st.sampled_from(
    (
        *(
            "application/json",
            "application/x+json; charset=klingon",
            "application/x-www-form-urlencoded",
            "",
        ),
        *("multipart/form-data; boundary=x", "multipart/form-data", "text/plain;;=", "\xff"),
    )
)
BODIES = st.binary(max_size=60) | st.sampled_from(
    (
        *(b'{"a":' * 2000, b'"\\ud800"', b"--x\r\n\r\n--x--", b"a=%ff&=&&", b"\0" * 50, b"1e999"),
        *(b'--x\r\nContent-Disposition: form-data; name="f"; filename="\xff"\r\n\r\nf\r\n--x--',),
    )
)


def keyed_app(**settings):
    keyed = KeyedApp(lambda: request.data, settings={"TESTING": False, **settings})
    keyed.add("/strict", lambda: request.data, required=True, on_repeat="reject")
    return keyed


GUARDED, BARE = keyed_app(), keyed_app(IDEMPOTENCE_ENABLED=False)


@example("/", {}, "application/json", b'{"a":' * 100_000)
@example("/", {"QUERY_STRING": "\xff"}, "", b"")
@settings(max_examples=150, deadline=None)
@given(
    path=st.sampled_from(["/", "/strict"]),
    fields=st.dictionaries(st.sampled_from(FIELDS), RAW, max_size=4),
    content_type=CONTENT_TYPES,
    body=BODIES,
)
def test_garbage_in_any_field_is_no_error_of_ours(path, fields, content_type, body):
    environ = {
        **EnvironBuilder(path, method="POST").get_environ(),
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": content_type,
        "HTTP_IDEMPOTENCY_KEY": "k",
        **fields,
    }

    def status(keyed):
        _, status, _ = run_wsgi_app(keyed.app, {**environ, "wsgi.input": io.BytesIO(body)})
        return int(status.split()[0])

    without_guards = status(BARE)
    assert max(status(GUARDED), status(GUARDED)) < 500 or without_guards == 500
    assert BARE.runs  # so it does run
