"""The limits of a view hold behind a guard, and an upload takes no memory for it."""

import functools
import gc
import resource

import pytest
from flask import Request, Response, g, request
from helpers.request_bodies import BODIES, BYTES, FORM, GUARDS, PARTS, app_with, part, post, send
from werkzeug.exceptions import RequestEntityTooLarge

from flask_idempotence import one_time_token
from flask_idempotence.request.body import IN_MEMORY
from flask_idempotence.request.input import PIECE

per_request = pytest.mark.skipif(
    Request.max_content_length.fset is None, reason="Flask 3.1 sets limits on a request"
)
either_way = pytest.mark.parametrize("chunked", [False, True], ids=["with length", "chunked"])


def in_pieces(size):
    """Read the body in pieces, and return its length."""
    return str(sum(map(len, iter(functools.partial(request.stream.read, size), b""))))


class TestLimits:
    def limited(self, read, guard=None, **limits):
        def view():
            for name, limit in limits.items():
                setattr(request, name, limit)
            read()
            return {}

        return app_with(view, guard)

    @per_request
    @either_way
    @pytest.mark.parametrize("guard", [None, *GUARDS])
    @pytest.mark.parametrize("kind", ["JSON", "a form", "a multipart form", "bytes", "many bytes"])
    def test_a_views_own_limit_of_the_content_holds(self, kind, guard, chunked):
        def read():
            if "form" in content_type:
                return request.form
            return in_pieces(5 if len(body) < 100 else 50_000)

        content_type, body = BODIES[kind]
        # Of a chunked form, Werkzeug reads what is within the limit, and no more.
        short = 200 if chunked and kind == "a form" else 413
        for limit, status in ((len(body) - 1, short), (len(body) + chunked, 200)):
            app = self.limited(read, GUARDS.get(guard), max_content_length=limit)
            assert post(app, body, content_type, chunked=chunked).status_code == status

    @per_request
    @pytest.mark.parametrize("guard", [None, *GUARDS])
    @pytest.mark.parametrize("limit", [{"max_form_memory_size": 10}, {"max_form_parts": 1}])
    def test_a_views_own_limit_of_a_form_holds(self, limit, guard):
        body = part("a", "x" * 20) + part("b", "x") + b"--x--\r\n"
        app = self.limited(lambda: request.form, GUARDS.get(guard), **limit)
        assert post(app, body, PARTS).status_code == 413

    @per_request
    def test_a_views_own_limit_holds_where_the_guard_has_read_a_token_in_the_form(self):
        def view():
            request.max_content_length = 10
            return request.form

        app = app_with(view, one_time_token())
        token = app.test_client().get("/token").json["token"]
        answers = [app.test_client().post("/", data={"idempotence_token": token}) for _ in "12"]
        assert [answer.status_code for answer in answers] == [413, 409]

    @pytest.mark.parametrize("guard", GUARDS)
    def test_a_limit_of_the_applications_own_request_class_holds(self, guard):
        class Limited(Request):
            @property
            def max_content_length(self):
                return g.get("limit")

        def view():
            g.limit = 5
            return request.get_data()

        app = app_with(view, GUARDS[guard])
        app.request_class = Limited
        assert post(app, b"123456", BYTES).status_code == 413

    @per_request
    @pytest.mark.parametrize("guard", GUARDS)
    @pytest.mark.parametrize("where", ["decorator", "before_request"])
    def test_a_limit_that_is_raised_before_the_guard_holds_for_both(self, where, guard):
        def raise_limit():
            request.max_content_length = 2000

        def decorated(view):
            view = GUARDS[guard](view)
            if where == "before_request":
                return view
            return functools.wraps(view)(lambda: raise_limit() or view())

        app = app_with(lambda: str(len(request.get_data())), decorated, MAX_CONTENT_LENGTH=1000)
        if where == "before_request":
            app.before_request(raise_limit)
        answers = [post(app, b"x" * size, BYTES) for size in (2001, 1500)]
        assert [answer.status_code for answer in answers] == [413, 200]
        assert answers[1].data == b"1500"

    @either_way
    @pytest.mark.parametrize("guard", ["lock", "key"])
    def test_the_limit_of_the_application_holds_before_the_view(self, guard, chunked):
        runs = []
        limit = 2 * IN_MEMORY
        app = app_with(lambda: runs.append(1) or {}, GUARDS[guard], MAX_CONTENT_LENGTH=limit)
        for size, status in ((limit + 1, 413), (limit, 200), (3, 200), (0, 200)):
            key = {"Idempotency-Key": str(min(size, limit))}  # of which the first left no claim
            assert post(app, b"x" * size, BYTES, chunked=chunked, **key).status_code == status
        assert len(runs) == 3


def test_files_are_not_kept_for_the_comparison():
    made = []

    class Counting(Request):
        def _get_file_stream(self, *arguments, **options):
            made.append(super()._get_file_stream(*arguments, **options))
            return made[-1]

    app = app_with(lambda: str(len(request.files)), GUARDS["key"])
    app.request_class = Counting
    content_type, body = BODIES["a long file"]
    assert {post(app, body, content_type).data for _ in range(3)} == {b"1"}
    assert len(made) == 1  # the view's


class Broken:
    """The body of a server that reports in its own way that it broke off."""

    def __init__(self, error, pieces):
        self.error, self.pieces = error, pieces

    def read(self, size):
        if self.pieces:
            return self.pieces.pop()[:size]
        raise self.error


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("pieces", [0, 1, 30])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OSError("reset"), 400),
        (ValueError("invalid literal for int()"), 400),
        (type("InvalidChunkSize", (Exception,), {})(), 400),
        (RequestEntityTooLarge(), 413),
    ],
)
def test_a_body_that_the_server_cannot_read_is_the_clients_error(
    guard, pieces, error, status, caplog
):
    runs = []
    app = app_with(lambda: runs.append(1) or {}, GUARDS[guard])
    body = {"wsgi.input": Broken(error, [b"x" * PIECE] * pieces), "wsgi.input_terminated": True}
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked"}
    answer = send(app, b"", FORM, body | chunked, {"Idempotency-Key": "k"})
    assert (answer.status_code, runs) == (status, [])
    is_unknown = "Invalid" in type(error).__name__
    assert ("cannot be read (InvalidChunkSize)" in caplog.text) == is_unknown


class TestTemporaryFiles:
    BODY = b"x" * (IN_MEMORY + 10)

    def test_a_streamed_response_may_still_read_it(self):
        def view():
            stream = request.stream
            return Response(iter(lambda: stream.read(1 << 16), b""))

        answer = post(app_with(view, GUARDS["key"]), self.BODY, BYTES)
        assert answer.data == self.BODY

    @pytest.mark.parametrize("how", ["the view raises", "the client disconnects", "too large"])
    def test_it_is_dropped_in_silence_where_no_response_comes_about(self, how):
        def view():
            raise ValueError("the view's own")

        app = app_with(view, GUARDS["lock"])
        if how == "too large":
            app.config["MAX_CONTENT_LENGTH"] = len(self.BODY) - 1
            assert post(app, self.BODY, BYTES, chunked=True).status_code == 413
        elif how == "the view raises":
            with pytest.raises(ValueError, match="own"):
                post(app, self.BODY, BYTES)
        else:
            length = {"CONTENT_LENGTH": str(len(self.BODY) + 1)}
            assert send(app, self.BODY, BYTES, length).status_code == 400
        gc.collect()  # a ResourceWarning would fail this test

    def test_a_full_disk_is_said_and_the_view_does_not_run(self, caplog):
        runs = []
        app = app_with(lambda: runs.append(1) or {}, GUARDS["key"])
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (IN_MEMORY // 2, before[1]))
        try:
            refused = post(app, self.BODY, BYTES)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert (refused.status_code, refused.headers["Retry-After"], runs) == (503, "1", [])
        assert "TMPDIR" in caplog.text
        assert (post(app, self.BODY, BYTES).status_code, runs) == (200, [1])
