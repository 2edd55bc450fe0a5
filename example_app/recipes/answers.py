"""Form fields, and answers: JSON for scripts, and a page for browsers."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from flask import Response, abort, jsonify, make_response, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from flask_idempotence import ConfigurationError

from ..answers import wants_page
from ..languages import gettext
from .pages import Answer, form_urls, page

LONGEST = 64
MOST = 1000


def text_field(name: str) -> str:
    """Return a field of the form, or abort with 400."""
    text = request.form.get(name, "").strip()
    return text if 0 < len(text) <= LONGEST else abort(400, f"{name}: 1 to {LONGEST} characters.")


def number_field(name: str, least: int = 1) -> int:
    """Return a number from the form, or abort with 400."""
    number = request.form.get(name, type=int)
    if number is None or not least <= number <= MOST:
        abort(400, f"{name}: a whole number from {least} to {MOST}.")
    return number


def answer(status: int, /, *, error: str | None = None, **values: Any) -> ResponseReturnValue:
    """Return the values, with an error if there is one."""
    return jsonify(values if error is None else {"error": error, **values}), status


def explain(error: HTTPException) -> ResponseReturnValue:
    """Return an error for the page; a script gets the plain error."""
    if not shows_page():
        return error
    response = make_response(answer(error.code or 500, error=error.description))
    for name, value in error.get_headers():
        if name == "Retry-After":
            response.headers[name] = value
    return response


def not_here(error: ConfigurationError) -> ResponseReturnValue:
    """Answer 501: a recipe with `within=` needs the guards' table in the same database."""
    return answer(501, error=str(error))


# After the guard, which stores the answer and replays it: only the response says which one it is.
def show(response: Response) -> Response:
    """Show a browser the page, with the answer beside its form."""
    if shows_page() and response.is_json:
        response.set_data(page(read(response)))
        response.mimetype = "text/html"
    return response


def shows_page() -> bool:
    """Return whether a browser has sent a form of the page."""
    return request.method == "POST" and wants_page() and request.path in form_urls()


def read(response: Response) -> Answer:
    """Return the contents of an answer in JSON."""
    values = response.get_json()
    error = values.pop("error", None)
    texts = [
        gettext("%(name)s: %(value)s") % {"name": gettext(name), "value": word(value)}
        for name, value in values.items()
    ]
    text = gettext(", ").join(texts)
    status = HTTPStatus(response.status_code)
    return Answer(
        status=f"{status} {status.phrase}",
        outcome="wrong" if values.get("duplicates") else "neutral" if error else "right",
        is_replay="Idempotent-Replayed" in response.headers,
        text=" ".join(filter(None, (error and gettext(error), text))),
    )


def word(value: Any) -> Any:
    """Return a value in words."""
    return gettext(("no", "yes")[value]) if isinstance(value, bool) else value
