"""Clients that others wrote for Python: each sends one POST to a URL, by its own rules.

Each takes the address of the server and a key, or None for what the client sends unasked, and
raises where the caller of the client would see an error.
"""

import asyncio
import subprocess
import warnings

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


def with_stripe_globals(url, key):
    stripe.api_key, stripe.api_base = "sk_test_1", url
    options = {"idempotency_key": key} if key else {}
    stripe.PaymentIntent.create(amount=50, currency="eur", **options)


def with_stripe(url, key):
    _through_stripe(url, key)


def with_stripe_set_up(url, key):
    _through_stripe(url, key, max_network_retries=3)


def _through_stripe(url, key, **options):
    client = stripe.StripeClient("sk_test_1", base_addresses={"api": url}, **options)
    client.v1.payment_intents.create(
        {"amount": 50, "currency": "eur"}, {"idempotency_key": key} if key else {}
    )


def with_openai(url, key):
    with openai.OpenAI(api_key="k", base_url=url) as client:
        client.chat.completions.create(model="m", messages=[], extra_headers=named(key))


def with_anthropic(url, key):
    with anthropic.Anthropic(api_key="k", base_url=url) as client:
        client.messages.create(model="m", max_tokens=1, messages=[], extra_headers=named(key))


def with_square(url, key):
    with httpx.Client() as plain:
        client = square.Square(token="t", base_url=url, httpx_client=plain)
        client.payments.create(source_id="card", idempotency_key=key or "")


def with_paypal(url, key):
    _through_paypal(url, key)


def with_paypal_set_up(url, key):
    options = {"max_retries": 3, "backoff_factor": 0.1, "retry_statuses": TRANSIENT}
    _through_paypal(url, key, retry_methods=["POST"], **options)


def _through_paypal(url, key, **rules):
    Configuration.environments[Environment.SANDBOX][Server.DEFAULT] = url
    credentials = ClientCredentialsAuthCredentials("id", "secret")
    client = PaypalServersdkClient(client_credentials_auth_credentials=credentials, **rules)
    options = {"paypal_request_id": key} if key else {}
    try:
        client.orders.create_order({"body": {"intent": "CAPTURE"}, **options})
    finally:
        client.config.http_client.session.close()


def with_boto3(url, key):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        client = boto3.client(
            "ec2",
            region_name="eu-west-1",
            endpoint_url=url,
            aws_access_key_id="AKIDEXAMPLE",
            aws_secret_access_key="secret",
        )
        token = {"ClientToken": key} if key else {}
        client.run_instances(ImageId="ami-1", MinCount=1, MaxCount=1, **token)
    client.close()


def with_requests(url, key):
    requests.post(f"{url}/payments", json=BODY, headers=named(key), timeout=20).raise_for_status()


def with_httpx(url, key):
    httpx.post(f"{url}/payments", json=BODY, headers=named(key), timeout=20).raise_for_status()


def with_urllib3(url, key):
    _through_urllib3(url, key, None)


def with_urllib3_set_up(url, key):
    # By default, no POST is sent again.
    options = {"allowed_methods": None, "status_forcelist": TRANSIENT, "backoff_factor": 0.1}
    _through_urllib3(url, key, urllib3.Retry(3, **options))


def _through_urllib3(url, key, retries):
    with urllib3.PoolManager() as pool:
        answer = pool.request(
            "POST", f"{url}/payments", json=BODY, headers=named(key), retries=retries
        )
        if answer.status >= 400:
            raise urllib3.exceptions.HTTPError(answer.status)


def with_tenacity(url, key):
    # The key is made outside: the function runs once for each attempt.
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(4), wait=tenacity.wait_fixed(0.1)
    )
    for attempt in retrying:
        with attempt:
            with_requests(url, key)


def with_aiohttp(url, key):
    asyncio.run(_with_aiohttp(aiohttp.ClientSession, url, key))


def with_aiohttp_retry(url, key):
    asyncio.run(_with_aiohttp(RetryClient, url, key))


def with_aiohttp_retry_set_up(url, key):
    options = {"statuses": TRANSIENT, "exceptions": {aiohttp.ClientError}}
    retry = ExponentialRetry(attempts=4, **options)
    asyncio.run(_with_aiohttp(lambda: RetryClient(retry_options=retry), url, key))


async def _with_aiohttp(make_client, url, key):
    sent = {"json": BODY, "headers": named(key)}
    async with make_client() as client, client.post(f"{url}/payments", **sent) as answer:
        answer.raise_for_status()


def with_curl(url, key):
    _curl(url, key, "--retry", "3")


def with_curl_set_up(url, key):
    _curl(url, key, "--retry", "3", "--retry-all-errors")


def _curl(url, key, *options):
    command = ["curl", "--silent", "--fail", *options, "--json", '{"amount": 50}']
    command += ["--header", f"Idempotency-Key: {key}"] if key else []
    subprocess.run([*command, f"{url}/payments"], check=True, capture_output=True, timeout=60)


PYTHON_CLIENTS = {
    "stripe, global functions": with_stripe_globals,
    "stripe": with_stripe,
    "stripe, set up": with_stripe_set_up,
    "openai": with_openai,
    "anthropic": with_anthropic,
    "squareup": with_square,
    "paypal-server-sdk": with_paypal,
    "paypal-server-sdk, set up": with_paypal_set_up,
    "boto3, EC2": with_boto3,
    "requests": with_requests,
    "httpx": with_httpx,
    "urllib3": with_urllib3,
    "urllib3, set up": with_urllib3_set_up,
    "tenacity": with_tenacity,
    "aiohttp": with_aiohttp,
    "aiohttp-retry": with_aiohttp_retry,
    "aiohttp-retry, set up": with_aiohttp_retry_set_up,
    "curl --retry": with_curl,
    "curl --retry --retry-all-errors": with_curl_set_up,
}
"""The clients by their names on the page."""
