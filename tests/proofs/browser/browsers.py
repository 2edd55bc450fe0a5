"""The system's browsers, as Playwright starts them, axe-core, which finds faults, and hands.

The hands are mouse and keyboard without Playwright's checks, which some pages of Firefox do not
answer. Over WebDriver BiDi, Firefox announces no navigation to a page from its back/forward cache.
Where scripts are switched off, it settles no promise of Playwright's. Selectors are those of CSS.
"""

import os
import shutil
from contextlib import suppress

import pytest
from helpers.servers.processes import needed, until

try:
    from axe_playwright_python.sync_playwright import Axe
    from playwright import sync_api
except ImportError:
    Axe = sync_api = None

NAMES = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "firefox": ("firefox-esr", "firefox"),
}

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

in_each_browser = pytest.mark.parametrize("browser_name", NAMES)
"""Other tests are run in Chromium only."""


def start_browser(playwright, name, keeps_pages, scripts):
    """Start a browser; the options are those that hold for all of its pages."""
    path = next(filter(None, map(shutil.which, NAMES[name])), None)
    needed(path, f"a browser is missing (apt-get install {NAMES[name][0]})")
    if name == "firefox":
        preferences = {
            "javascript.enabled": scripts,
            # Whether to send a form again is asked of people; they say yes.
            "dom.confirm_repost.testing.always_accept": True,
        }
        if not keeps_pages:
            preferences["browser.sessionhistory.max_total_viewers"] = 0
        # This channel is WebDriver BiDi, for a Firefox as it is installed.
        return playwright.firefox.launch(
            executable_path=path, channel="moz-firefox", firefox_user_prefs=preferences
        )
    # Playwright switches the back/forward cache off, which people have on.
    ignored = ["--disable-back-forward-cache"] if keeps_pages else None
    arguments = ["--disable-dev-shm-usage"]  # containers have little of it, and pages crash
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # root cannot have one
    return playwright.chromium.launch(
        executable_path=path, args=arguments, ignore_default_args=ignored
    )


def violations(page):
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
    found = Axe().run(page, options={"runOnly": rules, "resultTypes": ["violations"]})
    return [
        f"{violation['id']} at {node['target']}: {node['failureSummary']}"
        for violation in found.response["violations"]
        for node in violation["nodes"]
    ]


KEPT_SOON = 1500
"""Milliseconds in which a browser shows a page that it has kept."""


def place_of(page, selector):
    return page.evaluate(
        """selector => {
            const element = document.querySelector(selector);
            element.scrollIntoView({ block: "center", behavior: "instant" });
            const { x, y, width, height } = element.getBoundingClientRect();
            return [x + width / 2, y + height / 2];
        }""",
        selector,
    )


def press(page, selector, clicks=1):
    page.mouse.click(*place_of(page, selector), click_count=clicks)


def write(page, selector, text):
    press(page, selector)
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type(text)


def go_back(page):
    with suppress(sync_api.TimeoutError):  # Firefox shows a page that it has kept
        page.go_back(wait_until="commit", timeout=KEPT_SOON)


def shows(page, selector, text=""):
    def is_shown():
        try:
            found = page.evaluate("s => document.querySelector(s)?.textContent", selector)
        except sync_api.Error:  # a page that is being left
            return False
        return found is not None and text in found

    return until(is_shown, seconds=10)


def wider_than_the_window(page):
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
