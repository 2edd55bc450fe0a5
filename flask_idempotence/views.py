"""The blueprint that issues tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, abort, current_app, jsonify, request

from .attempts import Attempt
from .engine import engine_of
from .errors import Refusal
from .proxies import actual

if TYPE_CHECKING:
    from flask import Response

BLUEPRINT = "idempotence"


def token_blueprint(url: str) -> Blueprint:
    """Return a blueprint whose one route issues a token."""
    blueprint = Blueprint(BLUEPRINT, __name__)
    blueprint.add_url_rule(url, "token", issue_token, methods=["GET"])
    return blueprint


def issue_token() -> Response:
    """Issue a token for the purpose in the query, if there is one; to HEAD, none."""
    app = actual(current_app)
    if request.method == "HEAD":
        return app.response_class(headers={"Cache-Control": "no-store"})
    engine = engine_of(app)
    try:
        token = engine.tokens.issue(app, actual(request), request.args.get("purpose"))
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
