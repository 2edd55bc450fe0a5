"""A small shop that takes each order once: start it with `flask --app example_app run`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from flask import Flask, Response

from . import checkout, lab, ledger, payments, recipes, shop
from .bad_network import BadNetwork
from .database import Database
from .extensions import idempotence

# Known to everybody who reads this file. Set SECRET_KEY wherever anyone but you can connect.
DEVELOPMENT_KEY = "for development only"

# Nothing inline, nothing from elsewhere: the library's script and fields need no exception.
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
    """Make the application.

    Args:
        settings: configuration that wins over the environment, such as
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

    idempotence.init_app(app)
    database = app.extensions["example_database"] = Database(app.config["EXAMPLE_DATABASE"])
    for module in (shop, checkout, payments, ledger, lab):
        app.register_blueprint(module.blueprint)
    recipes.register(app, recipes_url(app))
    lab.listen(app)
    app.wsgi_app = BadNetwork(app.wsgi_app, database)  # type: ignore[method-assign]

    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.after_request(be_strict)
    app.context_processor(lambda: {"pid": os.getpid(), "store": store_of(app)})
    return app


def be_strict(response: Response) -> Response:
    """Tell the browser to run and load nothing that is not ours."""
    response.headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    return response


def recipes_url(app: Flask) -> str:
    """Return SQLAlchemy's URL of the recipes' database.

    It is the one configured, else that of the guards' table, else a file.
    """
    if chosen := app.config["EXAMPLE_RECIPES_DATABASE"]:
        return str(chosen)
    if store_of(app).startswith(("sqlite", "postgresql", "mysql", "mariadb")):
        return str(app.config["IDEMPOTENCE_STORAGE_URI"])
    return f"sqlite:///{Path(app.config['EXAMPLE_DATABASE']).with_name('recipes.sqlite3')}"


def store_of(app: Flask) -> str:
    """Return the kind of the store: the rest of its address may hold a password."""
    return str(app.config["IDEMPOTENCE_STORAGE_URI"]).partition(":")[0]
