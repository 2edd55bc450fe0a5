"""A one-time token for a test client."""

from __future__ import annotations

from flask import Response, current_app, request
from flask.testing import FlaskClient

from ..engine.engine import engine_of
from ..engine.tokens import issue_token
from ..request.proxies import actual
from ..request.tokens import PURPOSE_RULE, is_purpose

_ASKED = "flask_idempotence.testing.token"


def token_for(client: FlaskClient, purpose: str | None = None) -> str:
    """Return a one-time token for a test client, as the page of a form would hold it.

    It is issued in a request of that client, with its cookies, session and headers, so that it is
    bound to the signed-in user. It needs no token URL.

    Args:
        client: a test client of an application, `app.test_client()`.
        purpose: the purpose of `one_time_token(purpose)`; None for no purpose.

    Raises:
        TypeError: `client` is no Flask test client.
        ValueError: the purpose is not of 1 to 64 letters, digits, `_`, `.` and `-`.
        RuntimeError: the application answered before a token could be issued: a `before_request`
            function refused the client, or the store did not answer.
        ConfigurationError: the extension is not registered on the application.
    """
    if not isinstance(client, FlaskClient):
        raise TypeError(f"token_for() takes a test client, app.test_client(), not {client!r}.")
    if purpose is not None and not is_purpose(purpose):
        raise ValueError(PURPOSE_RULE)
    app, tokens = client.application, list[str]()
    path = engine_of(app).config.token_url or "/"

    def issue() -> Response | None:
        if _ASKED not in request.environ:
            return None
        current = actual(current_app)
        tokens.append(issue_token(current, actual(request), purpose))
        return current.response_class(status=204)

    # After the functions that sign the user in; without a route, which cannot be added any more.
    functions = app.before_request_funcs.setdefault(None, [])
    functions.append(issue)
    try:
        answer = client.get(path, environ_overrides={_ASKED: "1"}, buffered=True)
    finally:
        functions.remove(issue)
    if not tokens:
        raise RuntimeError(
            f"GET {path} was answered with {answer.status} before a token could be issued. If a "
            "before_request function refuses the client, sign it in first."
        )
    return tokens[0]
