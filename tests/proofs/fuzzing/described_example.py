"""The example, with a description of its guarded views, for `tests/proofs/fuzzing`."""

import os
from pathlib import Path

from apispec import APISpec

from example_app import create_app, payments, shop
from flask_idempotence.openapi import IdempotencePlugin

payments.BANK_TAKES = 0
app = create_app(
    IDEMPOTENCE_STORAGE_URI=os.environ["STORE"],
    EXAMPLE_DATABASE=str(Path(os.environ["DIRECTORY"], "shop.sqlite3")),
)

PAGE = {"text/html": {}}
JSON = {"application/json": {}}
FORM = "application/x-www-form-urlencoded"
SLUGS = {"anyOf": [{"enum": [*shop.PRODUCTS]}, {"type": "string"}]}
SLUG = {"name": "slug", "in": "path", "required": True, "schema": SLUGS}

OPERATIONS = {
    "shop.like": ("/products/{slug}/like", JSON, 201, {}),
    "shop.comment": (
        "/products/{slug}/comments",
        PAGE,
        303,
        {FORM: {"text": {"type": "string", "minLength": 1, "maxLength": 100}}},
    ),
    "checkout.check_out": ("/checkout/{slug}", PAGE, 303, {FORM: {"name": {"type": "string"}}}),
    "payments.pay": (
        "/api/payments",
        JSON,
        201,
        {"application/json": {"amount": {"type": "integer", "minimum": 1, "maximum": 100}}},
    ),
}


def describe():
    spec = APISpec("Shop", "1", "3.1.0", plugins=[IdempotencePlugin(app)])
    for endpoint, (path, content, status, bodies) in OPERATIONS.items():
        problems = {code: {"description": "Refused.", "content": PAGE} for code in (400, 404, 415)}
        operation = {
            "responses": {status: {"description": "Done.", "content": content}} | problems
        }
        if "{slug}" in path:
            operation["parameters"] = [SLUG]
        if bodies:
            sent = {
                kind: {"schema": {"type": "object", "required": [*fields], "properties": fields}}
                for kind, fields in bodies.items()
            }
            operation["requestBody"] = {"required": True, "content": sent}
        spec.path(path, operations={"post": operation}, view=app.view_functions[endpoint])
    return spec.to_dict()


described = describe()
app.get("/docs/openapi.json")(lambda: described)
