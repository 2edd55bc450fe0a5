"""The example's pages by the rules of WCAG 2.1 AA: light and dark, on a phone and a desktop."""

import itertools

import pytest
from proofs.browser.browsers import DESKTOP, PAGES, PHONE, order, run_lab, violations

from example_app import create_app

pytestmark = pytest.mark.browser

NO_PAGES = {"static", "payments.list_payments", "steps.list_steps", "lab.events"}
"""Views that answer GET with a file or JSON."""

WITH_ROWS = {"checkout.order"}
"""Pages of rows, which the test of outcomes visits."""


@pytest.fixture(params=itertools.product(["light", "dark"], [PHONE, DESKTOP]), ids=str)
def page(request, visit):
    scheme, viewport = request.param
    return visit(color_scheme=scheme, viewport=viewport)


def test_no_page_violates_wcag(page, url):
    found = {}
    for path in [*PAGES.values(), "/nothing"]:
        page.goto(url + path)
        found[path] = violations(page)
    assert {path: each for path, each in found.items() if each} == {}


def test_no_outcome_violates_wcag(page, url, expect):
    found = {}

    def check(name, outcome=None):
        if outcome:
            expect(page.locator("[data-outcome]")).to_have_attribute("data-outcome", outcome)
        found[name] = violations(page)

    for mode, outcome in (("none", "wrong"), ("lock", "right"), ("key", "right")):
        run_lab(page, url, mode)
        check(f"lab, {mode}", outcome)
        page.get_by_text("Each request in words").click()
        check(f"lab in words, {mode}")
    for way, outcome in (("without a key", "wrong"), ("with the same key", "right")):
        page.goto(url + "/pay")
        page.get_by_label(way).check()
        page.get_by_role("button", name="Pay").click()
        check(f"pay, {way}", outcome)
    page.get_by_role("button", name="Reserve, charge, book").click()
    expect(page.locator("#steps-responses")).to_have_attribute("data-outcome", "right")
    check("pay in steps")
    for path, button, outcome in (
        ("select-then-insert", "Send sixteen", "wrong"),
        ("unique-index", "Order", "neutral"),
        ("unique-index/guarded", "Order, guarded by a key", "right"),
    ):
        page.goto(url + "/recipes")
        for _ in range(2):
            page.locator(f"form[action^='/recipes/{path}#']").get_by_role(
                "button", name=button
            ).click()
            page.locator(".answer").wait_for()
        check(f"recipe, {path}", outcome)
    order(page, url)
    check("order")
    page.goto(url + "/checkout/mug")
    page.get_by_label("Your name").fill(" ")
    page.get_by_role("button", name="Order now").click()
    page.get_by_role("alert").wait_for()
    check("mistake")
    page.get_by_label("Your name").fill("Ada")
    token = page.locator("input[name=idempotence_token]").input_value()
    form = {"name": "Ada", "quantity": "1", "idempotence_token": token}
    assert page.request.post(page.url, form=form).ok
    page.get_by_role("button", name="Order now").click()
    page.get_by_role("heading", name="already been placed").wait_for()
    check("repeat")
    assert {name: each for name, each in found.items() if each} == {}


def test_every_page_is_checked(tmp_path):
    app = create_app(EXAMPLE_DATABASE=tmp_path / "shop.sqlite3")
    views = {rule.endpoint for rule in app.url_map.iter_rules() if "GET" in rule.methods}
    app.extensions["example_database"].close()
    own = {view for view in views if not view.startswith("idempotence.")}
    assert own - NO_PAGES == set(PAGES) | WITH_ROWS


def test_a_violation_is_found(visit):
    page = visit()
    page.set_content('<html lang="en"><title>Pale</title><p style="color: #ccc">Pale</p><input>')
    rules = sorted(violation.split()[0] for violation in violations(page))
    assert rules == ["color-contrast", "label"]
