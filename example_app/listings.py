"""What the pages show of the source: the lines of a guard, read from the view that runs."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path

from flask import Flask, current_app
from flask.typing import RouteCallable

FOLDER = Path(__file__).parent


def register(app: Flask) -> None:
    """Let the templates show the guard of a view."""
    app.jinja_env.globals["guard_of"] = lambda name: listing(current_app.view_functions[name])


@cache
def listing(view: RouteCallable) -> tuple[str, list[str]]:
    """Return the file of a view, and its lines above the docstring: the route, guard and name."""
    view = inspect.unwrap(view)
    file = Path(inspect.getfile(view)).relative_to(FOLDER.parent)
    return file.as_posix(), inspect.getsource(view).partition('\n    """')[0].splitlines()
