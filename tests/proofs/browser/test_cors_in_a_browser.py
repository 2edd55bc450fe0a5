"""A page that calls an API of another origin, in a real browser."""

import json

import pytest
from flask import Flask
from flask_cors import CORS
from helpers.apps import bare_app
from helpers.callers.http_callers import serving
from proofs.browser.browsers import in_each_browser

from flask_idempotence import Idempotence, idempotent

pytestmark = [pytest.mark.browser, in_each_browser]

PAGE = """<!doctype html>
<html lang="en">
<title>Shop</title>
<output></output>
<script type="module">
  const tell = said => { document.querySelector("output").textContent = JSON.stringify(said) };
  try {
    const { fetch } = await import("API/_idempotence/idempotence.mjs");
    const options = { method: "POST", key: "k", minDelay: 20, retries: 2 };
    await fetch("API/payments", options);
    const response = await fetch("API/payments", options);
    const { run } = await response.json();
    tell([run, response.status, response.headers.get("Idempotent-Replayed")]);
  } catch (error) {
    tell([error.name]);
  }
</script>
"""


@pytest.fixture
def paid(visit):
    """Return a function that pays twice from a page of another origin: what it reads, the runs."""

    def pay(**options):
        api, site, runs = bare_app(), Flask("site"), []
        Idempotence(api)
        CORS(api, **options)

        @api.post("/payments")
        @idempotent(required=True)
        def view():
            runs.append(1)
            return {"run": len(runs)}, 201

        with serving(api) as api_url, serving(site) as site_url:
            site.add_url_rule("/", "page", lambda: PAGE.replace("API", api_url))
            page = visit()
            page.goto(site_url)
            page.wait_for_selector("output:not(:empty)")
            return json.loads(page.locator("output").inner_text()), len(runs)

    return pay


def test_with_both_lists_the_page_pays_once_and_sees_the_replay(paid):
    lists = {"allow_headers": ["Idempotency-Key"], "expose_headers": ["Idempotent-Replayed"]}
    assert paid(**lists) == ([1, 201, "true"], 1)


def test_a_header_that_is_not_exposed_is_hidden_and_it_stays_one_payment(paid):
    assert paid(allow_headers=["Idempotency-Key"]) == ([1, 201, None], 1)


def test_a_key_that_is_not_allowed_is_not_sent_at_all(paid):
    assert paid(allow_headers=["Content-Type"]) == (["TypeError"], 0)
