"""Violations of WCAG 2.1 AA, found by axe-core."""

from proofs.browser.conftest import nothing_to_drive

try:
    from axe_playwright_python.sync_playwright import Axe
except ImportError:
    Axe = None

WCAG_21_AA = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


def violations(page):
    if Axe is None:
        nothing_to_drive("axe-playwright-python (uv run --group browser)")
    found = Axe().run(page, options={"runOnly": WCAG_21_AA, "resultTypes": ["violations"]})
    return [
        f"{violation['id']} at {node['target']}: {node['failureSummary']}"
        for violation in found.response["violations"]
        for node in violation["nodes"]
    ]
