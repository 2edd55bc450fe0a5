"""The log in debug mode: the decision about each guarded request, why, and its settlement."""

import logging
import re
import sys

import pytest
from flask import abort, session
from helpers.apps import make_app, no_answer
from helpers.servers.processes import run_to_end

from flask_idempotence import (
    Idempotence,
    TokenInvalid,
    current_guard,
    idempotent,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.testing import FakeClock

SECRET = "hunter2-hunter2"


class Shop:
    """An application in debug mode, and what it logs."""

    def __init__(self, caplog, *, debug=True, **settings):
        self.log = caplog
        self.idempotence = Idempotence()
        self.app = make_app(idempotence=self.idempotence, **settings)
        self.app.debug = debug
        self.clock = FakeClock()
        self.clock.rule(self.app)
        self.client = self.app.test_client()
        guards = {
            "lock": no_repeat_submit(interval=60),
            "key": idempotent(),
            "token": one_time_token(),
            "ticket": one_time_token("ticket"),
        }
        for name, guard in guards.items():
            self.app.add_url_rule(f"/{name}", name, guard(lambda: "done"), methods=["POST"])

        @self.app.post("/login")
        def login():
            session["user_id"] = SECRET
            return "in"

    def lines(self, path, **options):
        """Send a request, and return what it logs for developers."""
        return self.logged(lambda: self.client.open(path, **{"method": "POST", **options}))

    def logged(self, act):
        self.log.clear()
        act()
        assert "hunter2" not in self.log.text
        assert "127.0.0.1" not in self.log.text
        found = [r for r in self.log.records if r.name == "flask_idempotence.debug"]
        assert {record.levelno for record in found} <= {logging.DEBUG}
        messages = [record.getMessage().removeprefix("Flask-Idempotence: ") for record in found]
        return [re.sub(r"key=[0-9a-f]{12}\b", "key=…", message) for message in messages]

    def token(self, purpose=None):
        return self.client.get("/token", query_string={"purpose": purpose}).json["token"]

    def refusal(self, path, token):
        return self.lines(path, headers={"Idempotence-Token": token})[-1]


@pytest.fixture
def shop(caplog):
    return Shop(caplog)


def test_a_lock_tells_its_decision_its_facts_and_its_settlement(shop):
    data = {"card": SECRET}
    facts = "(identity=ip lease=30s key=… route=POST /lock)"
    assert shop.lines("/lock", data=data) == [
        f"no_repeat_submit at 'lock': claimed {facts}",
        f"no_repeat_submit at 'lock': status 200: held for another 60 s {facts}",
    ]
    assert shop.lines("/lock", data=data) == [
        f"no_repeat_submit at 'lock': refused: repeat-submit {facts}"
    ]


def test_a_key_tells_its_decision_its_facts_and_its_settlement(shop):
    headers = {"Idempotency-Key": SECRET, "Authorization": f"Bearer {SECRET}"}
    facts = "(identity=authorization lease=30s key=… route=POST /key)"
    assert shop.lines("/key", headers=headers) == [
        f"idempotent at 'key': claimed {facts}",
        f"idempotent at 'key': status 200: record stored for 86400 s {facts}",
    ]
    assert shop.lines("/key", headers=headers) == [f"idempotent at 'key': replayed {facts}"]
    assert shop.lines("/key", headers=headers, data=SECRET) == [
        f"idempotent at 'key': refused: key-reused {facts}"
    ]


def test_an_unguarded_request_tells_why(shop):
    view = no_repeat_submit(lambda name: name)
    shop.app.add_url_rule("/both/<name>", "both", view, methods=["GET", "POST"])
    assert shop.lines("/key") == [
        "idempotent at 'key': no key, and none is required: the view runs unguarded "
        "(route=POST /key)"
    ]
    assert shop.lines("/both/hunter2", method="GET") == [
        "no_repeat_submit at 'both': GET needs no guard: the view runs unguarded "
        "(route=GET /both/<name>)"
    ]
    shop.app.config["IDEMPOTENCE_LOCK_ENABLED"] = False
    assert shop.lines("/lock") == [
        "no_repeat_submit at 'lock': switched off by IDEMPOTENCE_ENABLED or "
        "IDEMPOTENCE_LOCK_ENABLED: the view runs unguarded (route=POST /lock)"
    ]


class Declined(Exception):
    """An error of the application."""


def fail():
    raise Declined


def by_hand(decide):
    def view():
        decide()
        return {"card": SECRET}, 402

    return view


@pytest.mark.parametrize(
    ("guard", "view", "settlement"),
    [
        (no_repeat_submit(60), fail, "status 402 after an exception, a failure: released"),
        (no_repeat_submit(60), by_hand(current_guard.keep), "current_guard.keep(): held for"),
        (no_repeat_submit(5), lambda: "ok", "status 200: held until 5 s after the claim"),
        (idempotent(), lambda: ("", 503), "status 503, a failure: released"),
        (idempotent(ttl=60), lambda: abort(404), "404 after an exception: record stored for 60 s"),
        (idempotent(), by_hand(current_guard.release), "current_guard.release(): released"),
        (one_time_token(), lambda: ("", 500), "status 500, a failure: token stays spent"),
        (one_time_token(restore_on_failure=True), lambda: abort(400), "token put back"),
    ],
)
def test_the_settlement_is_told_with_its_reason(shop, guard, view, settlement):
    shop.app.add_url_rule("/view", "view", guard(view), methods=["POST"])
    shop.app.register_error_handler(Declined, lambda _: ("declined", 402))
    headers = {"Idempotency-Key": "order-1", "Idempotence-Token": shop.token()}
    claimed, settled = shop.lines("/view", headers=headers)
    assert ": claimed (" in claimed
    assert settlement in settled


def test_the_settlement_is_of_the_response_sent_and_says_if_it_was_not_acknowledged(shop):
    @shop.app.after_request
    def fail_late(response):
        response.status_code = 500
        return response

    shop.app.extensions["idempotence"].store.release = no_answer
    assert (
        ": status 500, a failure: released, but the store has not acknowledged it ("
        in shop.lines("/lock")[-1]
    )


def test_the_wait_is_told(shop):
    view = no_repeat_submit(60, key=lambda: "x", wait=2.5)(lambda: "done")
    shop.app.add_url_rule("/view", "view", view, methods=["POST"])
    shop.app.extensions["idempotence"].engine.sleep = shop.clock.advance
    assert " wait=2.5s key=" in shop.lines("/view")[0]
    assert " wait=2.5s waited=2.5s " in shop.lines("/view")[0]


def test_a_commit_is_told(pay_app, caplog):
    site = pay_app()
    site.app.debug = True
    site.post()
    assert "idempotent at 'pay': status 201: committed, with the record (" in caplog.text


def test_the_source_may_be_the_session_a_loader_or_none(shop):
    shop.client.post("/login")
    assert "(identity=session " in shop.lines("/lock")[0]
    shop.idempotence.identity_loader(lambda: SECRET)
    assert "(identity=loader " in shop.lines("/lock")[0]
    shop.idempotence.identity_loader(lambda: None)
    shop.client.delete_cookie("session")
    headers = {"Idempotence-Token": shop.token()}
    assert "(identity=none " in shop.lines("/token", headers=headers)[0]


def test_a_token_that_is_not_good_is_told_with_the_reason(shop):
    ticket, token = shop.token("ticket"), shop.token()
    assert shop.lines("/token")[-1] == (
        "one_time_token at 'token': refused: token-missing: there is neither a header "
        "Idempotence-Token nor a form field idempotence_token (route=POST /token)"
    )
    two = {"idempotence_token": [token, shop.token()]}
    assert "idempotence_token came with several values (" in shop.lines("/token", data=two)[-1]
    assert shop.refusal("/token", token).endswith("route=POST /token)")  # it is spent here
    late = shop.token()
    for path, sent, reason in (
        ("/token", ticket, "invalid: it was issued for the purpose 'ticket', and this is for no"),
        ("/ticket", late, "invalid: it was issued for no purpose, and this is for the purpose"),
        ("/ticket", SECRET, "invalid: it was altered, or signed with another SECRET_KEY, or not"),
        ("/token", SECRET * 20, "invalid: it does not have the form of a token ("),
        ("/token", token, "spent: it has been spent, or the store no longer knows it ("),
    ):
        line = shop.refusal(path, sent)
        assert line.startswith(f"one_time_token at '{path[1:]}': refused: token-{reason}")
    shop.clock.advance(400)
    assert shop.refusal("/token", late) == (
        "one_time_token at 'token': refused: token-expired: it is 400 seconds old, and "
        "IDEMPOTENCE_TOKEN_TTL is 300 (identity=none key=… route=POST /token)"
    )


def test_a_token_of_another_user_is_told_with_the_reason(shop):
    shop.client.post("/login")
    token = shop.token()
    shop.client.delete_cookie("session")
    reason = "token-not-yours: it was issued to a user, and this is a guest ("
    assert reason in shop.refusal("/token", token)
    shop.idempotence.identity_loader(lambda: "another")
    reason = "token-not-yours: it was issued to another user than this one ("
    assert reason in shop.refusal("/token", token)


def test_outside_a_guard_once_and_tokens_are_told_without_a_sender(shop):
    def act():
        with shop.app.app_context():
            with shop.idempotence.once("invoice", 7):
                pass
            token = shop.idempotence.issue_token()
            with pytest.raises(TokenInvalid):
                shop.idempotence.redeem_token(token, "100%s")
            shop.idempotence.redeem_token(token)

    claimed, settled, issued, invalid, spent = shop.logged(act)
    assert claimed == "once at 'invoice': claimed (lease=30s key=…)"
    assert settled.startswith("once at 'invoice': end of the block: record stored for 86400 s (")
    assert issued.startswith("one_time_token at None: token issued (identity=none key=…")
    assert invalid.endswith("and this is for the purpose '100%s'")
    assert spent.startswith("one_time_token at None: token spent (identity=none key=…")


def test_outside_debug_mode_nothing_of_it_is_logged_or_sent(caplog):
    shop = Shop(caplog, debug=False)
    assert [shop.lines(path) for path in ("/lock", "/key", "/token")] == [[], [], []]
    assert "refused: " not in shop.client.post("/token").text


APP = """
from flask import Flask
from flask_idempotence import Idempotence, one_time_token
{setup}
app = Flask("shop")
app.config.update(SECRET_KEY="of this test", DEBUG=True)
Idempotence(app)
app.add_url_rule("/pay", "pay", one_time_token(lambda: "paid"), methods=["POST"])
app.test_client().post("/pay")
"""


@pytest.mark.parametrize("setup", ["", "import logging; logging.basicConfig()"])
def test_the_lines_are_on_the_console_of_flask_run_in_debug_mode(setup):
    done = run_to_end([sys.executable, "-c", APP.format(setup=setup)], check=True)
    assert done.stderr.count("Flask-Idempotence: one_time_token at 'pay': refused") == 1
