"""A small shop with every guard in it. Start it with `flask --app example_app run`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from flask import Flask, Response

from . import checkout, errors, lab, languages, ledger, listings, payments, recipes, shop, steps
from .bad_network import BadNetwork
from .database import Database, RowNumber
from .extensions import idempotence

# Public: set SECRET_KEY wherever anyone but you can connect.
DEVELOPMENT_KEY = "for development only"

# The library's script and fields need no exception from a strict policy.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)


def create_app(**settings: Any) -> Flask:
    """Create the application.

    Args:
        settings: configuration, which overrides the environment, such as
            `IDEMPOTENCE_STORAGE_URI="redis://localhost:6379/0"`.
    """
    app = Flask(__name__)
    app.config.from_mapping(
        SECRET_KEY=os.environ.get("SECRET_KEY", DEVELOPMENT_KEY),
        EXAMPLE_DATABASE=os.environ.get(
            "EXAMPLE_DATABASE", str(Path(app.instance_path, "shop.sqlite3"))
        ),
        EXAMPLE_RECIPES_DATABASE=os.environ.get("EXAMPLE_RECIPES_DATABASE"),
        IDEMPOTENCE_STORAGE_URI=os.environ.get("IDEMPOTENCE_STORAGE_URI", "memory://"),
    )
    app.config.from_prefixed_env()  # FLASK_IDEMPOTENCE_TOKEN_TTL=60, for one
    app.config.from_mapping(settings)

    app.url_map.converters["int"] = RowNumber
    idempotence.init_app(app)
    database = app.extensions["example_database"] = Database(app.config["EXAMPLE_DATABASE"])
    for module in (shop, checkout, payments, steps, ledger, lab):
        app.register_blueprint(module.blueprint)
    recipes.register(app, recipes_url(app))
    lab.listen(app)
    errors.register(app)
    languages.register(app)
    listings.register(app)
    app.wsgi_app = BadNetwork(app.wsgi_app, database)  # type: ignore[method-assign]

    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.after_request(be_strict)
    app.context_processor(lambda: {"pid": os.getpid(), "store": store_of(app)})
    return app


def be_strict(response: Response) -> Response:
    """Allow the browser to run and load our own files only."""
    response.headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    return response


def recipes_url(app: Flask) -> str:
    """Return SQLAlchemy's URL of the recipes' database.

    The configured database comes first, then that of the guards' table, then a file.
    """
    if chosen := app.config["EXAMPLE_RECIPES_DATABASE"]:
        return str(chosen)
    if store_of(app).startswith(("sqlite", "postgresql", "mysql", "mariadb")):
        return str(app.config["IDEMPOTENCE_STORAGE_URI"])
    return f"sqlite:///{Path(app.config['EXAMPLE_DATABASE']).with_name('recipes.sqlite3')}"


def store_of(app: Flask) -> str:
    """Return the scheme of the store's URI; the rest of it may contain a password."""
    return str(app.config["IDEMPOTENCE_STORAGE_URI"]).partition(":")[0]
