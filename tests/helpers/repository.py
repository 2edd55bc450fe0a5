"""The root of the repository, and the pages of its documentation."""

import re

from flask_idempotence import Refusal
from flask_idempotence.response import refusals
from helpers import ROOT

README = ROOT / "README.md"
REFERENCE = ROOT / "docs" / "reference"
CHINESE = ROOT / "README.zh-CN.md"
PAGES = [README, CHINESE, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/[a-z]*.md"))]

REFUSALS = {
    error.slug: error
    for error in vars(refusals).values()
    if isinstance(error, type) and issubclass(error, Refusal) and "slug" in vars(error)
}
"""By what they are called over HTTP; `Running` shares its slug with the error it is a kind of."""


def text_of(page):
    return page.read_text(encoding="utf-8")


def section(page, title):
    found = re.search(rf"(?ms)^(##+) {re.escape(title)}\n(.*?)(?=^\1 |\Z)", text_of(page))
    assert found, f"{page.name} has no section {title!r}"
    return found[2]


def headings(page, level):
    return re.findall(rf"(?m)^{'#' * level} (.+)$", text_of(page))
