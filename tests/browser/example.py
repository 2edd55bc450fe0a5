"""The example, running for a browser."""

import os
from pathlib import Path

import pytest
from helpers.servers.example import FlaskRun, ask

try:
    from playwright import sync_api
except ImportError:
    sync_api = None

SCREENSHOTS = os.environ.get("EXAMPLE_SCREENSHOTS")
"""A folder for pictures of the pages, such as `docs/_static`; without it none are taken."""


def start(folder, **settings):
    environment = {**os.environ, "EXAMPLE_DATABASE": str(folder / "shop.sqlite3")}
    environment |= {f"FLASK_IDEMPOTENCE_{name}": str(value) for name, value in settings.items()}
    return FlaskRun(env=environment)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with start(tmp_path_factory.mktemp("shop")) as server:
        yield server


@pytest.fixture
def url(running):
    """Where the example is, with nothing ordered."""
    ask(running.url + "/orders/clear", {})
    return running.url


@pytest.fixture
def expect(visit):
    """Playwright's assertions, with patience."""
    sync_api.expect.set_options(timeout=15_000)
    return sync_api.expect


def picture(part, name):
    """Take a picture of a page, or of a part, for the documentation, if that is wanted."""
    if SCREENSHOTS:
        Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
        part.screenshot(path=Path(SCREENSHOTS, f"{name}.png"))


def pictures(page, part, name):
    """Take one for readers of light pages, and one for those of dark pages."""
    for scheme, suffix in (("dark", "-dark"), ("light", "")):
        page.emulate_media(color_scheme=scheme)
        picture(part, name + suffix)
