"""Guards behind Flask-CORS: preflights, replays and refusals of another origin."""

import pytest
from flask import session
from flask_cors import CORS, cross_origin
from helpers.apps import bare_app, verdict
from helpers.refusal_cases import NOBODY

from flask_idempotence import Idempotence, idempotent, no_repeat_submit, one_time_token

ALLOWED = "Access-Control-Allow-Origin"
ONE, OTHER = "https://one.example", "https://other.example"
GUARDS = {
    "lock": no_repeat_submit(60),
    "token": one_time_token(),
    "key": idempotent(required=True),
}
REFUSED = {"lock": "repeat-submit", "token": "token-missing", "key": "key-missing"}


def shop(*, cors_first=False, uri="memory://", **options):
    """Return an application behind Flask-CORS, with a view for each guard."""
    app = bare_app(IDEMPOTENCE_STORAGE_URI=uri)
    options = {"origins": [ONE, OTHER], "expose_headers": ["Idempotent-Replayed"], **options}
    registrations = [lambda: Idempotence(app), lambda: CORS(app, **options)]
    for register in registrations[::-1] if cors_first else registrations:
        register()
    for mode, guard in GUARDS.items():
        app.add_url_rule(f"/{mode}", mode, guard(lambda: ("done", 201)), methods=["POST"])
    return app


def send(app, path, *, method="POST", origin=ONE, client=None, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    client = client or app.test_client()
    return client.open(path, method=method, headers={"Origin": origin, **names})


@pytest.mark.parametrize("mode", GUARDS)
def test_a_view_that_answers_preflights_itself_is_not_guarded_then(mode):
    app = shop(uri=NOBODY)
    view = GUARDS[mode](lambda: ("", 204))
    options = {"methods": ["POST", "OPTIONS"], "provide_automatic_options": False}
    app.add_url_rule("/own", "own", view, **options)
    answers = [send(app, "/own", method="OPTIONS") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [204, 204, 204]
    assert send(app, "/own", Idempotency_Key="k").status_code in (400, 503)


@pytest.mark.parametrize("mode", GUARDS)
def test_a_preflight_is_answered_and_needs_no_store(mode):
    asked = {
        "Access_Control_Request_Method": "POST",
        "Access_Control_Request_Headers": "idempotency-key, idempotence-token",
    }
    answer = send(shop(uri=NOBODY), f"/{mode}", method="OPTIONS", **asked)
    assert (answer.status_code, answer.headers[ALLOWED]) == (200, ONE)
    assert answer.headers["Access-Control-Allow-Headers"] == "idempotence-token, idempotency-key"


@pytest.mark.parametrize("cors_first", [True, False])
def test_replays_and_refusals_can_be_read_whichever_is_registered_first(cors_first):
    app = shop(cors_first=cors_first)
    answers = [send(app, "/key", Idempotency_Key="k") for _ in range(2)]
    assert [verdict(answer) for answer in answers] == [201, "replay of 201"]
    for mode, slug in REFUSED.items():
        answers.append([send(app, f"/{mode}") for _ in range(2)][1])
        assert verdict(answers[-1]) == slug
    for answer in answers:
        assert answer.headers.getlist(ALLOWED) == [ONE]
        assert answer.headers["Access-Control-Expose-Headers"] == "Idempotent-Replayed"


def test_a_replay_has_the_headers_of_its_own_origin():
    app = shop()
    answers = [send(app, "/key", origin=origin, Idempotency_Key="k") for origin in (ONE, OTHER)]
    assert [verdict(answer) for answer in answers] == [201, "replay of 201"]
    assert [answer.headers.getlist(ALLOWED) for answer in answers] == [[ONE], [OTHER]]
    stranger = send(app, "/key", origin="https://evil.example", Idempotency_Key="k")
    assert ALLOWED not in stranger.headers


def test_a_refusal_through_cross_origin_cannot_be_read():
    app = bare_app()
    Idempotence(app)
    app.post("/")(cross_origin(origins=[ONE])(no_repeat_submit(60)(lambda: "done")))
    first, second = (send(app, "/") for _ in range(2))
    assert (first.status_code, first.headers[ALLOWED]) == (200, ONE)
    assert (second.status_code, ALLOWED in second.headers) == (409, False)


def test_with_every_origin_and_credentials_any_site_gets_tokens():
    """It is Flask-CORS that reflects the origin, and the page warns of it."""
    app = shop(origins="*", supports_credentials=True)
    evil = {"method": "GET", "origin": "https://evil.example"}
    answer = send(app, "/token", **evil)
    assert answer.headers[ALLOWED] == "https://evil.example"
    assert answer.headers["Access-Control-Allow-Credentials"] == "true"
    assert ALLOWED not in send(shop(supports_credentials=True), "/token", **evil).headers


def test_a_token_fetched_without_the_cookie_is_spent_with_it():
    app = shop(supports_credentials=True)
    app.add_url_rule("/in", "in", lambda: session.setdefault("user_id", 1) and "in")
    member = app.test_client()
    send(app, "/in", method="GET", client=member)
    token = send(app, "/token", method="GET").json["token"]  # of a client without cookies
    answers = [send(app, "/token", client=member, Idempotence_Token=token) for _ in range(2)]
    assert [verdict(answer) for answer in answers] == [201, "token-spent"]
