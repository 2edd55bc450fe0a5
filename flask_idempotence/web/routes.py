"""The blueprint: a route that issues tokens, and one that serves the script for browsers."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from importlib import resources
from typing import TYPE_CHECKING, Any

from flask import Blueprint, abort, current_app, has_request_context, jsonify, request, url_for

from ..engine import tokens
from ..engine.engine import engine_of
from ..guards.placement import Fault
from ..request.proxies import actual, current_context
from ..request.tokens import PURPOSE_RULE

if TYPE_CHECKING:
    from flask import Flask, Response
    from werkzeug.routing import Rule

BLUEPRINT = "idempotence"
TOKEN_ENDPOINT = f"{BLUEPRINT}.token"
SCRIPT_ENDPOINT = f"{BLUEPRINT}.static"

SCRIPT = "idempotence.js"
_SCRIPT_URL = f"/_{BLUEPRINT}/<filename>"
_SCRIPTS = (SCRIPT, "idempotence.mjs")
_FOR_A_YEAR = "public, max-age=31536000, immutable"


def make_blueprint(app: Flask, token_url: str | None) -> Blueprint:
    blueprint = Blueprint(BLUEPRINT, __name__)
    places: list[dict[str, Any]] = [{}]
    if app.url_map.host_matching:
        places = [{"host": "<idempotence_host>"}]
    elif app.subdomain_matching:
        places = [{}, {"subdomain": "<idempotence_subdomain>"}]
    for place in places:
        if token_url is not None:
            blueprint.add_url_rule(token_url, "token", issue_token, methods=["GET"], **place)
        blueprint.add_url_rule(_SCRIPT_URL, "static", serve_script, methods=["GET"], **place)
    return blueprint


def url_on_this_host(endpoint: str, **values: Any) -> str:
    """Return the path of one of our routes on the host of the request.

    On another host, a browser would take it for another site and send no cookies.
    """
    adapter = current_context().url_adapter if has_request_context() else None
    if adapter is not None and adapter.map.host_matching:
        values["idempotence_host"] = adapter.server_name
    elif adapter is not None and current_app.subdomain_matching and adapter.subdomain:
        values["idempotence_subdomain"] = adapter.subdomain
    return url_for(endpoint, **values)


def token_url_faults(app: Flask) -> Iterator[Fault]:
    """Find routes of the application that collide with the token URL; each text names both."""
    for ours in app.url_map.iter_rules():
        if ours.endpoint != TOKEN_ENDPOINT:
            continue
        for rule in app.url_map.iter_rules():
            gets = rule.methods is None or "GET" in rule.methods
            if gets and rule.endpoint != TOKEN_ENDPOINT and _place(rule) == _place(ours):
                text = (
                    f"Both {TOKEN_ENDPOINT!r} (IDEMPOTENCE_TOKEN_URL) and {rule.endpoint!r} "
                    f"answer GET {rule.rule}. Set IDEMPOTENCE_TOKEN_URL to another path, or to "
                    "None."
                )
                yield from (Fault(TOKEN_ENDPOINT, text), Fault(rule.endpoint, text))


def _place(rule: Rule) -> tuple[str, str | None]:
    anywhere = rule.subdomain is not None and rule.subdomain.startswith("<")
    return rule.rule, "<any>" if anywhere else rule.subdomain


def issue_token(**_: str) -> Response:
    app = actual(current_app)
    if request.method == "HEAD":
        return app.response_class(headers={"Cache-Control": "no-store"})
    engine = engine_of(app)
    try:
        purpose = request.args.get("purpose")
        token = tokens.issue_token(engine, actual(request), purpose)
    except ValueError:  # bytes that are no text raise it, too
        abort(400, PURPOSE_RULE)
    response = jsonify(
        token=token,
        expires_in=int(engine.config.token_ttl),
        header=engine.config.token_header,
        field=engine.config.token_field,
    )
    response.headers["Cache-Control"] = "no-store"
    return response


def serve_script(filename: str, **_: str) -> Response:
    """Serve the script, cacheable for a year where the address names its present version."""
    if filename not in _SCRIPTS:
        abort(404)
    # A machine's own table may have a type with which a browser refuses to run it. It is not sent
    # as a file: with X-Sendfile, the server in front would search for it.
    response = current_app.response_class(_content_of(filename), mimetype="text/javascript")
    version = version_of(filename)
    is_present = request.args.get("v") == version
    response.headers["Cache-Control"] = _FOR_A_YEAR if is_present else "no-cache"
    response.set_etag(version)
    return response.make_conditional(request)  # type: ignore[return-value]  # it returns itself


@functools.cache
def version_of(filename: str) -> str:
    """Return the version of a script for its address: a hash of its content."""
    return hashlib.sha256(_content_of(filename)).hexdigest()[:12]


@functools.cache
def _content_of(filename: str) -> bytes:
    return resources.files(__package__).joinpath("static", filename).read_bytes()
