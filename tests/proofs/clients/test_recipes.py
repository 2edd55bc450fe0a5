"""The recipes of docs/how-to/call-an-api.md, run with the clients that they are for."""

from unittest.mock import Mock

import boto3
import pytest
import stripe
from botocore.exceptions import ClientError
from helpers.callers.clients_page import (
    KEY,
    MEASURED,
    attempt,
    recipe,
)
from helpers.callers.python_clients import PYTHON_CLIENTS
from helpers.servers.faulty_shop import FaultyServer

from flask_idempotence import MemoryStore, StoreError, current_guard, idempotent
from flask_idempotence.stores.base import Outcome

pytestmark = pytest.mark.clients


def test_stripe_reads_the_refusal_as_its_own_error():
    with FaultyServer(recipe("Stripe's")["app"]) as server:
        client = stripe.StripeClient("sk_test_1", base_addresses={"api": server.url})
        intents, options = client.v1.payment_intents, {"idempotency_key": KEY}
        made = intents.create({"amount": 50, "currency": "eur"}, options)
        assert (made.id, made.amount) == ("pi_1", 50)
        with pytest.raises(stripe.IdempotencyError) as caught:
            intents.create({"amount": 70, "currency": "eur"}, options)
    assert caught.value.json_body["error"]["code"] == "key_reused"
    assert caught.value.user_message.startswith("This idempotency key has been used")
    assert server.statuses == [200, 400]


@pytest.mark.parametrize("refused", [StoreError("no answer"), Outcome.STALE])
def test_the_replay_of_a_passing_refusal_is_final(monkeypatch, refused):
    names = recipe("Stripe's")

    @names["app"].post("/slow")
    @idempotent(guarantee="at-most-once")
    def slow():
        renew = Mock(side_effect=[refused if isinstance(refused, Exception) else [refused]])
        monkeypatch.setattr(MemoryStore, "renew", renew)
        current_guard.ensure_held()

    client = names["app"].test_client()
    answers = [client.post("/slow", headers={"Idempotency-Key": KEY}) for _ in range(2)]
    assert len({answer.headers["Idempotence-Refusal"] for answer in answers}) == 1
    assert [answer.headers.get("Stripe-Should-Retry") for answer in answers] == [None, "false"]


@pytest.mark.parametrize("amount", ["", "x", "1.5", "9" * 5000, None])
def test_a_wrong_amount_is_refused_in_stripes_format(amount):
    client = recipe("Stripe's")["app"].test_client()
    form = {} if amount is None else {"amount": amount}
    answer = client.post("/v1/payment_intents", data=form, headers={"Idempotency-Key": KEY})
    assert (answer.status_code, answer.json["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(
    "credentials", ["", "garbage", "Signature=a", "Credential", "Credential=NOBODY/20261122"]
)
def test_credentials_without_a_known_account_are_no_error_of_the_server(credentials):
    client = recipe("XML, for clients of AWS", MEASURED)["app"].test_client()
    headers = {"Authorization": f"AWS4-HMAC-SHA256 {credentials}"}
    answer = client.post("/", data={"ClientToken": KEY}, headers=headers)
    assert answer.status_code == 200


def ec2(url, access_key="AKIDEXAMPLE"):
    return boto3.client(
        "ec2",
        region_name="eu-west-1",
        endpoint_url=url,
        aws_access_key_id=access_key,
        aws_secret_access_key="secret",
    )


def instances(client, count=1, **options):
    return client.run_instances(ImageId="ami-1", MinCount=1, MaxCount=count, **options)


def replays(server):
    return [response.headers.get("Idempotent-Replayed") == "true" for response in server.responses]


def test_boto3_starts_instances_once():
    with FaultyServer(recipe("XML, for clients of AWS", MEASURED)["app"], "lost") as server:
        assert instances(ec2(server.url))["ReservationId"] == "r-1"
    assert replays(server) == [False, True]


def test_boto3_reads_the_refusal_as_its_own_error():
    with FaultyServer(recipe("XML, for clients of AWS", MEASURED)["app"]) as server:
        client = ec2(server.url)
        instances(client, ClientToken=KEY)
        with pytest.raises(ClientError) as caught:
            instances(client, 2, ClientToken=KEY)
    assert caught.value.response["Error"]["Code"] == "IdempotentParameterMismatch"
    assert server.statuses == [200, 400]


def test_two_access_keys_of_an_account_are_one_sender():
    names = recipe("XML, for clients of AWS", MEASURED)
    names["ACCOUNTS"]["AKIDSTRANGER"] = "444455556666"
    with FaultyServer(names["app"]) as server:
        for access_key in ("AKIDEXAMPLE", "AKIDROTATED", "AKIDSTRANGER"):
            instances(ec2(server.url, access_key), ClientToken=KEY)
    assert replays(server) == [False, True, False]


def test_squares_key_in_the_body_counts():
    with FaultyServer(recipe("Read the key elsewhere")["app"], "500") as server:
        assert attempt(PYTHON_CLIENTS["squareup"], server, KEY) is None
    assert replays(server) == [False, True]


def test_paypals_header_counts():
    with FaultyServer(recipe("Read the key elsewhere")["app"], "lost") as server:
        call = PYTHON_CLIENTS["paypal-server-sdk, set up"]
        assert attempt(call, server, KEY) is None
    assert replays(server) == [False, True]
