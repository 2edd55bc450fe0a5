"""`Idempotence-Refusal`: on every refusal, whatever makes its body, and on nothing else."""

import contextlib

import pytest
from flask import abort, request
from helpers.apps import make_app
from helpers.http_transcripts import BLOCK, TranscriptClient
from helpers.payment_database import PaymentApp, lose_claim
from helpers.refusal_cases import REFUSAL_CASES, RefusalCase
from helpers.repository import REFERENCE, section
from werkzeug.exceptions import HTTPException

from flask_idempotence import (
    Idempotence,
    Refusal,
    TokenError,
    current_guard,
    idempotent,
    no_repeat_submit,
)
from flask_idempotence.testing import clear_store

HEADER = "Idempotence-Refusal"
locked = no_repeat_submit(60)


def broken(error):
    raise RuntimeError("this handler has a mistake")


HANDLERS = {
    "none": {},
    "every HTTP error in JSON": {HTTPException: lambda error: ({"code": error.code}, error.code)},
    "its own": {Refusal: lambda error: {"told": error.description}},
    "every error is a 500": {Exception: lambda error: ({"error": "internal"}, 500)},
    "a redirection": {Refusal: lambda error: ("", 303, {"Location": "/orders"})},
    "one that fails": {Refusal: broken},
}


@pytest.mark.parametrize("slug", REFUSAL_CASES)
@pytest.mark.parametrize("handlers", HANDLERS)
def test_every_refusal_says_in_its_header_which_it_is(monkeypatch, slug, handlers):
    add_views = RefusalCase.add_views

    def add_handlers_too(case):
        add_views(case)
        for error, handler in HANDLERS[handlers].items():
            case.app.register_error_handler(error, handler)

    monkeypatch.setattr(RefusalCase, "add_views", add_handlers_too)
    case = REFUSAL_CASES[slug]()
    case.app.config["PROPAGATE_EXCEPTIONS"] = False
    [asked] = BLOCK.findall(section(REFERENCE / "errors.md", slug))[:1]
    for accept in ("", "Accept: text/html\n"):
        answer = TranscriptClient(case.app, dict(case.names)).exchange(
            with_header(asked[2], accept)
        )
        assert answer.count(f"\n{HEADER}: {slug}\n") == 1
        if slug == "lease-lost":
            break  # the second one would run


def with_header(text, header):
    head, _, body = text.partition("\n\n")
    return f"{head.rstrip()}\n{header}\n{body}"


def refused(app, path="/orders"):
    """Return the answer to the second of two equal submits."""
    return [app.test_client().post(path) for _ in range(2)][1]


@pytest.mark.parametrize("status", [200, 201, 429])
@pytest.mark.parametrize("handlers", HANDLERS)
def test_it_is_there_under_the_status_of_a_duplicate(status, handlers):
    app = make_app(IDEMPOTENCE_DUPLICATE_STATUS=status, PROPAGATE_EXCEPTIONS=False)
    app.add_url_rule("/orders", "order", locked(lambda: "done"), methods=["POST"])
    for error, handler in HANDLERS[handlers].items():
        app.register_error_handler(error, handler)
    assert refused(app).headers[HEADER] == "repeat-submit"


def test_an_async_view_says_it_too():
    app = make_app()

    @app.post("/orders")
    @locked
    async def order():
        clear_store(app)
        current_guard.ensure_held()

    app.register_error_handler(Exception, lambda error: ("", 500))
    assert app.test_client().post("/orders").headers[HEADER] == "lease-lost"


def caught(answer, **settings):
    """Send a spent token to a view that catches the refusal and gives this answer."""
    idempotence = Idempotence()
    app = make_app(idempotence=idempotence, **settings)

    @app.post("/orders")
    def order():
        try:
            idempotence.redeem_token(request.headers["Idempotence-Token"])
        except TokenError as error:
            return answer(error)
        return "done"

    headers = {"Idempotence-Token": app.test_client().get("/token").json["token"]}
    return [app.test_client().post("/orders", headers=headers) for _ in range(2)][1]


@pytest.mark.parametrize("status", [409, 200])
def test_a_view_that_catches_a_refusal_and_succeeds_has_refused_nothing(status):
    answer = caught(lambda error: "as before", IDEMPOTENCE_DUPLICATE_STATUS=status)
    assert (answer.status_code, HEADER in answer.headers) == (200, False)


def test_nor_has_one_that_fails_in_another_way():
    answer = caught(lambda error: abort(422))
    assert (answer.status_code, HEADER in answer.headers) == (422, False)


@pytest.mark.parametrize(
    "answer",
    [lambda error: error, lambda error: error.get_response(), lambda error: ({}, error.code)],
)
def test_one_that_answers_the_refusal_itself_says_it(answer):
    found = caught(answer)
    assert (found.status_code, found.headers[HEADER]) == (409, "token-spent")


def test_of_two_refusals_the_one_that_is_answered_is_named():
    idempotence = Idempotence()
    app = make_app(idempotence=idempotence)
    app.register_error_handler(HTTPException, lambda error: ("", error.code))
    inner = locked(lambda: "done")

    @app.post("/orders")
    def order():
        with contextlib.suppress(TokenError):
            idempotence.redeem_token(token)
        return inner()

    token = app.test_client().get("/token").json["token"]
    assert refused(app).headers[HEADER] == "repeat-submit"


@pytest.mark.parametrize("status", [409, 500])
def test_what_could_not_be_committed_says_so(tmp_path, status):
    handlers = {HTTPException: lambda error: ({}, status)}

    def view(session):
        lose_claim()
        return site.pay(session)

    site = PaymentApp(f"sqlite:///{tmp_path}/books.sqlite3", view, handlers=handlers)
    answer = site.post()
    site.close()
    assert (answer.status_code, answer.headers[HEADER]) == (status, "lease-lost")


def test_a_block_of_once_that_could_not_be_committed_says_so(tmp_path):
    handlers = {HTTPException: lambda error: ({}, 500)}

    site = PaymentApp(f"sqlite:///{tmp_path}/books.sqlite3", handlers=handlers)

    @site.app.post("/jobs")
    def job():
        with site.idempotence.once("jobs", 1, within=site.session):
            lose_claim()

    answer = site.app.test_client().post("/jobs")
    site.close()
    assert (answer.status_code, answer.headers[HEADER]) == (500, "lease-lost")


def test_a_remembered_refusal_is_still_one():
    app = make_app()
    inner = locked(lambda: "done")

    @app.post("/orders")
    @idempotent(guarantee="at-most-once")
    def order():
        return inner()  # after the view may have done something

    keys = ["first", "second", "second"]
    first, second, again = (
        app.test_client().post("/orders", headers={"Idempotency-Key": key}) for key in keys
    )
    assert HEADER not in first.headers
    assert second.headers[HEADER] == again.headers[HEADER] == "repeat-submit"
    assert again.headers["Idempotent-Replayed"] == "true"
