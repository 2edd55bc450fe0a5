"""The blueprint that issues tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask import Blueprint, abort, current_app, jsonify, request

from .attempts import Attempt
from .engine import engine_of
from .errors import ConfigurationError, Refusal
from .proxies import actual
from .tokens import PURPOSE_RULE

if TYPE_CHECKING:
    from flask import Flask, Response
    from werkzeug.routing import Rule

BLUEPRINT = "idempotence"
ENDPOINT = f"{BLUEPRINT}.token"


def token_blueprint(app: Flask, url: str) -> Blueprint:
    """Return a blueprint whose one route issues a token, on any host of the application."""
    blueprint = Blueprint(BLUEPRINT, __name__)
    hosts: dict[str, Any] = {"host": "<idempotence_host>"} if app.url_map.host_matching else {}
    blueprint.add_url_rule(url, "token", issue_token, methods=["GET"], **hosts)
    return blueprint


def check_token_url(app: Flask) -> None:
    """Look for a route of the application that answers where ours does.

    Raises:
        ConfigurationError: names both.
    """
    for ours in app.url_map.iter_rules():
        if ours.endpoint != ENDPOINT:
            continue
        for rule in app.url_map.iter_rules():
            if rule.endpoint != ENDPOINT and _place(rule) == _place(ours) and _gets(rule):
                raise ConfigurationError(
                    f"Both {ENDPOINT!r} (IDEMPOTENCE_TOKEN_URL) and {rule.endpoint!r} answer GET "
                    f"{rule.rule}. Set IDEMPOTENCE_TOKEN_URL to another path, or to None."
                )


def _place(rule: Rule) -> tuple[str, str | None]:
    return rule.rule, rule.subdomain


def _gets(rule: Rule) -> bool:
    return rule.methods is None or "GET" in rule.methods


def issue_token(**_: str) -> Response:
    """Issue a token for the purpose in the query, if there is one; to HEAD, none."""
    app = actual(current_app)
    if request.method == "HEAD":
        return app.response_class(headers={"Cache-Control": "no-store"})
    engine = engine_of(app)
    try:
        purpose = request.args.get("purpose")
        token = engine.tokens.issue(app, actual(request), purpose)
    except UnicodeDecodeError:
        abort(400, PURPOSE_RULE)
    except ValueError as error:
        abort(400, str(error))
    except Refusal as refusal:
        engine.announce(refusal, Attempt(app, "token", request.endpoint))
        raise
    response = jsonify(
        token=token,
        expires_in=int(engine.config.token_ttl),
        header=engine.config.token_header,
        field=engine.config.token_field,
    )
    response.headers["Cache-Control"] = "no-store"
    return response
