"""aws-lambda-powertools, around the function that a Flask view calls."""

import os
import warnings

import redis
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyValidationError,
)
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer
from flask import Flask, abort, request
from payment import Refused, pay, user_of

VALIDATES = os.environ.get("PEERS_VARIANT") == "validating"


class Context:
    """What tells how long the function may still run, as Lambda would."""

    @staticmethod
    def get_remaining_time_in_millis():
        return round(float(os.environ.get("PEERS_LEASE", "30")) * 1000)


def payment(*, event):
    try:
        return pay(event["user"], event["body"]["amount"])
    except Refused as refused:
        abort(refused.status)


def make(guarded):
    function = _guard(payment) if guarded else payment
    app = Flask("powertools")

    @app.post("/payments")
    def payments():
        user = user_of(request.headers.get("Authorization"))
        key = request.headers.get("Idempotency-Key")
        return function(event={"user": user, "key": key, "body": request.get_json()}), 201

    @app.errorhandler(IdempotencyAlreadyInProgressError)
    def in_progress(_error):
        return {"error": "in progress"}, 409

    @app.errorhandler(IdempotencyValidationError)
    def another_payload(_error):
        return {"error": "another payload"}, 422

    return app


def _guard(function):
    config = IdempotencyConfig(
        event_key_jmespath='["user", "key"]',
        payload_validation_jmespath="body" if VALIDATES else "",
        expires_after_seconds=86400,
        lambda_context=Context(),
    )
    with warnings.catch_warnings():
        # The name that is to be used is one for the class that is not.
        warnings.simplefilter("ignore", DeprecationWarning)
        store = CachePersistenceLayer(client=redis.Redis.from_url(os.environ["PEERS_REDIS"]))
    return idempotent_function(
        function, data_keyword_argument="event", config=config, persistence_store=store
    )


def guarded():
    return make(guarded=True)
