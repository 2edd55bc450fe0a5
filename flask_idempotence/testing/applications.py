"""What the tests of an application need: a token, an empty store, a database for `within=`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from flask import Flask, Response, current_app, request
from flask.testing import FlaskClient

from ..engine.engine import engine_of
from ..engine.tokens import issue_token
from ..request.proxies import actual
from ..request.tokens import check_purpose
from ..stores.base import inspectable
from ..stores.uris import open_store

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
    check_purpose(purpose)
    app, tokens = client.application, list[str]()
    path = engine_of(app).config.token_url or "/"

    def issue() -> Response | None:
        if _ASKED not in request.environ:
            return None
        current = actual(current_app)
        tokens.append(issue_token(engine_of(current), actual(request), purpose))
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


def clear_store(app: Flask) -> int:
    """Remove the claims, records and tokens of an application: the keys under its own prefix.

    Args:
        app: an application on which the extension is registered.

    Returns:
        How many keys were removed.

    Raises:
        ConfigurationError: its store cannot be listed.
    """
    engine = engine_of(app)
    return inspectable(engine.store).clear(f"{engine.config.prefix}:")


@contextmanager
def temporary_database() -> Iterator[str]:
    """Make an SQLite file with the extension's table for a block, and give its URL.

    For a view with `within=`: set both the session's database and `IDEMPOTENCE_STORAGE_URI` to
    the URL. Each block has a new file, in a directory that is removed with it.

    Example:
        with temporary_database() as url:
            app = create_app(SQLALCHEMY_DATABASE_URI=url, IDEMPOTENCE_STORAGE_URI=url)

    Raises:
        ConfigurationError: SQLAlchemy is not installed.
    """
    # An application may still have the file open; Windows would not remove it then.
    with TemporaryDirectory(prefix="idempotence-", ignore_cleanup_errors=True) as directory:
        url = f"sqlite:///{directory}/test.db"
        open_store(url, {}).create_table()  # type: ignore[attr-defined]  # it is an SqlStore
        yield url
