"""The example in a real browser: a payment in steps, the size of its pages, and its recipes."""

import pytest
from helpers.servers.example import ask
from proofs.browser.browsers import DESKTOP, PAGES, PHONE, wider_than_the_window

pytestmark = pytest.mark.browser


def test_a_payment_whose_process_is_killed_goes_on_in_another(visit, url, expect):
    page = visit()
    page.goto(url + "/pay?amount=34")
    options = page.get_by_label("The worker is killed")
    after_it_charged = options.locator("option", has_text="after it charged")
    options.select_option(after_it_charged.get_attribute("value"))
    page.get_by_role("button", name="Reserve, charge, book").click()
    verdict = page.locator("#steps-verdict")
    expect(verdict).to_have_text("Each step ran once. Processes: 2.")
    expect(page.locator("#steps-responses")).to_have_attribute("data-outcome", "right")
    expect(page.locator("#steps tr td:first-child")).to_have_text(["book", "charge", "reserve"])
    expect(page.locator("#payments td").nth(1)).to_have_text("34 €")
    assert page.locator("#steps-log .lost").count() >= 1
    assert ask(url + "/api/payments").json["count"] == 1


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_every_page_fits_and_nothing_is_said_on_the_console(visit, url, expect, viewport):
    page = visit(viewport=viewport)
    said = []
    page.on("console", lambda message: said.append(message.text))
    for path in PAGES.values():
        page.goto(url + path)
        assert wider_than_the_window(page) <= 0, path
        if path in ("/", "/lab"):
            section = page.get_by_role("region", name="What to try")
            expect(section).to_be_in_viewport(ratio=1)
    assert said == []


def recipe_button(page, path):
    action = f"/recipes/{path}"
    return page.locator(f"form[action='{action}'] button, form[action^='{action}#'] button")


def send(page, path):
    recipe_button(page, path).click()
    return page.locator(".answer")


@pytest.mark.parametrize("scripts", [True, False])
def test_an_answer_appears_beside_its_form(visit, url, expect, scripts):
    page = visit(viewport=PHONE, java_script_enabled=scripts)
    page.goto(url + "/recipes")
    for path in ("unique-index/guarded", "payments", "counter/guarded"):
        answer = send(page, path)
        expect(answer).to_have_count(1)
        expect(answer).to_be_in_viewport(ratio=1)
        expect(answer).to_be_focused()
        expect(recipe_button(page, path)).to_be_in_viewport()
        assert wider_than_the_window(page) <= 0
