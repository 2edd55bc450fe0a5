"""The example in a real browser: clicks, reloads and lost responses have one effect; recipes."""

import re
import time

import pytest
from helpers.servers.example import FlaskRun, ask
from helpers.servers.processes import environment
from proofs.browser.browsers import (
    DESKTOP,
    PAGES,
    PHONE,
    in_each_browser,
    place_of,
    wider_than_the_window,
)

pytestmark = pytest.mark.browser

THANKS = re.compile(r"/orders/\d+$")


def orders(url):
    return [(order["name"], order["quantity"]) for order in ask(url + "/orders").json["orders"]]


def open_checkout(page, url, *, name="Ada", speed="quick"):
    page.goto(url + "/checkout/mug")
    page.get_by_label("Your name").fill(name)
    page.get_by_label("The shop is").select_option(speed)
    return page


def order_button(page):
    return page.get_by_role("button", name="Order now")


@in_each_browser
def test_impatient_clicks_on_a_slow_shop_are_one_order(visit, url):
    page = open_checkout(visit(), url, speed="slow")
    # While a page is being left it cannot be asked: it tells the next one what it looked like.
    page.evaluate(
        """() => setTimeout(() => {
            const form = document.querySelector("form[data-idempotence]");
            const told = getComputedStyle(form.querySelector(".while-busy")).visibility;
            const { disabled } = form.querySelector("button");
            sessionStorage.seen = [form.getAttribute("aria-busy"), disabled, told];
        }, 1000)"""
    )
    where = place_of(page, "form[data-idempotence] button")
    for _ in range(6):
        page.mouse.click(*where)
        time.sleep(0.1)
    page.wait_for_url(THANKS)
    assert page.evaluate("() => sessionStorage.seen") == "true,true,visible"
    assert page.locator("h1").inner_text() == "Thank you, Ada"
    assert orders(url) == [("Ada", 1)]


def test_reloading_what_was_posted_is_a_clear_page_and_no_second_order(visit, url, expect):
    page = open_checkout(visit(java_script_enabled=False), url)
    # Between the two posts the browser would leave for the order; this answer it stays at.
    page.get_by_label("Your name").fill(" ")
    order_button(page).click()
    expect(page.get_by_role("alert")).to_contain_text("Enter a name")
    page.get_by_label("Your name").fill("Ada")
    token = page.locator("input[name=idempotence_token]").input_value()
    form = {"name": "Ada", "quantity": "1", "idempotence_token": token}
    assert page.request.post(page.url, form=form).ok
    order_button(page).click()
    for _ in range(2):
        expect(page.locator("h1")).to_have_text("This order has already been placed")
        expect(page.get_by_role("alert")).to_have_text("Nothing has been ordered a second time.")
        assert page.reload().request.method == "POST"
    assert orders(url) == [("Ada", 1)]


@pytest.mark.parametrize("scripts", [True, False])
def test_after_the_back_button_only_a_submit_is_a_new_order(visit, url, expect, scripts):
    page = open_checkout(visit(java_script_enabled=scripts), url)
    order_button(page).click()
    page.wait_for_url(THANKS)
    page.go_back(wait_until="commit")  # a page that was kept is not loaded
    expect(order_button(page)).to_be_enabled()
    expect(page.get_by_label("Your name")).to_have_value("Ada")
    assert orders(url) == [("Ada", 1)]
    if not scripts:
        # The page from the browser's cache has the spent token, and no script replaces it.
        order_button(page).click()
        page.get_by_role("link", name="Order another Blue mug").click()
        assert orders(url) == [("Ada", 1)]
    page.get_by_label("Your name").fill("Ada, again")
    order_button(page).click()
    page.wait_for_url(THANKS)
    assert orders(url) == [("Ada, again", 1), ("Ada", 1)]


def test_without_scripts_a_token_that_expired_is_told_and_nothing_typed_is_lost(visit, expect):
    with FlaskRun(env=environment(token_ttl=1)) as server:
        page = open_checkout(visit(java_script_enabled=False), server.url)
        time.sleep(1.2)
        order_button(page).click()
        said = "Nothing has been ordered: this page was open"
        expect(page.get_by_role("alert")).to_contain_text(said)
        expect(page.get_by_label("Your name")).to_have_value("Ada")
        order_button(page).click()
        page.wait_for_url(THANKS)


@in_each_browser
def test_a_payment_whose_answers_are_lost_is_made_once(visit, url, expect):
    page = visit()
    page.goto(url + "/pay?amount=34")
    page.get_by_role("button", name="Pay").dblclick()
    expect(page.locator("#verdict")).to_have_text("Paid once.")
    expect(page.locator("#responses")).to_have_attribute("data-outcome", "right")
    expect(page.locator("#log .lost")).to_have_count(2)
    expect(page.locator("#log .done")).to_contain_text(
        "Replayed: the response to the first attempt."
    )
    truth = ask(url + "/api/payments").json
    assert (truth["count"], truth["tries"]) == (1, 3)


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


# The recipes


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


def test_a_replay_has_a_tag_a_refusal_is_neutral_and_duplicates_are_wrong(visit, url, expect):
    page = visit()
    page.goto(url + "/recipes")
    first = send(page, "unique-index/guarded")
    expect(first).to_contain_text("201 Created")
    expect(first.locator(".tag")).to_have_count(0)
    text = first.locator(".plain").inner_text()
    second = send(page, "unique-index/guarded")
    expect(second.locator(".tag")).to_have_text("replayed")
    expect(second.locator(".plain")).to_have_text(text)
    send(page, "unique-index")
    refused = send(page, "unique-index")
    expect(refused).to_have_attribute("data-outcome", "neutral")
    expect(refused).to_contain_text("409 Conflict")
    expect(send(page, "select-then-insert")).to_have_attribute("data-outcome", "wrong")
    guarded = send(page, "select-then-insert/guarded")
    expect(guarded).to_have_attribute("data-outcome", "right")
    expect(guarded).to_contain_text("duplicates: 0")
