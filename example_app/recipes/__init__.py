"""Recipes: what a database can do against duplicates by itself, each beside a guard.

unique_index         inserts: the second one is refused
deduplication_table  messages: what has been handled is written down in the same transaction
optimistic_lock      computed updates: whoever has read an old version loses
pessimistic_lock     computed updates: whoever comes later waits
state_machine        changes of a state: only from the state before
counter              at most so often
payments             a lock and a unique index together
models, sessions     the tables, and where they are
pages, answers       the page with a form for each, and how the routes answer
"""

from __future__ import annotations

from flask import Blueprint, Flask
from werkzeug.exceptions import HTTPException

from flask_idempotence import ConfigurationError

from . import (
    counter,
    deduplication_table,
    optimistic_lock,
    pages,
    payments,
    pessimistic_lock,
    state_machine,
    unique_index,
)
from .answers import explain, not_here
from .sessions import RecipeDatabase, recipe_database

__all__ = ["register"]

MODULES = (
    pages,
    unique_index,
    deduplication_table,
    optimistic_lock,
    pessimistic_lock,
    state_machine,
    counter,
    payments,
)

blueprint = Blueprint("recipes", __name__, url_prefix="/recipes")
blueprint.before_request(lambda: recipe_database().prepare())
blueprint.register_error_handler(HTTPException, explain)
blueprint.register_error_handler(ConfigurationError, not_here)
for module in MODULES:
    blueprint.register_blueprint(module.blueprint)


def register(app: Flask, url: str) -> None:
    """Add the recipes to an application.

    Args:
        app: the application.
        url: SQLAlchemy's, of their database.
    """
    database = app.extensions["example_recipes"] = RecipeDatabase(url)
    app.register_blueprint(blueprint)

    @app.teardown_appcontext
    def end(_: BaseException | None) -> None:
        database.session.remove()
