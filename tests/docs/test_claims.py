"""The page of claims and tests: each row names a test, and each guarantee's mark has its row."""

import re
from pathlib import Path

import pytest
from helpers.repository import PAGES, ROOT, headings, section, text_of

pytestmark = pytest.mark.prose

DOCS = ROOT / "docs"
REPORTS = DOCS / "reports"
TESTED = REPORTS / "tested.md"
MARK = r"\[✓\]\((?:(?:\.\./)*reports/)?tested\.md#([\w-]+)\)"
NAME = r"`(?:\w+\.py::)?((?:test_|Test)\w+)[^`]*`"
NAMED = re.compile(r"`((?:test_|Test)\w+(?:\.py)?)(?:\[[^`]*)?`")
MARKED = [
    *("reports/architecture", "choose-a-scheme", "choose-a-topology", "guarantees", "identity"),
    "content",
    *("security", "sql-techniques", "when-redis-fails"),
]
"""Pages that explain; how-tos and reports have no marks."""


def slug(heading):
    return heading.lower().replace(" ", "-")


def rows(heading):
    return re.findall(r"(?m)^\| (?!Claim \|)(.+?) \| (.+) \|$", section(TESTED, heading))


SECTIONS = {slug(heading): heading for heading in headings(TESTED, 2)}


@pytest.mark.parametrize("page", MARKED)
def test_a_page_has_a_mark_for_each_row_of_its_section(page):
    """It leads to the row, if that has an anchor, or else to the section."""
    claims = [claim for claim, _ in rows(SECTIONS[Path(page).stem])]
    anchors = [re.match('<a id="(.+?)">', claim) for claim in claims]
    targets = [found[1] if found else Path(page).stem for found in anchors]
    assert re.findall(MARK, text_of(DOCS / f"{page}.md")) == targets
    assert targets


def test_no_other_page_has_marks():
    marked = [DOCS / f"{page}.md" for page in MARKED]
    pages = [page for page in DOCS.rglob("*.md") if page.parent.name != "zh"]
    assert [page for page in pages if page not in marked and "[✓]" in text_of(page)] == []


@pytest.mark.parametrize("heading", SECTIONS.values())
def test_a_section_links_to_its_page_and_each_claim_names_a_test(heading):
    [target] = re.findall(r"(?m)^\[.+\]\((.+\.md)\)$", section(TESTED, heading))
    assert (REPORTS / target).stem == slug(heading)
    assert (REPORTS / target).exists()
    assert rows(heading)
    for claim, tests in rows(heading):
        assert re.search(NAME, tests), claim


def test_each_test_that_is_named_exists_once_or_in_few_files():
    folders = (ROOT / "tests", ROOT / "example_app")
    files = {path: text_of(path) for folder in folders for path in folder.rglob("*.py")}
    where = {}
    for path, text in files.items():
        for name in {path.name, *re.findall(r"(?m)^ *(?:def|class) ((?:test_|Test)\w+)", text)}:
            where.setdefault(name, set()).add(path)
    # The report on the applications of others names tests of theirs.
    pages = [page for page in PAGES if page != REPORTS / "applications.md"]
    named = {name for page in pages for name in NAMED.findall(text_of(page))}
    assert len(named) > 700
    assert sorted(name for name in named if not 1 <= len(where.get(name, ())) <= 3) == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if REPORTS not in page.parents],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_running_text_names_no_test(page):
    code = r"(?ms)^```.*?^```$"
    assert re.findall(NAME, re.sub(code, "", text_of(page))) == []


def test_the_page_of_the_draft_names_each_test_of_a_requirement_and_each_requirement_has_one():
    page = text_of(REPORTS / "draft-requirements.md")
    named = {}
    for file, name in re.findall(r"`(test_\w+\.py)::(test_\w+)`", page):
        named.setdefault(file, set()).add(name)
    for file, names in named.items():
        texts = [text_of(path) for path in (ROOT / "tests").rglob(file)]
        defined = set(re.findall(r"(?m)^def (test_\w+)", "\n".join(texts)))
        assert names <= defined, file
        assert file != "test_draft.py" or names == defined
    rows = re.findall(r"(?m)^\| \d.*", page)
    assert len(rows) > 20
    assert [row for row in rows if "::test_" not in row and "the client" not in row] == []
