"""The example in a real browser: clicks, reloads and lost responses have one effect."""

# ruff: noqa: F811 (a fixture is imported, and then an argument)
import re
import time

import pytest
from helpers.servers.example import ask
from proofs.browser.browsers import in_each_browser
from proofs.browser.example import (  # noqa: F401 - fixtures
    PAGES,
    PHONE,
    expect,
    running,
    start,
    url,
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


def click_where_it_stands(page, button, times):
    box = button.bounding_box()
    for _ in range(times):
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        time.sleep(0.1)


@in_each_browser
def test_a_double_click_is_one_order(visit, url):
    page = open_checkout(visit(), url)
    order_button(page).dblclick()
    page.wait_for_url(THANKS)
    assert page.locator("h1").inner_text() == "Thank you, Ada"
    assert orders(url) == [("Ada", 1)]


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
    click_where_it_stands(page, order_button(page), 6)
    page.wait_for_url(THANKS)
    assert page.evaluate("() => sessionStorage.seen") == "true,true,visible"
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


def test_likes_and_comments_with_scripts_off(visit, url, expect):
    page = visit(java_script_enabled=False)
    page.goto(url + "/products/fern")
    page.get_by_role("button", name="Like the Fern").click()
    page.get_by_role("button", name="Like the Fern").click()
    expect(page.get_by_role("alert")).to_contain_text("You have just liked this")
    for _ in range(2):
        page.get_by_label("Your comment").fill("Needs water")
        page.get_by_role("button", name="Add comment").click()
    expect(page.get_by_role("alert")).to_contain_text("You have just sent this comment")
    expect(page.get_by_label("Your comment")).to_have_value("Needs water")
    expect(page.locator(".comments li")).to_have_count(1)


@in_each_browser
def test_five_likes_are_one_and_the_page_says_why(visit, url, expect, browser_name):
    product = {"chromium": "Teapot", "firefox": "Fern"}[browser_name]  # both have one address
    page = visit()
    page.goto(url)
    button = page.get_by_role("button", name=f"Like the {product}")
    for _ in range(5):
        button.click()
    said = page.locator(f"form[action$='{product.lower()}/like'] [role=status]")
    expect(said).to_contain_text("It counts once in five seconds")
    expect(button).to_contain_text("1")


@pytest.fixture
def forgetful(tmp_path):
    """Where the example is with tokens that live for a second."""
    with start(tmp_path, TOKEN_TTL=1) as server:
        yield server.url


def test_a_token_that_expired_is_renewed_and_nothing_typed_is_lost(visit, forgetful, expect):
    url = forgetful
    page = open_checkout(visit(), url, name="Slow typist")
    time.sleep(1.2)
    order_button(page).click()
    page.wait_for_url(THANKS)
    assert orders(url) == [("Slow typist", 1)]
    without = open_checkout(visit(java_script_enabled=False), url, name="Slower typist")
    time.sleep(1.2)
    order_button(without).click()
    expect(without.get_by_role("alert")).to_contain_text(
        "Nothing has been ordered: this page was open"
    )
    expect(without.get_by_label("Your name")).to_have_value("Slower typist")
    order_button(without).click()
    without.wait_for_url(THANKS)


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


def test_without_a_key_the_same_network_makes_three_payments(visit, url, expect):
    page = visit()
    page.goto(url + "/pay")
    page.get_by_label("without a key").check()
    page.get_by_role("button", name="Pay").click()
    expect(page.locator("#verdict")).to_have_text("Paid three times: 36 € instead of 12 €.")
    expect(page.locator("#responses")).to_have_attribute("data-outcome", "wrong")
    assert ask(url + "/api/payments").json["count"] == 3


@pytest.mark.parametrize("chosen", ["after it reserved", "after it charged", "not at all"])
def test_a_payment_whose_process_is_killed_goes_on_in_another(visit, url, expect, chosen):
    page = visit()
    page.goto(url + "/pay?amount=34")
    options = page.get_by_label("The worker is killed")
    options.select_option(options.locator("option", has_text=chosen).get_attribute("value"))
    page.get_by_role("button", name="Reserve, charge, book").click()
    processes = 1 if chosen == "not at all" else 2
    expect(page.locator("#steps-verdict")).to_have_text(
        f"Each step ran once. Processes: {processes}."
    )
    expect(page.locator("#steps-responses")).to_have_attribute("data-outcome", "right")
    expect(page.locator("#steps tr td:first-child")).to_have_text(["book", "charge", "reserve"])
    expect(page.locator("#payments td").nth(1)).to_have_text("34 €")
    lost = page.locator("#steps-log .lost").count()
    assert lost >= 1 if processes == 2 else lost == 0
    assert ask(url + "/api/payments").json["count"] == 1


@pytest.mark.parametrize("path", ["/", "/lab"])
def test_a_phone_shows_what_to_try_on_its_first_screen(visit, url, expect, path):
    page = visit(viewport=PHONE)
    page.goto(url + path)
    section = page.get_by_role("region", name="What to try")
    expect(section).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize("how", ["phone", "desktop"])
def test_every_page_fits_and_nothing_is_said_on_the_console(visit, url, how):
    width = {"phone": 360, "desktop": 1280}[how]
    page = visit(viewport={"width": width, "height": 800})
    said = []
    page.on("console", lambda message: said.append(message.text))
    for path in PAGES.values():
        page.goto(url + path)
        assert wider_than_the_window(page) <= 0, path
    assert said == []
