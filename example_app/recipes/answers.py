"""Form fields, and answers: the page for a browser, JSON for scripts."""

from __future__ import annotations

from typing import Any

from flask import abort, jsonify, make_response, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from flask_idempotence import ConfigurationError

from ..answers import wants_page
from .pages import page_saying

LONGEST = 64
MOST = 1000


def text_field(name: str) -> str:
    """Return a field of the form, or answer with 400."""
    text = request.form.get(name, "").strip()
    return text if 0 < len(text) <= LONGEST else abort(400, f"{name}: 1 to {LONGEST} characters.")


def number_field(name: str, least: int = 1) -> int:
    """Return a number from the form, or answer with 400."""
    number = request.form.get(name, type=int)
    if number is None or not least <= number <= MOST:
        abort(400, f"{name}: a whole number from {least} to {MOST}.")
    return number


def answer(status: int, /, *, error: str | None = None, **values: Any) -> ResponseReturnValue:
    """Return the values, with an error if there is one."""
    if not wants_page():
        return jsonify(values if error is None else {"error": error, **values}), status
    text = ", ".join(f"{name} {value}" for name, value in values.items())
    return page_saying(" ".join(filter(None, (f"{status}:", error, text)))), status


def explain(error: HTTPException) -> ResponseReturnValue:
    """Show a browser the page with a refusal above it; scripts get the plain refusal."""
    if not wants_page():
        return error
    response = make_response(page_saying(f"{error.code}: {error.description}"), error.code)
    for name, value in error.get_headers():
        if name == "Retry-After":
            response.headers[name] = value
    return response


def not_here(error: ConfigurationError) -> ResponseReturnValue:
    """Answer 501: a recipe with `within=` needs the guards' table in the same database."""
    return answer(501, error=str(error))
