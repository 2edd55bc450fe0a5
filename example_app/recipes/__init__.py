"""The techniques of a database against duplicates, each beside a guard.

select_then_insert   inserts: the check that lets duplicates through
unique_index         inserts: the second one is refused
get_or_create        inserts: the second one gets the row of the first
deduplication_table  messages: the id is inserted in the transaction of the effect
optimistic_lock      computed updates: a write from an old version is refused
pessimistic_lock     computed updates: a later transaction waits
state_machine        changes of a state: only from the state before
counter              at most N times
payments             a lock and a unique index together
models, sessions     the tables, and the database
deadlocks            the retry of a transaction that a deadlock ended
pages, answers       the page with two forms for each, form fields and responses
"""

from __future__ import annotations

from flask import Blueprint, Flask
from sqlalchemy.exc import DBAPIError
from werkzeug.exceptions import HTTPException

from flask_idempotence import ConfigurationError

from . import (
    counter,
    deduplication_table,
    get_or_create,
    optimistic_lock,
    pages,
    payments,
    pessimistic_lock,
    select_then_insert,
    state_machine,
    unique_index,
)
from .answers import explain, not_here, show
from .deadlocks import explain_deadlock
from .sessions import RecipeDatabase, recipe_database

__all__ = ["register"]

MODULES = (
    pages,
    select_then_insert,
    unique_index,
    get_or_create,
    deduplication_table,
    optimistic_lock,
    pessimistic_lock,
    state_machine,
    counter,
    payments,
)

blueprint = Blueprint("recipes", __name__, url_prefix="/recipes")
blueprint.before_request(lambda: recipe_database().prepare())
blueprint.after_request(show)
blueprint.register_error_handler(HTTPException, explain)
blueprint.register_error_handler(ConfigurationError, not_here)
blueprint.register_error_handler(DBAPIError, explain_deadlock)
for module in MODULES:
    blueprint.register_blueprint(module.blueprint)


def register(app: Flask, url: str) -> None:
    """Add the recipes to an application.

    Args:
        app: the application.
        url: SQLAlchemy's URL of their database.
    """
    database = app.extensions["example_recipes"] = RecipeDatabase(url)
    app.register_blueprint(blueprint)

    @app.teardown_appcontext
    def end(_: BaseException | None) -> None:
        database.session.remove()
