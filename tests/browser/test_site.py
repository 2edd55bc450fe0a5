"""The documentation in a browser: on a phone, in the dark, and searched."""

import importlib.util
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser.conftest import nothing_to_drive

pytestmark = pytest.mark.browser

DOCS = Path(__file__).parent.parent.parent / "docs"
BEYOND = """() => Math.max(...[document.documentElement, ...document.querySelectorAll(
  ".main, .content, .article-container, article")].map((box) => box.scrollWidth - innerWidth))"""
"""Pixels by which a page, or what holds its text, is too wide. Code and tables may scroll."""

PHONE = {"width": 360, "height": 780}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the pages, and return their folder."""
    for package in ("sphinx", "myst_parser", "furo"):
        if importlib.util.find_spec(package) is None:
            nothing_to_drive(f"{package} (uv run --group browser --group docs)")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", DOCS, folder]
    subprocess.run(command, check=True, timeout=300)
    return folder


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def url(site):
    """Serve the site, because a search reads the pages that it has found."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_no_page_is_wider_than_a_phone(visit, site):
    page = visit(viewport=PHONE)
    wide = []
    pages = sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)
    for path in pages:
        page.goto(path.as_uri())
        beyond = page.evaluate(BEYOND)
        if beyond > 0:
            wide.append((path.name, beyond))
    assert wide == []
    assert len(pages) > 30


@pytest.mark.parametrize(("scheme", "picture"), [("light", "lab.png"), ("dark", "lab-dark.png")])
def test_the_lab_is_shown_in_the_colours_of_the_page(visit, site, scheme, picture):
    page = visit(viewport=PHONE, color_scheme=scheme)
    page.goto((site / "index.html").as_uri())
    pictures = page.locator("article img")
    shown = [each for each in pictures.all() if each.is_visible()]
    assert [each.get_attribute("src") for each in shown] == [f"_images/example-{picture}"]
    assert pictures.count() == 2
    assert shown[0].get_attribute("alt")
    assert shown[0].evaluate("image => image.complete && image.naturalWidth > 0")


def test_a_word_leads_to_its_page(visit, url):
    page = visit()
    page.goto(f"{url}/search.html?q=fingerprint")
    found = page.locator("#search-results li", has_text="Who asks, and for what").first
    found.locator("p.context").wait_for()  # with the lines around it
    found.get_by_role("link").first.click()
    page.wait_for_url(f"{url}/identity.html*")
