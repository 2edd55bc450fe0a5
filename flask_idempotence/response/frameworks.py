"""Refusals under frameworks that answer HTTP errors in their own ways.

Flask-RESTful, Flask-RESTX and flask-smorest look for a payload in the error's `data`. APIFlask
passes the status and its name on, and needs a handler.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from flask import Flask, current_app, request
from werkzeug.exceptions import HTTPException


def payload_of(
    error: HTTPException, slug: str, problem: dict[str, object]
) -> dict[str, object] | None:
    """Return the payload of an error for the framework that looks for one, or None.

    None, too, where a handler of the application's Flask-RESTX API answers: the payload would
    replace its answer.
    """
    if not request:
        return None
    text, shown = problem["detail"], ("type", "title", "status")
    for api in _apis_of(current_app):
        if api.owns_endpoint(request.endpoint or ""):
            handlers = tuple(getattr(api, "_own_and_child_error_handlers", ()))
            is_handled = isinstance(error, handlers)
            return None if is_handled else {"message": text, **{n: problem[n] for n in shown}}
    if "flask-smorest" in current_app.extensions:
        return {"message": text, "errors": {"idempotence": [slug]}}
    return None


def _apis_of(app: Flask) -> Iterator[Any]:
    # Each wraps its own router of errors around the previous one.
    handle: Any = app.handle_user_exception
    while isinstance(handle, partial):
        api = getattr(handle.func, "__self__", None)
        if hasattr(api, "owns_endpoint"):
            yield api
        handle = handle.args[0] if handle.args else None


def register_with_apiflask(app: Flask, refusal: type[HTTPException]) -> None:
    """Have APIFlask show a refusal's text and type, by the application's `error_processor`.

    Where the application has a handler of its own for all HTTP errors, that stays the one.
    """
    handlers = app.error_handler_spec[None][None]
    general = handlers.get(HTTPException)
    is_own = getattr(general, "__module__", "").partition(".")[0] == "apiflask"
    bases = refusal.__mro__[: refusal.__mro__.index(HTTPException)]
    if is_own and handlers.keys().isdisjoint(bases):
        handlers[refusal] = _answer_as_apiflask


def _answer_as_apiflask(refusal: Any) -> Any:
    from apiflask import HTTPError  # noqa: PLC0415 - in use by the application

    headers = dict(refusal.get_headers())
    del headers["Content-Type"]
    detail = refusal.problem
    error = HTTPError(409, detail.pop("detail"), detail, headers)
    error.status_code = refusal.code  # it takes those of errors only
    app: Any = current_app
    return app.error_callback(error)
