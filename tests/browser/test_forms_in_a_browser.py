"""Forms in a real browser: one request for any number of clicks."""

import time

import pytest
from browser.shop import NONCE, POLICY, Shop
from helpers.servers.processes import until

pytestmark = pytest.mark.browser


def open_form(page, shop, path="/", note="no sugar"):
    page.goto(shop.url + path)
    page.get_by_label("Note").fill(note)
    return page


def token_in(page):
    return page.locator("input[type=hidden]").input_value()


def middle_of(button):
    box = button.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def is_thanked(page):
    page.wait_for_url("**/orders")
    page.wait_for_selector("h1:text('Order')")


def test_a_double_click_is_one_order(visit, shop):
    shop.delay = 0.3
    page = open_form(visit(), shop)
    page.get_by_role("button", name="Give").dblclick()
    is_thanked(page)
    assert shop.orders == [("no sugar", "gift")]
    assert shop.posts == ["/orders"]
    assert shop.tokens == 0


def test_enter_held_down_is_one_order(visit, shop):
    shop.delay = 0.3
    page = open_form(visit(), shop)
    for _ in range(10):
        page.keyboard.down("Enter")
    page.keyboard.up("Enter")
    is_thanked(page)
    assert shop.orders == [("no sugar", "tea")]
    assert shop.posts == ["/orders"]


def test_impatient_clicks_on_a_slow_server_are_one_order(visit, shop):
    shop.delay = 1.5
    page = open_form(visit(), shop)
    # While a page is being left it cannot be asked: it tells the next one what it looked like.
    page.evaluate(
        """setInterval(() => {
            const form = document.forms[0];
            const disabled = [...form.querySelectorAll("button")].map(button => button.disabled);
            const busy = form.getAttribute("aria-busy");
            sessionStorage.seen = JSON.stringify([busy, form.className, disabled]);
        }, 50)"""
    )
    where = middle_of(page.get_by_role("button", name="Buy"))
    for _ in range(6):
        page.mouse.click(*where)
        time.sleep(0.1)
    is_thanked(page)
    seen = page.evaluate("JSON.parse(sessionStorage.seen)")
    assert seen == ["true", "idempotence-busy", [True, True]]
    assert shop.orders == [("no sugar", "tea")]
    assert shop.posts == ["/orders"]


def test_an_empty_field_is_filled_before_it_is_sent_and_the_button_is_sent_too(visit, shop):
    page = open_form(visit(), shop, "/cached")
    page.get_by_role("button", name="Give").dblclick()
    is_thanked(page)
    assert shop.orders == [("no sugar", "gift")]
    assert (shop.posts, shop.tokens) == (["/orders"], 1)


def test_reloading_the_answer_is_no_second_order_but_a_page_that_says_so(visit, shop):
    page = open_form(visit(), shop)
    page.get_by_role("button", name="Buy").click()
    is_thanked(page)
    answer = page.reload()
    assert answer.status == 409
    assert answer.headers["content-type"].startswith("text/html")
    assert page.locator("h1").inner_text() != ""
    assert (len(shop.orders), len(shop.posts)) == (1, 2)


@pytest.mark.parametrize("path", ["/", "/cached", "/careless"])
@pytest.mark.parametrize("keeps_pages", [True, False], ids=["kept", "made anew"])
def test_after_the_back_button_a_submit_is_a_new_order(visit, shop, path, keeps_pages):
    page = open_form(visit(keeps_pages=keeps_pages), shop, path)
    page.get_by_role("button", name="Buy").click()
    is_thanked(page)
    page.go_back(wait_until="commit")
    page.wait_for_selector("form:not([aria-busy])")
    assert page.evaluate("kept") is keeps_pages
    assert len(shop.orders) == 1
    page.get_by_label("Note").fill("one more")
    page.get_by_role("button", name="Give").dblclick()
    is_thanked(page)
    assert shop.orders == [("no sugar", "tea"), ("one more", "gift")]
    assert shop.posts == ["/orders"] * 2


def test_two_tabs_are_two_orders_however_often_each_is_clicked(visit, shop):
    shop.delay = 0.3
    first = visit()
    second = first.context.new_page()
    for page in (first, second):
        open_form(page, shop)
    for page in (first, second):
        page.get_by_role("button", name="Buy").dblclick()
    for page in (first, second):
        is_thanked(page)
    assert shop.orders == [("no sugar", "tea")] * 2
    assert shop.posts == ["/orders"] * 2


def clicks_twice_without_scripts(page, shop):
    shop.delay = 0.5
    where = middle_of(page.get_by_role("button", name="Buy"))
    page.mouse.click(*where)
    assert until(lambda: len(shop.posts) == 1)
    page.mouse.click(*where)
    assert until(lambda: len(shop.posts) == 2)
    page.wait_for_selector("h1:text('Conflict')")  # the second request's answer: no page but this
    assert until(lambda: shop.orders)
    assert shop.orders == [("no sugar", "tea")]


@pytest.mark.parametrize("keeps_pages", [True, False], ids=["kept", "made anew"])
def test_with_scripts_off_the_token_alone_holds(visit, shop, keeps_pages):
    tab = visit(keeps_pages=keeps_pages, java_script_enabled=False)
    page = open_form(tab, shop)
    clicks_twice_without_scripts(page, shop)
    page.go_back(wait_until="commit")
    page.get_by_label("Note").fill("one more")
    with page.expect_navigation() as answered:
        page.get_by_role("button", name="Buy").click()
    # A page that the browser kept has the spent token in it, and nobody there to replace it.
    assert answered.value.status == (409 if keeps_pages else 200)
    assert len(shop.orders) == (1 if keeps_pages else 2)
    assert len(shop.posts) == 3


def test_a_token_that_expired_meanwhile_is_renewed_and_nothing_typed_is_lost(visit):
    with Shop(IDEMPOTENCE_TOKEN_TTL=1) as shop:
        page = open_form(visit(), shop, note="typed slowly")
        time.sleep(1.2)
        page.get_by_role("button", name="Give").click()
        is_thanked(page)
        assert shop.orders == [("typed slowly", "gift")]
        assert (shop.posts, shop.tokens) == (["/orders"], 1)


def test_a_policy_with_a_nonce(visit, shop):
    shop.csp = POLICY.replace("script-src 'self'", f"script-src 'nonce-{NONCE}'")
    page = open_form(visit(), shop)
    page.get_by_role("button", name="Buy").dblclick()
    is_thanked(page)
    assert (len(shop.orders), shop.posts) == (1, ["/orders"])


def test_a_submit_that_was_stopped_can_be_tried_again_and_stays_one_order(visit, shop):
    shop.delay = 1
    page = open_form(visit(), shop)
    token = token_in(page)
    button = page.get_by_role("button", name="Buy")
    page.evaluate("setTimeout(() => stop(), 700)")
    button.click()
    page.wait_for_selector("form:not([aria-busy])")
    assert (button.is_enabled(), token_in(page)) == (True, token)
    assert (len(shop.posts), until(lambda: shop.orders)) == (1, True)
    with page.expect_navigation() as answered:
        button.click()
    assert answered.value.status == 409
    assert (len(shop.orders), len(shop.posts)) == (1, 2)


def test_a_form_that_opens_another_window_is_ready_for_a_new_order(visit, shop):
    page = open_form(visit(), shop, "/elsewhere")
    token = token_in(page)
    with page.context.expect_page():
        page.get_by_role("button", name="Buy").dblclick()
    page.wait_for_selector("form:not([aria-busy])")
    assert until(lambda: shop.orders)
    assert (len(shop.orders), len(shop.posts)) == (1, 1)
    assert until(lambda: token_in(page) not in ("", token))


def test_without_a_token_nothing_is_sent_and_nothing_typed_is_lost(visit, shop):
    page = open_form(visit(), shop, "/cached", note="a long story")
    page.route("**/token", lambda route: route.abort())
    page.get_by_role("button", name="Buy").click()
    page.wait_for_selector("form.idempotence-failed")
    assert page.get_by_label("Note").input_value() == "a long story"
    assert shop.posts == []
    page.unroute("**/token")
    page.get_by_role("button", name="Buy").click()
    is_thanked(page)
    assert shop.orders == [("a long story", "tea")]
