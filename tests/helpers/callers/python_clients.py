"""Clients that others wrote for Python: each sends one POST to a URL, by its own rules.

Each takes the address of the server and a key, or None for what the client sends unasked, and
raises where the caller of the client would see an error.
"""

import asyncio
import subprocess
import warnings
from functools import partial

import aiohttp
import anthropic
import boto3
import httpx
import openai
import requests
import square
import stripe
import tenacity
import urllib3
from aiohttp_retry import ExponentialRetry, RetryClient
from paypalserversdk.configuration import Configuration, Environment, Server
from paypalserversdk.http.auth.o_auth_2 import ClientCredentialsAuthCredentials
from paypalserversdk.paypal_serversdk_client import PaypalServersdkClient

BODY = {"amount": 50}
TRANSIENT = {409, 425, 429, 500, 502, 503, 504}


def named(key):
    return {"Idempotency-Key": key} if key else {}


def through_stripes_globals(url, key):
    stripe.api_key, stripe.api_base = "sk_test_1", url
    options = {"idempotency_key": key} if key else {}
    stripe.PaymentIntent.create(amount=50, currency="eur", **options)


def through_stripe(url, key, **options):
    client = stripe.StripeClient("sk_test_1", base_addresses={"api": url}, **options)
    client.v1.payment_intents.create(
        {"amount": 50, "currency": "eur"}, {"idempotency_key": key} if key else {}
    )


def through_openai(url, key):
    with openai.OpenAI(api_key="k", base_url=url) as client:
        client.chat.completions.create(model="m", messages=[], extra_headers=named(key))


def through_anthropic(url, key):
    with anthropic.Anthropic(api_key="k", base_url=url) as client:
        client.messages.create(model="m", max_tokens=1, messages=[], extra_headers=named(key))


def through_square(url, key):
    with httpx.Client() as plain:
        client = square.Square(token="t", base_url=url, httpx_client=plain)
        client.payments.create(source_id="card", idempotency_key=key or "")


def through_paypal(url, key, **rules):
    Configuration.environments[Environment.SANDBOX][Server.DEFAULT] = url
    credentials = ClientCredentialsAuthCredentials("id", "secret")
    client = PaypalServersdkClient(client_credentials_auth_credentials=credentials, **rules)
    options = {"paypal_request_id": key} if key else {}
    try:
        client.orders.create_order({"body": {"intent": "CAPTURE"}, **options})
    finally:
        client.config.http_client.session.close()


def through_boto3(url, key):
    account = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "secret"}
    token = {"ClientToken": key} if key else {}
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        client = boto3.client("ec2", region_name="eu-west-1", endpoint_url=url, **account)
        client.run_instances(ImageId="ami-1", MinCount=1, MaxCount=1, **token)
    client.close()


def through(library, url, key):
    sent = {"json": BODY, "headers": named(key), "timeout": 20}
    library.post(f"{url}/payments", **sent).raise_for_status()


def through_urllib3(url, key, **rules):
    retries = urllib3.Retry(3, **rules) if rules else None
    with urllib3.PoolManager() as pool:
        sent = {"json": BODY, "headers": named(key)}
        answer = pool.request("POST", f"{url}/payments", retries=retries, **sent)
        if answer.status >= 400:
            raise urllib3.exceptions.HTTPError(answer.status)


def through_tenacity(url, key):
    # The key is made outside: the function runs once for each attempt.
    rules = {"stop": tenacity.stop_after_attempt(4), "wait": tenacity.wait_fixed(0.1)}
    for attempt in tenacity.Retrying(**rules):
        with attempt:
            through(requests, url, key)


def through_aiohttp(make_client, url, key, **options):
    async def send():
        sent = {"json": BODY, "headers": named(key)}
        client = make_client(**options)
        async with client, client.post(f"{url}/payments", **sent) as answer:
            answer.raise_for_status()

    asyncio.run(send())


def through_aiohttp_retry_set_up(url, key):
    options = {"statuses": TRANSIENT, "exceptions": {aiohttp.ClientError}}
    through_aiohttp(RetryClient, url, key, retry_options=ExponentialRetry(attempts=4, **options))


def through_curl(url, key, *options):
    command = ["curl", "--silent", "--fail", "--retry", "3", *options]
    command += ["--json", '{"amount": 50}']
    command += ["--header", f"Idempotency-Key: {key}"] if key else []
    subprocess.run([*command, f"{url}/payments"], check=True, capture_output=True, timeout=60)


BACKOFF = {"backoff_factor": 0.1}

PYTHON_CLIENTS = {
    "stripe, global functions": through_stripes_globals,
    "stripe": through_stripe,
    "stripe, set up": partial(through_stripe, max_network_retries=3),
    "openai": through_openai,
    "anthropic": through_anthropic,
    "squareup": through_square,
    "paypal-server-sdk": through_paypal,
    "paypal-server-sdk, set up": partial(
        through_paypal, **BACKOFF, max_retries=3, retry_statuses=TRANSIENT, retry_methods=["POST"]
    ),
    "boto3, EC2": through_boto3,
    "requests": partial(through, requests),
    "httpx": partial(through, httpx),
    "urllib3": through_urllib3,
    # By default, no POST is sent again.
    "urllib3, set up": partial(
        through_urllib3, **BACKOFF, allowed_methods=None, status_forcelist=TRANSIENT
    ),
    "tenacity": through_tenacity,
    "aiohttp": partial(through_aiohttp, aiohttp.ClientSession),
    "aiohttp-retry": partial(through_aiohttp, RetryClient),
    "aiohttp-retry, set up": through_aiohttp_retry_set_up,
    "curl --retry": through_curl,
    "curl --retry --retry-all-errors": lambda url, key: through_curl(
        url, key, "--retry-all-errors"
    ),
}
