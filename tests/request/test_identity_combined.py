"""Sources that count together: what several users share hides none of them."""

import itertools

import pytest
from flask import request
from flask_httpauth import HTTPBasicAuth, HTTPTokenAuth
from flask_jwt_extended import JWTManager, create_access_token, jwt_required
from helpers.applications.login_apps import ADDRESS, CountingApp

from flask_idempotence import ConfigurationError

SITE = {"environ": {"REMOTE_USER": "site"}}


def by_header(name, value):
    return {"headers": {name: value}}


def signed_in(counter, **content):
    client = counter.app.test_client()
    with client.session_transaction() as held:
        held.update(content)
    return {"client": client}


class TestALoginOfTheWholeSite:
    """Basic authentication by the server or in the application, and users behind it."""

    @pytest.mark.parametrize("header", ["X-Api-Key", "Authorization"])
    def test_of_the_server_hides_no_credentials(self, header):
        users = [{**SITE, **by_header(header, f"Bearer {name}")} for name in "ab"]
        assert CountingApp().tells_apart(*users)

    def test_of_the_server_hides_no_session(self):
        counter = CountingApp()
        users = [{**SITE, **signed_in(counter, user_id=name)} for name in "ab"]
        assert counter.tells_apart(*users)

    def test_of_the_server_alone_is_a_user_at_any_address(self):
        attempts = [{**SITE, "address": address} for address in (ADDRESS, "192.0.2.2")]
        assert CountingApp().takes_for_one(*attempts)

    def test_of_the_server_does_not_count_beside_a_loaded_identity(self):
        counter = CountingApp()
        counter.idempotence.identity_loader(lambda: "ann")
        assert counter.takes_for_one(SITE, {})

    def test_of_the_application_hides_no_session(self):
        auth = HTTPBasicAuth()
        auth.verify_password(lambda name, password: name if password else None)
        counter = CountingApp(checks=[auth.login_required])
        users = [{"auth": ("site", "x"), **signed_in(counter, user_id=name)} for name in "ab"]
        assert counter.tells_apart(*users)


class TestAMappingWithoutAnId:
    """It may hold a role, which others have, too."""

    def test_beside_another_name_in_the_session(self):
        counter = CountingApp()
        users = [signed_in(counter, user={"role": "admin"}, email=name) for name in "ab"]
        assert counter.tells_apart(*users)

    def test_from_a_login_library(self):
        auth = HTTPTokenAuth()
        auth.verify_token(lambda token: {"role": "admin"})
        counter = CountingApp(checks=[auth.login_required])
        assert counter.tells_apart(*[by_header("Authorization", f"Bearer {n}") for n in "ab"])


class TestTheAccountOfAUser:
    @pytest.mark.parametrize("name", ["tenant_id", "account_id", "org_id", "tenant"])
    def test_in_the_session(self, name):
        counter = CountingApp()
        users = [signed_in(counter, user_id=1, **{name: account}) for account in "ab"]
        assert counter.tells_apart(*users)

    @pytest.mark.parametrize("claim", ["iss", "tenant", "tenant_id", "org_id", "tid"])
    def test_in_the_claims_of_a_token(self, claim):
        settings = {"JWT_SECRET_KEY": "a secret for the tests of 32 bytes"}
        counter = CountingApp(checks=[jwt_required()], **settings)
        JWTManager(counter.app)
        with counter.app.app_context():
            tokens = [
                create_access_token("1", additional_claims={claim: account}) for account in "ab"
            ]
        users = [by_header("Authorization", f"Bearer {token}") for token in tokens]
        assert counter.tells_apart(*users)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"provider": "github", "id": 1}, {"provider": "google", "id": 1}),
            ({"sub": "a b", "iss": "c"}, {"sub": "a", "iss": "b c"}),
            ({"sub": "a b"}, {"sub": "a", "iss": "b"}),
            ({"id": '7 ["tenant_id","acme"]'}, {"id": "7", "tenant_id": "acme"}),
            ({"id": '7","tenant_id","acme"]'}, {"id": "7", "tenant_id": "acme"}),
            ({"id": 7, "tenant": {"id": 1}}, {"id": 7, "tenant": {"id": 2}}),
            ({"id": 7, "tenant": ["a"]}, {"id": 7, "tenant": ["b"]}),
        ],
    )
    def test_in_a_mapping(self, one, other):
        counter = CountingApp()
        assert counter.tells_apart(signed_in(counter, user=one), signed_in(counter, user=other))

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"id": "7", "tenant_id": "acme"}, {"id": '7 ["tenant_id","acme"]'}),
            ({"id": "7", "tenant_id": "acme"}, '@[".id=7","tenant_id","acme"]'),
            ({"id": "7", "iss": "a", "org_id": "b"}, {"id": "7", "iss": 'a","org_id","b'}),
            ({"id": "7", "iss": "a", "org_id": "b"}, {"id": "7", "iss": "a org_id b"}),
            ({"id": "7", "iss": "a", "org_id": "b"}, {"id": "7", "iss": "aorg_idb"}),
            ({"id": "7"}, ["id", "7"]),
            (["=7", "iss", "a"], {"id": "7", "iss": "a"}),
        ],
    )
    def test_of_a_loader(self, one, other):
        counter, users = CountingApp(), [one, other]
        counter.idempotence.identity_loader(lambda: users[int(request.headers["X-User"])])
        assert counter.tells_apart(*[by_header("X-User", number) for number in "01"])

    def test_a_name_in_the_session_is_no_part_of_another(self):
        names = ["user", "user.id", "user.id=7"]
        counter = CountingApp(IDEMPOTENCE_IDENTITY_SESSION_KEYS=names)
        held = [{"user": {"id": "7=8"}}, {"user.id": "7=8"}, {"user.id=7": "8"}]
        users = [signed_in(counter, **each) for each in held]
        for one, other in itertools.combinations(users, 2):
            counter.app.extensions["idempotence"].store.clear("")
            assert counter.tells_apart(one, other)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"HTTP_HOST": "a/b"}, {"HTTP_HOST": "a", "SCRIPT_NAME": "/b"}),
            ({"SCRIPT_NAME": "/a b"}, {"SCRIPT_NAME": "/a%20b"}),
        ],
    )
    def test_the_place_of_an_application_has_one_reading(self, one, other):
        counter = CountingApp()
        assert counter.tells_apart({"environ": one}, {"environ": other})


class Masked(str):
    """A secret that no log shows."""

    __slots__ = ()

    def __str__(self):
        return "****"


class TestAnObjectFromALoader:
    def test_counts_by_the_whole_of_a_text_that_masks_itself(self):
        counter = CountingApp()
        counter.idempotence.identity_loader(lambda: Masked(request.headers["X-Secret"]))
        assert counter.tells_apart(by_header("X-Secret", "a"), by_header("X-Secret", "b"))

    def test_that_is_not_signed_in_is_nobody(self):
        class Anonymous:
            is_authenticated = False

        counter = CountingApp()
        counter.idempotence.identity_loader(Anonymous)
        assert counter.tells_apart({"address": ADDRESS}, {"address": "192.0.2.2"})

    def test_without_an_id_is_refused(self):
        counter = CountingApp()
        counter.idempotence.identity_loader(object)
        with pytest.raises(ConfigurationError, match=r"returned a object.* Return the user's id"):
            counter.send()
