"""The idempotency key by AWS Lambda Powertools, around the function that the view calls.

uv run --with "aws-lambda-powertools[aws-sdk,redis]" python benchmarks/overhead.py
"""

import importlib.util
import warnings

import redis
from flask import Flask, request
from measuring.timing import Variant
from modes.key_mode import TTL, first_requests, replays
from modes.order_app import answer, application

IS_INSTALLED = importlib.util.find_spec("aws_lambda_powertools") is not None


class Context:
    """What tells how long the function may still run, as Lambda would."""

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 30_000


def first(uri: str) -> Variant:
    return Variant("Powertools", _application(uri), first_requests)


def replay(uri: str) -> Variant:
    app = _application(uri)
    return Variant("Powertools", app, replays(app), replays=True)


def _application(uri: str) -> Flask:
    from aws_lambda_powertools.utilities.idempotency import (  # noqa: PLC0415 - it may be missing
        IdempotencyConfig,
        idempotent_function,
    )
    from aws_lambda_powertools.utilities.idempotency.persistence.cache import (  # noqa: PLC0415
        CachePersistenceLayer,
    )

    config = IdempotencyConfig(
        event_key_jmespath='["user", "key"]',
        payload_validation_jmespath="",
        expires_after_seconds=TTL,
        lambda_context=Context(),
    )
    with warnings.catch_warnings():
        # The name that is to be used is one for the class that is not.
        warnings.simplefilter("ignore", DeprecationWarning)
        store = CachePersistenceLayer(client=redis.Redis.from_url(uri))

    @idempotent_function(data_keyword_argument="event", config=config, persistence_store=store)
    def work(*, event: dict) -> dict:  # noqa: ARG001 - the library takes it
        return answer()

    def view() -> dict:
        headers = request.headers
        key = {"user": headers["Authorization"], "key": headers["Idempotency-Key"]}
        return work(event={**key, "body": request.get_json()})

    return application("Powertools", view)
