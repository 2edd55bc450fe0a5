"""What type checkers make of the caller's side: nothing here runs."""

from typing import assert_type

import httpx
import requests

from flask_idempotence.client import RETRIED_STATUSES, Retries, new_key, was_replayed
from flask_idempotence.client.httpx import AsyncIdempotentTransport, IdempotentTransport
from flask_idempotence.client.requests import IdempotentAdapter

retries = Retries(attempts=3, seconds=10, statuses=RETRIED_STATUSES | {409})
session = requests.Session()
session.mount("https://", IdempotentAdapter(retries, header="X-Key", quoted=True))
client = httpx.Client(transport=IdempotentTransport(retries=retries))
async_client = httpx.AsyncClient(transport=AsyncIdempotentTransport(httpx.AsyncHTTPTransport()))

assert_type(new_key(), str)
assert_type(was_replayed(session.post("https://shop.test")), bool)
assert_type(was_replayed(client.post("https://shop.test")), bool)

# Errors, all of them: where mypy finds none, the ignore is unused, which fails.
Retries(attempts="3")  # type: ignore
Retries().attempts = 4  # type: ignore
httpx.AsyncClient(transport=IdempotentTransport())  # type: ignore
httpx.Client(transport=AsyncIdempotentTransport())  # type: ignore
IdempotentAdapter(IdempotentTransport())  # type: ignore
