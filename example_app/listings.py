"""What the pages show of the source: the lines of a guard, read from the view that runs."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path

from flask import Flask, current_app
from flask.typing import RouteCallable

from .worker import pay_in_steps

FOLDER = Path(__file__).parent


def register(app: Flask) -> None:
    """Let the templates show the guard of a view."""
    app.jinja_env.globals.update(
        guard_of=lambda name: listing(current_app.view_functions[name]),
        payment_in_steps=lambda: listing(pay_in_steps, whole=True),
    )


@cache
def listing(view: RouteCallable, *, whole: bool = False) -> tuple[str, list[str]]:
    """Return the file of a view, and its lines: the route, guard and name, or all but the text."""
    view = inspect.unwrap(view)
    file = Path(inspect.getfile(view)).relative_to(FOLDER.parent)
    head, _, rest = inspect.getsource(view).partition('\n    """')
    return file.as_posix(), head.splitlines() + whole * rest.splitlines()[1:]
