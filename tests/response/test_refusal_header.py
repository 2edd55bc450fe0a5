"""`Idempotence-Refusal`: on every refusal, whatever makes its body, and on nothing else."""

import contextlib

import pytest
from flask import abort, request
from helpers.apps import make_app
from helpers.payment_database import PaymentApp, lose_claim
from helpers.refusal_cases import REFUSAL_CASES, refused_as_documented
from werkzeug.exceptions import HTTPException

from flask_idempotence import Idempotence, Refusal, RepeatSubmit, TokenError, no_repeat_submit

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
@pytest.mark.parametrize(
    ("handlers", "accept"), [*((name, "*/*") for name in HANDLERS), ("none", "text/html")]
)
def test_every_refusal_says_in_its_header_which_it_is(slug, handlers, accept):
    options = {"accept": accept, "handlers": HANDLERS[handlers], "PROPAGATE_EXCEPTIONS": False}
    answer = refused_as_documented(slug, **options)
    assert answer.count(f"\n{HEADER}: {slug}\n") == 1


def refused(app, path="/orders"):
    """Return the answer to the second of two equal submits."""
    return [app.test_client().post(path) for _ in range(2)][1]


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


@pytest.mark.parametrize(
    ("answer", "duplicate", "status"),
    [
        (lambda error: "as before", 409, 200),
        (lambda error: "as before", 200, 200),
        (lambda error: abort(422), 409, 422),
    ],
)
def test_a_view_that_catches_a_refusal_and_answers_otherwise_has_refused_nothing(
    answer, duplicate, status
):
    answer = caught(answer, IDEMPOTENCE_DUPLICATE_STATUS=duplicate)
    assert (answer.status_code, HEADER in answer.headers) == (status, False)


@pytest.mark.parametrize(
    "answer",
    [lambda error: error, lambda error: error.get_response(), lambda error: ({}, error.code)],
)
def test_one_that_answers_the_refusal_itself_says_it(answer):
    found = caught(answer)
    assert (found.status_code, found.headers[HEADER]) == (409, "token-spent")


@pytest.mark.parametrize("own", [{}, {"Retry-After": "7"}])
def test_a_handler_may_say_itself_when_to_try_again(own):
    app = make_app(idempotence=Idempotence())
    app.register_error_handler(Refusal, lambda error: ({}, error.code, own))
    app.post("/orders")(locked(lambda: "done"))
    assert refused(app).headers.getlist("Retry-After") == [own.get("Retry-After", "60")]


@pytest.mark.parametrize("handles", [False, True])
def test_of_two_refusals_the_one_that_is_answered_is_named(handles):
    idempotence = Idempotence()
    app = make_app(idempotence=idempotence)
    if handles:
        app.register_error_handler(HTTPException, lambda error: ("", error.code))
    inner = locked(lambda: "done")

    @app.post("/checkout")
    def checkout():
        with contextlib.suppress(RepeatSubmit):
            inner()
        idempotence.redeem_token(token)

    @app.post("/orders")
    def order():
        with contextlib.suppress(TokenError):
            idempotence.redeem_token(token)
        return inner()

    token = app.test_client().get("/token").json["token"]
    assert refused(app).headers[HEADER] == "repeat-submit"
    other = refused(app, "/checkout")
    assert (other.headers[HEADER], other.headers.get("Retry-After")) == ("token-spent", None)


def test_what_could_not_be_committed_says_so(tmp_path):
    """The result of a guarded view, and of a block of `once`."""

    def view(session):
        lose_claim()
        return site.pay(session)

    handlers = {HTTPException: lambda error: ({}, 500)}
    site = PaymentApp(f"sqlite:///{tmp_path}/books.sqlite3", view, handlers=handlers)
    site.add_once()
    for answer in (site.post(), site.app.test_client().post("/once")):
        assert (answer.status_code, answer.headers[HEADER]) == (500, "lease-lost")
    site.close()
