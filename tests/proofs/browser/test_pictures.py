"""The pictures of the documentation, and whether they still show the example.

`EXAMPLE_SCREENSHOTS=1` retakes all of them. `pictures.json` has a digest of each page when its
picture was taken: its text without digits, and the files that draw it.
"""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest
from helpers.repository import ROOT
from helpers.servers.example import ask
from proofs.browser.browsers import run_lab

pytestmark = pytest.mark.browser

FOLDER = ROOT / "docs" / "_static"
DIGESTS = Path(__file__).with_name("pictures.json")
TAKES_THEM = bool(os.environ.get("EXAMPLE_SCREENSHOTS"))
REMEDY = "retake it: EXAMPLE_SCREENSHOTS=1 uv run --group browser pytest -m browser -k picture"

CONTENT = """part => {
  const copy = part.cloneNode(true);
  copy.querySelectorAll("#timeline, footer").forEach(each => each.remove());
  return copy.textContent;
}"""
"""The text of a part. The timeline's axis depends on the machine, the footer on the process."""


def shop(page, url, expect):
    page.goto(url)
    for _ in range(2):
        with page.expect_response("**/like"):
            page.get_by_role("button", name="Like the Teapot").click()
    message = page.locator("form[action$='teapot/like'] [role=status]")
    expect(message).to_contain_text("It counts once in five seconds")
    return page.locator("body")


def pay(page, url, expect):
    page.goto(url + "/pay?amount=34")
    page.get_by_role("button", name="Pay").click()
    expect(page.locator("#verdict")).to_have_text("Paid once.")
    crash = page.locator("section[aria-labelledby=steps-title], table:has(#steps)")
    crash.evaluate_all("parts => parts.forEach(each => each.remove())")
    return page.locator("body")


def lab(page, url, expect):
    run_lab(page, url, "key", 12, 1900)
    expect(page.locator("#verdict")).to_have_text("12 requests placed one order.")
    page.locator("#words").evaluate("each => each.remove()")
    return page.locator("#run")


PICTURES = {
    "example-shop": (shop, (1280, 800)),
    "example-pay": (pay, (1000, 820)),
    "example-lab": (lab, (1000, 1000)),
}
"""How a page gets into the state of its picture, and the size of the window."""

DARK = {"example-lab"}


def digest_of(part):
    page = part.page
    text = re.sub(r"\d+", "0", " ".join(part.evaluate(CONTENT).split()))
    files = page.evaluate("() => performance.getEntriesByType('resource').map(each => each.name)")
    sources = [ask(file).text for file in sorted(set(files)) if "/static/" in file]
    return hashlib.sha256("\n".join([text, *sources]).encode()).hexdigest()


def save(name, part):
    for scheme in ("dark", "light"):
        if scheme == "light" or name in DARK:
            part.page.emulate_media(color_scheme=scheme)
            suffix = "-dark" if scheme == "dark" else ""
            part.screenshot(path=FOLDER / f"{name}{suffix}.png")
    digests = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    digests[name] = digest_of(part)
    DIGESTS.write_text(json.dumps(digests, indent=2, sort_keys=True) + "\n")


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_the_page_as_it_is(visit, url, expect, name):
    prepare, (width, height) = PICTURES[name]
    part = prepare(visit(viewport={"width": width, "height": height}), url, expect)
    if TAKES_THEM:
        save(name, part)
    assert json.loads(DIGESTS.read_text())[name] == digest_of(part), REMEDY


def test_every_picture_of_the_example_is_taken_and_used():
    taken = {f"{name}.png" for name in PICTURES} | {f"{name}-dark.png" for name in DARK}
    assert {path.name for path in FOLDER.glob("example-*.png")} == taken
    pages = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    assert [name for name in taken if f"_static/{name}" not in pages] == []
