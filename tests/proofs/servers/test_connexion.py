"""connexion 3, which answers every HTTP error in its own form; needs the group `wsgi`."""

import asyncio
import re
import warnings

import httpx
import pytest
from helpers.repository import REFERENCE, section

from flask_idempotence import Idempotence, Refusal, idempotent, no_repeat_submit, one_time_token

pytestmark = pytest.mark.wsgi

GUARDS = {
    "repeat-submit": (no_repeat_submit(60), 409, "60"),
    "token-missing": (one_time_token(), 400, None),
    "key-missing": (idempotent(required=True), 400, None),
    "store-unavailable": (no_repeat_submit(60), 503, "1"),
}


def refused(slug, line=""):
    """Return the second answer of a guarded view, on an application with a line of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of starlette, about the client of its tests
        connexion = pytest.importorskip("connexion")
    app = connexion.FlaskApp("shop")
    app.app.config["SECRET_KEY"] = "a secret for the tests"
    if slug == "store-unavailable":
        app.app.config["IDEMPOTENCE_STORAGE_URI"] = "redis://127.0.0.1:1"
    Idempotence(app.app)
    exec(line, {"app": app, "Refusal": Refusal})
    app.add_url_rule(
        "/", "orders", GUARDS[slug][0](lambda: ({"done": True}, 201)), methods=["POST"]
    )

    async def send():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop.test") as client:
            return [await client.post("/") for _ in range(2)][-1]

    return asyncio.run(send())


@pytest.mark.parametrize("slug", GUARDS)
def test_the_line_of_the_page_sends_refusals_as_they_are_under_connexion(slug):
    [line] = re.findall(
        r"`(app\.app\..+?)`", section(REFERENCE / "errors.md", "Under a framework")
    )
    _, status, retry_after = GUARDS[slug]
    answer = refused(slug, line)
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["Idempotence-Refusal"] == slug
    assert answer.headers.get("Retry-After") == retry_after
    assert answer.json()["type"] == f"urn:flask-idempotence:{slug}"
    assert refused(slug).headers.get("Idempotence-Refusal") is None  # else the line is not needed
