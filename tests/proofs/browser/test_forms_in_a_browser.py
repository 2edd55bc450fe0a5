"""Forms in a real browser: one request for any number of clicks."""

import time

import pytest
from helpers.servers.processes import until
from proofs.browser.browsers import go_back, in_each_browser, place_of, press, shows, write
from proofs.browser.shop import NONCE, POLICY, running_shop

pytestmark = [pytest.mark.browser, in_each_browser]


def open_form(page, shop, path="/", note="no sugar"):
    page.goto(shop.url + path)
    page.get_by_label("Note").fill(note)
    return page


def token_in(page):
    return page.locator("input[type=hidden]").input_value()


def may_keep(browser, path):
    """Whether a browser keeps a page in memory: one with a token says no-store."""
    return browser == "chromium" or path != "/"


def is_thanked(page):
    page.wait_for_url("**/orders")
    page.wait_for_selector("h1:text('Order')")


@pytest.mark.parametrize(("path", "tokens"), [("/", 0), ("/cached", 1)])
@pytest.mark.parametrize("script", ["'self'", f"'nonce-{NONCE}'"], ids=["self", "nonce"])
def test_a_double_click_is_one_order(visit, shop, path, tokens, script):
    """Of a field with its token or an empty one; the button that was clicked is sent, too."""
    shop.delay = 0.3
    shop.csp = POLICY.replace("script-src 'self'", f"script-src {script}")
    page = open_form(visit(), shop, path)
    page.get_by_role("button", name="Give").dblclick()
    is_thanked(page)
    assert shop.orders == [("no sugar", "gift")]
    assert (shop.posts, shop.tokens) == (["/orders"], tokens)


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
    where = place_of(page, "[value=tea]")
    for _ in range(6):
        page.mouse.click(*where)
        time.sleep(0.1)
    is_thanked(page)
    seen = page.evaluate("JSON.parse(sessionStorage.seen)")
    assert seen == ["true", "idempotence-busy", [True, True]]
    assert shop.orders == [("no sugar", "tea")]
    assert shop.posts == ["/orders"]


def test_reloading_the_answer_is_no_second_order_but_a_page_that_says_so(visit, shop):
    page = open_form(visit(), shop)
    page.get_by_role("button", name="Buy").click()
    is_thanked(page)
    answer = page.reload()
    assert answer.status == 409
    assert answer.headers["content-type"].startswith("text/html")
    assert page.locator("h1").inner_text() != ""
    assert (len(shop.orders), len(shop.posts)) == (1, 2)


PROPERTIES = """node => {
    const names = new Set();
    for (let each = node; each; each = Object.getPrototypeOf(each)) {
        Object.getOwnPropertyNames(each).forEach((name) => names.add(name));
    }
    return [...names].filter((name) => /^[a-z]/i.test(name));
}"""


@pytest.mark.parametrize("where", ["fields", "images", "ids"])
def test_elements_with_the_names_of_all_properties_switch_nothing_off(visit, shop, where):
    """Such names hide properties of forms, documents and windows in scripts."""
    shop.delay = 0.3
    page = visit()
    page.goto(shop.url)
    node = {"fields": "document.forms[0]", "images": "document", "ids": "globalThis"}[where]
    names = page.evaluate(f"({PROPERTIES})({node})")
    assert {"addEventListener"} < {*names}
    page.route("**/token", lambda route: route.abort())
    gift, note = place_of(page, "[value=gift]"), place_of(page, "[name=note]")
    shop.names = {where: names}
    page.goto(shop.url + "/clobbered")
    page.mouse.click(*note)
    page.keyboard.type("no sugar")
    page.mouse.click(*gift, click_count=2)
    failed = "Document.prototype.querySelector.call(document, '.idempotence-failed') !== null"
    assert until(lambda: page.evaluate(failed), 20)
    page.unroute("**/token")
    page.mouse.click(*gift, click_count=2)
    is_thanked(page)
    assert shop.orders == [("no sugar", "gift")]
    assert (shop.posts, shop.tokens) == (["/orders"], 1)


@pytest.mark.parametrize("path", ["/", "/cached", "/careless"])
@pytest.mark.parametrize("keeps_pages", [True, False], ids=["kept", "made anew"])
def test_after_the_back_button_a_submit_is_a_new_order(
    visit, shop, path, keeps_pages, browser_name
):
    page = open_form(visit(keeps_pages=keeps_pages), shop, path)
    page.get_by_role("button", name="Buy").click()
    is_thanked(page)
    go_back(page)
    assert shows(page, "form:not([aria-busy])")
    page.wait_for_function("globalThis.kept !== undefined")  # set by `pageshow`
    assert page.evaluate("kept") is (keeps_pages and may_keep(browser_name, path))
    assert len(shop.orders) == 1
    order_one_more(page, shop, clicks=2)


def order_one_more(page, shop, clicks=1):
    write(page, "[name=note]", "one more")
    press(page, "[value=gift]", clicks)
    page.wait_for_selector("h1:text('Order 2')")
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


@pytest.mark.parametrize("keeps_pages", [True, False], ids=["kept", "made anew"])
def test_with_scripts_off_the_token_alone_holds(visit, shop, keeps_pages, browser_name):
    shop.delay = 2
    page = visit(keeps_pages=keeps_pages, java_script_enabled=False)
    page.goto(shop.url)
    write(page, "[name=note]", "no sugar")
    where = place_of(page, "[value=tea]")
    page.mouse.click(*where)
    assert until(lambda: len(shop.posts) == 1)
    page.mouse.click(*where)
    if browser_name == "chromium":
        assert shows(page, "h1", "Conflict")  # the second request's answer: no page but this
    else:
        assert shows(page, "h1", "Order 1")  # Firefox does not send a form while it is being sent
    assert until(lambda: shop.orders)
    sent = 2 if browser_name == "chromium" else 1
    assert (shop.orders, len(shop.posts)) == ([("no sugar", "tea")], sent)
    shop.delay = 0
    page.reload()
    assert shows(page, "h1", "Conflict")
    assert (len(shop.orders), len(shop.posts)) == (1, sent + 1)
    go_back(page)
    assert shows(page, "form")
    write(page, "[name=note]", "one more")
    press(page, "[value=tea]")
    # A page that the browser kept has the spent token in it, and nobody there to replace it.
    spent = keeps_pages and may_keep(browser_name, "/")
    assert shows(page, "h1", "Conflict" if spent else "Order 2")
    assert (len(shop.orders), len(shop.posts)) == (1 if spent else 2, sent + 2)


def test_a_kept_page_has_its_spent_token_where_scripts_are_off(visit, shop):
    page = visit(java_script_enabled=False)
    page.goto(shop.url + "/careless")
    for answer in ("Order 1", "Conflict"):
        write(page, "[name=note]", "no sugar")
        press(page, "[value=tea]")
        assert shows(page, "h1", answer)
        go_back(page)
        assert shows(page, "form")
    assert (len(shop.orders), len(shop.posts)) == (1, 2)


def test_a_token_that_expired_meanwhile_is_renewed_and_nothing_typed_is_lost(visit):
    with running_shop(IDEMPOTENCE_TOKEN_TTL=1) as shop:
        page = open_form(visit(), shop, note="typed slowly")
        time.sleep(1.2)
        page.get_by_role("button", name="Give").click()
        is_thanked(page)
        assert shop.orders == [("typed slowly", "gift")]
        assert (shop.posts, shop.tokens) == (["/orders"], 1)


STOP = """addEventListener("submit", async () => {
    // Firefox cancels a request that is under way when the page begins to be left.
    const posts = () => fetch("/posts").then((answer) => answer.json()).catch(() => 0);
    while (await posts() === 0);
    stop();
    document.documentElement.dataset.stopped = "";
}, { once: true })"""


def stop_a_submit(page, shop, path="/"):
    shop.delay = 30
    open_form(page, shop, path)
    page.evaluate(STOP)
    token = token_in(page)
    press(page, "[value=tea]")
    assert shows(page, "html[data-stopped]")
    shop.released.set()
    assert until(lambda: shop.orders)
    assert shop.posts == ["/orders"]
    return token


def test_a_submit_that_was_stopped_can_be_tried_again_and_stays_one_order(
    visit, shop, browser_name
):
    page = visit()
    if browser_name == "firefox":
        # It fires no event, so that the script's limit is reached: here after a second.
        page.add_init_script(
            "const wait = setTimeout; setTimeout = (run, delay) => wait(run, delay / 30)"
        )
    token = stop_a_submit(page, shop)
    assert shows(page, "form:not([aria-busy]) [value=tea]:enabled")
    assert page.evaluate("document.querySelector('[type=hidden]').value") == token
    press(page, "[value=tea]")
    assert shows(page, "h1", "Conflict")
    assert (len(shop.orders), len(shop.posts)) == (1, 2)


@pytest.mark.parametrize("path", ["/", "/cached", "/careless"])
def test_a_form_that_is_reloaded_after_a_stop_is_a_new_order(visit, shop, path):
    page = visit()
    stop_a_submit(page, shop, path)
    page.evaluate("setTimeout(() => location.reload())")
    assert shows(page, "html:not([data-stopped]) form")
    # Firefox has put the spent token into the field of the cached page.
    order_one_more(page, shop)


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
