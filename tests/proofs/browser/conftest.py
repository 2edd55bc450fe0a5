"""A real browser, and the shop or the example that it visits."""

import pytest
from helpers.servers.example import FlaskRun, ask
from helpers.servers.processes import needed
from proofs.browser.browsers import start_browser, sync_api
from proofs.browser.shop import running_shop


@pytest.fixture(scope="session")
def launch():
    needed(sync_api, "playwright or axe is missing (uv run --group browser)")
    with sync_api.sync_playwright() as playwright:
        running = {}

        def of_kind(*which):
            if which not in running:
                running[which] = start_browser(playwright, *which)
            return running[which]

        yield of_kind
        for browser in running.values():
            browser.close()


@pytest.fixture
def browser_name():
    """Chromium, where a test does not say `in_each_browser`."""
    return "chromium"


@pytest.fixture
def visit(launch, browser_name):
    """Return a function that opens a visitor's first tab; nothing may go wrong on its pages."""
    contexts, problems = [], []

    def note_error(said):
        # For Firefox, a request that another site does not allow is an error of the page.
        if "Same Origin Policy disallows" not in str(said.error):
            problems.append(str(said.error))

    def note_violation(said):
        if "Content Security Policy" in said.text or "Trusted" in said.text:
            problems.append(said.text)

    def open_tab(*, keeps_pages=True, java_script_enabled=True, **options):
        if browser_name == "chromium":
            options["java_script_enabled"] = java_script_enabled
            java_script_enabled = True
        browser = launch(browser_name, keeps_pages, java_script_enabled)
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(30_000)
        context.on("weberror", note_error)
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
    with running_shop() as running:
        yield running


@pytest.fixture(scope="module")
def running():
    with FlaskRun() as server:
        yield server


@pytest.fixture
def url(running):
    ask(running.url + "/orders/clear", {})
    return running.url


@pytest.fixture
def expect(visit):
    sync_api.expect.set_options(timeout=30_000)
    return sync_api.expect
