"""The system's browsers, as Playwright starts them, and axe-core, which finds faults on a page."""

import os
import shutil

import pytest

try:
    from axe_playwright_python.sync_playwright import Axe
except ImportError:
    Axe = None

NAMES = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "firefox": ("firefox-esr", "firefox"),
}

in_each_browser = pytest.mark.parametrize("browser_name", NAMES)
"""Other tests are run in Chromium only."""


def nothing_to_drive(what):
    """Leave the test out; where the machine is there to run it, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI=true says that it must not be")
    pytest.skip(f"{what} is missing")


def start_browser(playwright, name, *, keeps_pages, scripts):
    """Start a browser; the options are those that hold for all of its pages."""
    path = next(filter(None, map(shutil.which, NAMES[name])), None)
    if path is None:
        nothing_to_drive(f"a browser (apt-get install {NAMES[name][0]})")
    if name == "firefox":
        return _start_firefox(playwright, path, keeps_pages=keeps_pages, scripts=scripts)
    # Playwright switches the back/forward cache off, which people have on.
    ignored = ["--disable-back-forward-cache"] if keeps_pages else None
    arguments = ["--disable-dev-shm-usage"]  # containers have little of it, and pages crash
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # root cannot have one
    return playwright.chromium.launch(
        executable_path=path, args=arguments, ignore_default_args=ignored
    )


def _start_firefox(playwright, path, *, keeps_pages, scripts):
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


def violations(page):
    """Return what on a page violates WCAG 2.1 AA."""
    if Axe is None:
        nothing_to_drive("axe-playwright-python (uv run --group browser)")
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
    found = Axe().run(page, options={"runOnly": rules, "resultTypes": ["violations"]})
    return [
        f"{violation['id']} at {node['target']}: {node['failureSummary']}"
        for violation in found.response["violations"]
        for node in violation["nodes"]
    ]
