"""idempotence.fetch in a real browser: a network that loses answers, an API of another origin."""

import json

import pytest
from flask import Flask
from flask_cors import CORS
from helpers.apps import make_app
from helpers.callers.http_callers import serving
from proofs.browser.browsers import in_each_browser

from flask_idempotence import idempotent

pytestmark = [pytest.mark.browser, in_each_browser]


def pay(page, shop, timeout=0):
    """Press the button; return the payment's number, the status, and whether it is a replay."""
    page.goto(f"{shop.url}/pay#{timeout}")
    page.get_by_role("button", name="Pay").click()
    page.wait_for_selector("output:not(:empty)")
    *told, is_the_same_function = json.loads(page.locator("output").inner_text())
    assert is_the_same_function
    return told


@pytest.mark.parametrize("drops", [1, 3])
def test_a_lost_answer_is_asked_for_again_and_it_stays_one_payment(visit, shop, drops):
    shop.drops = drops
    assert pay(visit(), shop) == [1, 201, "true"]
    assert shop.payments == ["12"]
    assert shop.answers == [201] * (drops + 1)
    assert len(set(shop.keys)) == 1


def test_a_try_that_is_given_up_while_the_first_one_runs_waits_for_its_answer(visit, shop):
    shop.delay = 2
    assert pay(visit(), shop, timeout=300) == [1, 201, "true"]
    assert shop.payments == ["12"]
    assert sorted(shop.answers)[:2] == [201, 201]
    assert set(shop.answers) == {201, 409}
    assert len(set(shop.keys)) == 1


def test_two_presses_are_two_payments_and_an_answer_that_arrives_is_asked_for_once(visit, shop):
    assert [pay(visit(), shop) for _ in range(2)] == [[1, 201, None], [2, 201, None]]
    assert (shop.payments, shop.answers) == (["12"] * 2, [201] * 2)
    assert len(set(shop.keys)) == 2


ELSEWHERE = """<!doctype html>
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
        api, site, runs = make_app(), Flask("site"), []
        CORS(api, **options)

        @api.post("/payments")
        @idempotent(required=True)
        def view():
            runs.append(1)
            return {"run": len(runs)}, 201

        with serving(api) as api_url, serving(site) as site_url:
            site.add_url_rule("/", "page", lambda: ELSEWHERE.replace("API", api_url))
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
