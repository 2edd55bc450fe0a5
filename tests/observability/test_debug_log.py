"""The log in debug mode: guard, source of the identity, and why a token is not good."""

import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest
from flask import session
from helpers.apps import make_app

from flask_idempotence import (
    Idempotence,
    TokenInvalid,
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
        self.log.clear()
        self.client.post(path, **options)
        assert "hunter2" not in self.log.text
        assert "127.0.0.1" not in self.log.text
        found = [r for r in self.log.records if r.name == "flask_idempotence.debug"]
        assert {record.levelno for record in found} <= {logging.DEBUG}
        return [record.getMessage().removeprefix("Flask-Idempotence: ") for record in found]

    def token(self, purpose=None):
        return self.client.get(
            "/token", query_string={"purpose": purpose} if purpose else {}
        ).json["token"]

    def refusal(self, path, token):
        return self.lines(path, headers={"Idempotence-Token": token})[-1]


@pytest.fixture
def shop(caplog):
    return Shop(caplog)


def test_a_lock_tells_its_source_and_its_outcome(shop):
    data = {"card": SECRET}
    assert shop.lines("/lock", data=data) == [
        "no_repeat_submit at 'lock': identity: ip",
        "no_repeat_submit at 'lock': claimed",
    ]
    assert shop.lines("/lock", data=data)[1:] == [
        "no_repeat_submit at 'lock': refused: repeat-submit"
    ]


def test_a_key_tells_its_source_and_its_outcome(shop):
    headers = {"Idempotency-Key": SECRET, "Authorization": f"Bearer {SECRET}"}
    source = "idempotent at 'key': identity: authorization"
    assert shop.lines("/key", headers=headers) == [source, "idempotent at 'key': claimed"]
    assert shop.lines("/key", headers=headers) == [source, "idempotent at 'key': replayed"]
    assert shop.lines("/key", headers=headers, data=SECRET)[1:] == [
        "idempotent at 'key': refused: key-reused"
    ]
    assert shop.lines("/key") == ["idempotent at 'key': no key: the view runs unguarded"]


def test_the_source_may_be_the_session_a_loader_or_nobody(shop):
    shop.client.post("/login")
    assert shop.lines("/lock")[0].endswith("identity: session")
    shop.idempotence.identity_loader(lambda: SECRET)
    assert shop.lines("/lock")[0].endswith("identity: loader")
    shop.idempotence.identity_loader(lambda: SimpleNamespace(id=SECRET))
    assert shop.lines("/lock")[0].endswith("identity: loader")
    shop.idempotence.identity_loader(lambda: None)
    assert shop.lines("/token", headers={"Idempotence-Token": shop.token()})[0].endswith(
        "identity: session"
    )
    shop.client.delete_cookie("session")
    assert shop.lines("/token", headers={"Idempotence-Token": shop.token()})[0].endswith(
        "identity: nobody"
    )


@pytest.mark.parametrize(
    ("headers", "source"),
    [
        ({"Idempotency-Key": "f81d4fae-7dec-4d06-a765-00a0c91e6bf6"}, "guest"),
        ({"Authorization": f'Hawk id="{SECRET}", ts="1", nonce="a", mac="b"'}, "authorization"),
        ({"X-Api-Key": SECRET}, "credentials"),
        (
            {"Authorization": f"Bearer {SECRET} ip:1", "X-Api-Key": SECRET},
            "authorization and credentials",
        ),
        ({"X-Api-Key": SECRET, "X-Tenant-ID": f"ip:{SECRET}"}, "credentials and account"),
    ],
    ids=str,
)
@pytest.mark.parametrize("by_host", [True, False])
def test_every_kind_of_identity_is_named_by_its_sources(caplog, headers, source, by_host):
    shop = Shop(caplog, IDEMPOTENCE_IDENTITY_HOST=by_host)
    headers = {"Idempotency-Key": "order-1", **headers}
    assert shop.lines("/key", headers=headers)[0] == f"idempotent at 'key': identity: {source}"


def test_a_guard_that_is_switched_off_says_so(shop):
    shop.app.config["IDEMPOTENCE_LOCK_ENABLED"] = False
    assert shop.lines("/lock") == [
        "no_repeat_submit at 'lock': switched off by IDEMPOTENCE_ENABLED or "
        "IDEMPOTENCE_LOCK_ENABLED"
    ]


def test_a_token_that_is_not_good_is_told_with_the_reason(shop):
    ticket, token = shop.token("ticket"), shop.token()
    begin = "one_time_token at 'token': refused: "
    assert shop.lines("/token")[-1] == (
        f"{begin}token-missing: there is neither a header Idempotence-Token nor a form field "
        "idempotence_token"
    )
    assert shop.refusal("/token", ticket) == (
        f"{begin}token-invalid: it was issued for the purpose 'ticket', and this is for no purpose"
    )
    assert shop.refusal("/ticket", token).endswith(
        "token-invalid: it was issued for no purpose, and this is for the purpose 'ticket'"
    )
    assert shop.refusal("/ticket", SECRET).endswith(
        "token-invalid: it was altered, or signed with another SECRET_KEY, or not for the purpose "
        "'ticket'"
    )
    assert shop.refusal("/token", SECRET * 20).endswith("it does not have the form of a token")
    two = {"idempotence_token": [token, shop.token()]}
    assert shop.lines("/token", data=two)[-1].endswith(
        "idempotence_token came with several values"
    )
    assert shop.refusal("/token", token) == "one_time_token at 'token': claimed"
    assert shop.refusal("/token", token).endswith(
        "token-spent: it has been spent, or the store no longer knows it"
    )
    late = shop.token()
    shop.clock.advance(400)
    assert shop.refusal("/token", late) == (
        f"{begin}token-expired: it is 400 seconds old, and IDEMPOTENCE_TOKEN_TTL is 300"
    )


def test_a_token_of_another_user_is_told_with_the_reason(shop):
    shop.client.post("/login")
    token = shop.token()
    shop.client.delete_cookie("session")
    end = "token-not-yours: it was issued to a user, and this is a guest"
    assert shop.refusal("/token", token).endswith(end)
    shop.idempotence.identity_loader(lambda: "somebody")
    end = "token-not-yours: it was issued to another user than this one"
    assert shop.refusal("/token", token).endswith(end)


def test_a_reason_with_a_percent_sign_is_logged_as_it_is(shop):
    with shop.app.app_context(), pytest.raises(TokenInvalid):
        shop.idempotence.redeem_token(shop.token(), "100%s")
    (line,) = [r.getMessage() for r in shop.log.records if "token-invalid" in r.getMessage()]
    assert line.endswith("and this is for the purpose '100%s'")


def test_once_has_no_sender(shop):
    shop.log.clear()
    with shop.app.app_context(), shop.idempotence.once("invoice", 7):
        pass
    lines = [r.getMessage() for r in shop.log.records if r.name == "flask_idempotence.debug"]
    assert lines == ["Flask-Idempotence: once at 'invoice': claimed"]


def test_outside_debug_mode_nothing_of_it_is_logged_or_sent(caplog):
    shop = Shop(caplog, debug=False)
    assert [shop.lines(path) for path in ("/lock", "/key", "/token")] == [[], [], []]
    assert "refused: " not in shop.client.post("/token").text


APP = """
from flask import Flask
from flask_idempotence import Idempotence, one_time_token
{setup}
app = Flask("shop")
app.config.update(SECRET_KEY="of this test", DEBUG={debug})
Idempotence(app)
app.add_url_rule("/pay", "pay", one_time_token(lambda: "paid"), methods=["POST"])
app.test_client().post("/pay")
"""


@pytest.mark.parametrize(
    ("debug", "setup", "times"),
    [
        (True, "", 1),
        (False, "", 0),
        (True, "import logging; logging.basicConfig()", 1),
        (True, "import logging; logging.getLogger('flask_idempotence').setLevel('INFO')", 0),
    ],
)
def test_the_lines_are_on_the_console_of_flask_run_in_debug_mode(debug, setup, times):
    done = subprocess.run(
        [sys.executable, "-c", APP.format(debug=debug, setup=setup)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr.count("Flask-Idempotence: one_time_token at 'pay': refused") == times
