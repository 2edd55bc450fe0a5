"""A token that the server has issued, used as a key: every later caller gets the first result."""

import pytest
from helpers.apps import KeyedApp, verdict

from flask_idempotence.testing import record_signals

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class TokenKeyedApp(KeyedApp):
    """A keyed app whose key is a token."""

    def __init__(self, *, key="Idempotence-Token", **options):
        super().__init__(lambda: {"run": self.runs}, key=key, **options)

    def token(self, query=""):
        return self.app.test_client().get(f"/token{query}").json["token"]

    def in_header(self, token, **headers):
        return self.send(None, headers={"Idempotence-Token": token, **headers})

    def in_form(self, token):
        return self.send(None, data={"idempotence_token": token})


@pytest.mark.parametrize("place", ["in_header", "in_form"])
def test_every_later_caller_gets_the_first_result(place):
    keyed = TokenKeyedApp()
    send, tokens = getattr(keyed, place), [keyed.token(), keyed.token()]
    assert [send(tokens[0]).json for _ in range(3)] == [{"run": 1}] * 3
    assert [verdict(send(token)) for token in tokens] == ["replay of 200", 200]
    assert keyed.runs == 2


def forged(keyed):
    other, token = TokenKeyedApp(settings={"SECRET_KEY": "another secret"}).token(), keyed.token()
    return {
        "for a purpose": keyed.token("?purpose=checkout"),
        "empty": "",
        "of another application": other,
        "cut short": token[:-2],
        "quoted": f'"{token}"',
    }


@pytest.mark.parametrize("kind", forged(TokenKeyedApp()))
def test_a_forged_token_is_invalid_and_leaves_nothing(kind):
    keyed = TokenKeyedApp()
    bad = forged(keyed)[kind]
    assert verdict(keyed.in_header(bad)) == "token-invalid"
    assert verdict(keyed.in_form(bad)) == ("token-invalid" if bad else 200)
    remembered = [key for key in keyed.store.scan("") if ":key:" in key]
    assert (keyed.runs, remembered) == (0 if bad else 1, [])


def test_a_token_is_one_key_however_its_signature_is_written():
    keyed = TokenKeyedApp()
    token = keyed.token()
    assert verdict(keyed.in_header(token)) == 200
    # The last of 43 characters carries four bits, and two that mean nothing.
    rewritten = [token[:-1] + ALPHABET[ALPHABET.index(token[-1]) ^ bits] for bits in (1, 2, 3)]
    found = {verdict(keyed.in_header(each)) for each in rewritten}
    assert found <= {"replay of 200", "token-invalid"}
    assert keyed.runs == 1


@pytest.mark.parametrize("ttl", [100, 86400])
def test_a_token_is_good_until_what_came_of_it_might_be_forgotten(ttl):
    keyed = TokenKeyedApp(ttl=ttl)
    token, late, unused = keyed.token(), keyed.token(), keyed.token()
    assert verdict(keyed.in_header(token)) == 200
    keyed.clock.advance(ttl - 30)
    assert [verdict(keyed.in_header(each)) for each in (token, late)] == ["replay of 200", 200]
    keyed.clock.advance(1)
    with record_signals(keyed.app) as sent:
        for each in (token, late, unused):
            answer = keyed.in_header(each)
            assert (answer.status_code, verdict(answer)) == (400, "token-expired")
    reasons = [arguments["error"].reason for _, arguments in sent.events]
    assert reasons == ["its response may no longer be remembered"] * 3
    assert keyed.runs == 2


def test_a_token_is_as_old_as_its_issuers_clock_says_within_half_a_minute():
    keyed = TokenKeyedApp(ttl=100)
    keyed.engine.services.tokens.clock = lambda: keyed.clock() + 29  # the clock of another machine
    token = keyed.token()
    keyed.engine.services.tokens.clock = keyed.clock
    assert verdict(keyed.in_header(token)) == 200
    keyed.clock.advance(98)
    assert verdict(keyed.in_header(token)) == "replay of 200"
    keyed.clock.advance(3)  # forgotten by now
    assert verdict(keyed.in_header(token)) == "token-expired"


def test_two_users_with_one_token_never_meet():
    keyed = TokenKeyedApp()
    token = keyed.token()
    users = [{"Authorization": f"Bearer {name}"} for name in ("ann", "bob")]
    found = [[keyed.in_header(token, **user).json["run"] for user in users] for _ in range(2)]
    assert found == [[1, 2], [1, 2]]


def test_a_guests_token_is_one_key_wherever_it_is_sent_from():
    keyed = TokenKeyedApp()
    sent = {"headers": {"Idempotence-Token": keyed.token()}}
    places = [{"environ_base": {"REMOTE_ADDR": f"192.0.2.{host}"}} for host in (1, 2)]
    found = keyed.verdicts(*[sent | place for place in places], key=None)
    assert found == [200, "replay of 200"]


def test_the_token_is_not_spent():
    keyed = TokenKeyedApp()
    token = keyed.token()
    keyed.in_header(token)
    with keyed.app.app_context():
        keyed.idempotence.redeem_token(token)


def test_the_header_and_the_field_are_those_of_the_settings():
    settings = {"IDEMPOTENCE_TOKEN_HEADER": "X-Form", "IDEMPOTENCE_TOKEN_FIELD": "form"}
    keyed = TokenKeyedApp(settings=settings, key="X-FORM")  # in any case
    in_header = {"headers": {"X-Form": keyed.token()}}
    in_form = {"data": {"form": keyed.token(), "sum": "7"}}
    for sent in (in_header, in_form):
        assert keyed.verdicts(sent, sent, key=None) == [200, "replay of 200"]
    assert verdict(keyed.in_header("forged")) == 200  # a header like any other
