"""The marks of tested claims: each leads to a row of the page that lists claim and test."""

import re

import pytest
from helpers.repository import ROOT, headings, section, text_of

DOCS = ROOT / "docs"
TESTED = DOCS / "tested.md"
MARK = r"\[✓\]\((?:\.\./)*tested\.md#([\w-]+)\)"
NAME = r"`(?:\w+\.py::)?((?:test_|Test)\w+)[^`]*`"
ABOUT_TESTS = {"tested.md", "test-the-package.md", "architecture.md", "draft-requirements.md"}
"""Pages that are about tests, and the table of the draft, of requirements and tests."""
NAMES_TESTS = {"mutation.md"}
"""Pages whose subject is which test finds a change; their claims have marks all the same."""


def pages():
    return [page for page in sorted(DOCS.rglob("*.md")) if page.name not in ABOUT_TESTS]


def in_english():
    """Leave out the Chinese pages, whose claims are those of the English ones."""
    return [page for page in pages() if page.parent.name != "zh"]


def slug(heading):
    return heading.lower().replace(" ", "-")


def rows(heading):
    return re.findall(r"(?m)^\| (?!Claim \|)(.+?) \| (.+) \|$", section(TESTED, heading))


@pytest.mark.parametrize("page", in_english(), ids=lambda page: page.stem)
def test_a_page_has_a_mark_for_each_row_of_its_section(page):
    listed = {slug(heading): rows(heading) for heading in headings(TESTED, 2)}
    marks = re.findall(MARK, text_of(page))
    assert set(marks) <= {page.stem}
    assert len(marks) == len(listed.get(page.stem, []))


@pytest.mark.parametrize("heading", headings(TESTED, 2))
def test_a_section_links_to_its_page_and_each_claim_names_a_test(heading):
    [target] = re.findall(r"(?m)^\[.+\]\((.+\.md)\)$", section(TESTED, heading))
    assert (DOCS / target).stem == slug(heading)
    assert (DOCS / target).exists()
    assert rows(heading)
    for claim, tests in rows(heading):
        assert re.search(NAME, tests), claim


def test_each_test_that_is_named_exists():
    folders = (ROOT / "tests", ROOT / "example_app")
    files = [path for folder in folders for path in folder.rglob("*.py")]
    known = {path.name for path in files} | {
        name
        for path in files
        for name in re.findall(r"(?m)^ *(?:def|class) ((?:test_|Test)\w+)", text_of(path))
    }
    named = re.findall(r"`((?:test_|Test)\w+(?:\.py)?)(?:\[[^`]*)?`", text_of(TESTED))
    assert len(named) > 700
    assert sorted(set(named) - known) == []


@pytest.mark.parametrize(
    "page",
    [page for page in pages() if page.name not in NAMES_TESTS],
    ids=lambda page: page.stem,
)
def test_the_running_text_names_no_test(page):
    code = r"(?ms)^```.*?^```$"
    assert re.findall(NAME, re.sub(code, "", text_of(page))) == []
