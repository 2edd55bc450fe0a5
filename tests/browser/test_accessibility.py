"""The example's pages by the rules of WCAG 2.1 AA: light and dark, on a phone and a desktop."""

# ruff: noqa: F811 (a fixture is imported, and then an argument)
import pytest
from browser.axe import violations
from browser.example import running, url  # noqa: F401 - fixtures

pytestmark = pytest.mark.browser

PATHS = ("/", "/products/mug", "/checkout/mug", "/pay", "/orders", "/lab", "/recipes")
SIZES = {"phone": {"width": 360, "height": 780}, "desktop": {"width": 1280, "height": 800}}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_violates_wcag(visit, url, scheme, size):
    page = visit(viewport=SIZES[size], color_scheme=scheme)
    found = {}
    for path in PATHS:
        page.goto(url + path)
        found[path] = violations(page)
    assert {path: each for path, each in found.items() if each} == {}


def test_a_violation_is_found(visit):
    page = visit()
    page.set_content('<html lang="en"><title>Pale</title><p style="color: #ccc">Pale</p><input>')
    rules = sorted(violation.split()[0] for violation in violations(page))
    assert rules == ["color-contrast", "label"]
