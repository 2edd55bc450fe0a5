"""Mouse and keyboard, without Playwright's checks, which some pages of Firefox do not answer.

Over WebDriver BiDi, Firefox announces no navigation to a page from its back/forward cache. Where
scripts are switched off, it settles no promise of Playwright's. Selectors are those of CSS.
"""

from contextlib import suppress

from helpers.servers.processes import until

try:
    from playwright import sync_api
except ImportError:
    sync_api = None

KEPT_SOON = 1500
"""Milliseconds in which a browser shows a page that it has kept."""


def place_of(page, selector):
    """Return the middle of an element, in the window."""
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
