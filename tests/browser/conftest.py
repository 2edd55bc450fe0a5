"""A real browser, and the shop that it visits."""

import os
import shutil

import pytest
from browser.shop import Shop

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None

NAMES = ("chromium", "chromium-browser", "google-chrome")


def nothing_to_drive(what):
    """Leave the test out; where the machine is there to run it, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI=true says that it must not be")
    pytest.skip(f"{what} is missing")


@pytest.fixture(scope="session")
def launch():
    """Return a function that starts the system's browser, or gives the one that runs."""
    if sync_playwright is None:
        nothing_to_drive("playwright (uv run --group browser)")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        nothing_to_drive(f"a browser ({', '.join(NAMES)})")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # root cannot have one
    with sync_playwright() as playwright:
        running = {}

        def start(keeps_pages):
            # Playwright switches the back/forward cache off, which people have on.
            ignored = ["--disable-back-forward-cache"] if keeps_pages else None
            if keeps_pages not in running:
                running[keeps_pages] = playwright.chromium.launch(
                    executable_path=found, args=sandbox, ignore_default_args=ignored
                )
            return running[keeps_pages]

        yield start
        for browser in running.values():
            browser.close()


@pytest.fixture
def visit(launch):
    """Return a function that opens a visitor's first tab; nothing may go wrong on its pages."""
    contexts, problems = [], []

    def note_violation(said):
        if "Content Security Policy" in said.text or "Trusted" in said.text:
            problems.append(said.text)

    def open_tab(*, keeps_pages=True, **options):
        context = launch(keeps_pages).new_context(**options)
        contexts.append(context)
        context.set_default_timeout(10_000)
        context.on("weberror", lambda error: problems.append(str(error.error)))
        context.on("console", note_violation)
        context.add_init_script(
            "addEventListener('pageshow', event => { globalThis.kept = event.persisted })"
        )
        return context.new_page()

    yield open_tab
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def shop():
    """The shop, on a port of its own."""
    with Shop() as running:
        yield running
