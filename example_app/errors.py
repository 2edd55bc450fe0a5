"""The pages of errors, in the shop's layout."""

from __future__ import annotations

from flask import Flask, render_template
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from .answers import wants_page
from .languages import gettext

TEXTS = {
    404: ("This page does not exist", "Check the address. The order may have been deleted."),
    405: ("This page cannot be opened directly", "It accepts a form of the shop only."),
    500: ("Something went wrong", "The shop has logged the error. Nothing else is affected."),
}
"""A title and an explanation for each status; other errors have their own."""


def register(app: Flask) -> None:
    """Show errors of an application as pages."""
    app.register_error_handler(HTTPException, error_page)


def error_page(error: HTTPException) -> ResponseReturnValue:
    """Return the page of an error, with the headers of its plain response; a script gets that."""
    response = error.get_response()
    if wants_page():
        title, text = TEXTS.get(response.status_code, (error.name, error.description))
        text, title = gettext(str(text)), gettext(title)
        page = render_template("error.html", title=title, text=text, status=error.code)
        response.set_data(page)
        response.mimetype = "text/html"
    return response
