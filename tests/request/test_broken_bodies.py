"""No half bodies: where the server shows that a body broke off, nothing is spent, held or kept."""

import contextlib
import gzip
import io

import pytest
from flask import Response, request, stream_with_context
from helpers.request_bodies import BYTES, FORM, PARTS, app_with, part, send
from helpers.store_assertions import values_of

from flask_idempotence import current_guard, idempotent, no_repeat_submit, one_time_token

BODY = b"a=1234567890"
CUT = 5

GUARDS = {
    "key alone": idempotent(compare=False),
    "token": one_time_token(),
    "restoring token": one_time_token(restore_on_failure=True),
    "lock": no_repeat_submit(60, key=lambda: 1),
    "token in key": lambda view: idempotent(compare=False)(one_time_token()(view)),
    "key in lock": lambda view: no_repeat_submit(60, key=lambda: 1)(
        idempotent(compare=False)(view)
    ),
}


def pieces():
    while piece := request.stream.read(3):
        yield piece


def streamed():
    return Response(stream_with_context(pieces()))


def data():
    return request.get_data()


def keep_the_data():
    data()


def refused():
    try:
        return data()
    except Exception:
        return "half of it will do"


def raw():
    return request.environ["wsgi.input"].read(int(request.headers["Content-Length"]))


def into_a_buffer():
    buffer = bytearray(len(BODY))
    return bytes(buffer[: request.environ["wsgi.input"].readinto(buffer)])


READERS = {
    "into a buffer": into_a_buffer,
    "data": data,
    "form": lambda: request.form,
    "values": lambda: dict(request.values),
    "pieces": lambda: b"".join(pieces()),
    "a streamed response": streamed,
    "raw": raw,
    "lines": lambda: b"".join(request.environ["wsgi.input"]),
    "a caught error": refused,
    "a part, then the rest": lambda: request.stream.read(CUT - 1) + request.get_data(),
}

SERVERS = {
    "to the length": {},
    "to the end": {"wsgi.input_terminated": True},
}


class Site:
    """An application whose view reads its body behind a guard."""

    def __init__(self, read, guard, *hooks):
        self.app = app_with(self.view, guard)
        for hook in hooks:
            self.app.before_request(hook)
        self.read, self.bodies = read, []
        self.token = self.app.test_client().get("/token").json["token"]
        self.store = self.app.extensions["idempotence"].engine.store

    def view(self):
        answer = self.read()
        self.bodies.append(answer)
        return answer

    def post(self, body, content_type=BYTES, *, server="to the length", stream=None):
        environ = {"CONTENT_LENGTH": str(len(BODY)), **SERVERS.get(server, {})}
        if server == "chunked":
            environ = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
        if stream is not None:
            environ["wsgi.input"] = stream
        headers = {"Idempotency-Key": "k", "Idempotence-Token": self.token}
        return send(self.app, body, content_type, environ, headers)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("how", READERS)
@pytest.mark.parametrize("guard", GUARDS)
def test_a_request_whose_body_broke_off_may_be_sent_again(guard, how, server):
    site = Site(READERS[how], GUARDS[guard])
    before = values_of(site.store)
    content_type = FORM if how in ("form", "values") else BYTES
    for _ in range(2):
        try:
            status = site.post(BODY[:CUT], content_type, server=server).status_code
        except Exception as error:  # a streamed response has begun by then
            status = error.code
        assert status == (200 if how == "a caught error" else 400)
        assert values_of(site.store).keys() == before.keys()
    site.bodies.clear()
    answer = site.post(BODY, content_type, server=server)
    assert (answer.status_code, len(site.bodies)) == (200, 1)
    repeat = site.post(BODY, content_type, server=server)
    assert len(site.bodies) == 1
    assert repeat.status_code in (200, 409)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("hook", ["data", "form", "pieces", "raw"])
def test_a_hook_that_reads_half_a_body_lets_no_view_run(hook, guard, server):
    def read():
        with contextlib.suppress(Exception):
            READERS[hook]()

    site = Site(lambda: "done", GUARDS[guard], read)
    before = values_of(site.store)
    assert site.post(BODY[:CUT], FORM, server=server).status_code == 400
    assert (site.bodies, values_of(site.store)) == ([], before)
    assert site.post(BODY, FORM, server=server).status_code == 200


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("compare", [False, lambda: 1])
@pytest.mark.parametrize("hooks", [[], [keep_the_data]])
def test_at_most_once_reads_the_whole_body_before_the_view_begins(compare, server, hooks):
    """Or takes it where a hook has read it."""
    site = Site(READERS["data"], idempotent(compare=compare, guarantee="at-most-once"), *hooks)
    assert site.post(BODY[:CUT], server=server).status_code == 400
    assert (site.bodies, len(values_of(site.store))) == ([], 1)  # the token
    assert site.post(BODY, server=server).data == BODY
    assert site.bodies == [BODY]


def test_a_token_is_put_back_after_a_failure_and_after_half_a_body_alike():
    statuses = iter([500, 500, 200])
    site = Site(lambda: (request.get_data(), next(statuses)), GUARDS["restoring token"])
    sent = [BODY, BODY[:CUT], BODY, BODY, BODY]
    assert [site.post(body).status_code for body in sent] == [500, 400, 500, 200, 409]


def test_a_view_that_has_acted_before_it_reads_may_keep_its_claim():
    def view():
        current_guard.keep()
        return request.get_data()

    for guard in ("key alone", "token", "lock"):
        site = Site(view, GUARDS[guard])
        assert [site.post(BODY[:CUT]).status_code for _ in "12"] in ([400, 400], [400, 409])
        assert site.post(BODY).status_code != 200


class Torn(io.BytesIO):
    """The input of a server that reports a disconnect by an error of its own."""

    def read(self, size=-1):
        return self.checked(super().read(size), size)

    def readline(self, size=-1):
        return self.checked(super().readline(size), size)

    def checked(self, data, size):
        if data and 0 <= size <= len(data):
            return data
        raise type("InvalidChunkSize", (Exception,), {})


@pytest.mark.parametrize("how", ["data", "pieces", "lines"])
@pytest.mark.parametrize("guard", GUARDS)
def test_an_error_of_the_server_is_half_a_body_too(guard, how):
    site = Site(READERS[how], GUARDS[guard])
    before = values_of(site.store)
    assert site.post(b"", server="chunked", stream=Torn(BODY)).status_code == 400
    assert values_of(site.store).keys() == before.keys()
    assert site.post(BODY, server="chunked").status_code == 200


@pytest.mark.parametrize("guard", [*GUARDS.values(), idempotent(), no_repeat_submit(60)])
def test_half_a_body_that_is_still_coded_is_half_a_body(guard):
    sent = gzip.compress(b"x" * 1000)
    site = Site(data, guard)
    environ = {"CONTENT_LENGTH": str(len(sent)), "HTTP_CONTENT_ENCODING": "gzip"}
    environ["wsgi.input_terminated"] = True
    headers = {"Idempotency-Key": "k", "Idempotence-Token": site.token}
    assert send(site.app, sent[:-1], BYTES, environ, headers).status_code == 400
    assert send(site.app, sent, BYTES, environ, headers).data == sent


def test_chunks_of_a_form_beyond_the_limit_are_too_large():
    for guard in (None, idempotent(), no_repeat_submit(60), one_time_token()):
        app = app_with(lambda: request.form, guard, MAX_CONTENT_LENGTH=100)
        environ = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
        answer = send(app, part("a", "x" * 200), PARTS, environ, {"Idempotency-Key": "k"})
        assert answer.status_code == 413
