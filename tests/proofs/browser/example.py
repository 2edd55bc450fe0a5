"""The example, running for a browser."""

PAGES = {
    "shop.catalogue": "/",
    "shop.product": "/products/mug",
    "checkout.check_out": "/checkout/mug",
    "payments.pay_page": "/pay",
    "ledger.orders": "/orders",
    "ledger.confirm_clear": "/orders/clear",
    "lab.page": "/lab",
    "recipes.pages.index": "/recipes",
}
"""The path of each page that needs no row of the database."""

PHONE = {"width": 360, "height": 780}
DESKTOP = {"width": 1280, "height": 800}


def wider_than_the_window(page):
    """Return the pixels by which a page scrolls sideways."""
    return page.evaluate("() => document.documentElement.scrollWidth - innerWidth")


def order(page, url, name="Ada"):
    page.goto(url + "/checkout/mug")
    page.get_by_label("Your name").fill(name)
    page.get_by_role("button", name="Order now").click()
    page.wait_for_url("**/orders/*")


def run_lab(page, url, mode, requests=12, delay=300):
    page.goto(f"{url}/lab?mode={mode}")
    page.get_by_label("Requests at once").fill(str(requests))
    page.get_by_label("The view takes").fill(str(delay))
    page.get_by_role("button", name="Send requests").click()
