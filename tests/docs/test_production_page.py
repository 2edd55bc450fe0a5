"""The pages for those who run it: claims are marked, and the page of tests lists their tests."""

import re

import pytest
from helpers.repository import ROOT, headings, section

DOCS = ROOT / "docs"
TESTED = DOCS / "tested.md"
NAMED = re.compile(r"`((?:test_|Test)\w+)`")
MARK = "[✓]("
PAGES = ["run-in-production", "choose-a-topology", "when-redis-fails", "how-to/gateway"]


def text_of(page):
    whole = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    return re.sub(r"(?ms)^```.*?^```$", "", whole)


def claims_of(page):
    """The items of the page's lists, each with its heading."""
    for part in re.split(r"(?m)^(?=##)", text_of(page))[1:]:
        heading = part.splitlines()[0]
        for item in re.findall(r"(?ms)^- (.*?)(?=^- |^\S|^$|\Z)", part):
            yield heading, item


def test_every_item_of_the_checklist_and_the_runbook_has_a_mark():
    claims = list(claims_of("run-in-production"))
    assert len(claims) > 60
    assert [claim for claim in claims if MARK not in claim[1]] == []


def test_the_checklist_is_in_order():
    numbers = re.findall(r"(?m)^## (?:(\d+)\. )?", text_of("run-in-production"))
    numbered = [int(number) for number in numbers if number]
    assert numbered == list(range(1, len(numbered) + 1))
    assert numbers[len(numbered) :] == [""]  # the runbook


@pytest.mark.parametrize("page", PAGES)
def test_every_section_has_a_mark(page):
    sections = re.split(r"(?m)^## ", text_of(page))[1:]
    assert [text.splitlines()[0] for text in sections if MARK not in text] == []


@pytest.mark.parametrize("heading", headings(TESTED, 2))
def test_every_name_leads_to_one_test_or_to_namesakes_in_few_files(heading):
    tests = {
        file: file.read_text(encoding="utf-8") for file in (ROOT / "tests").glob("**/test_*.py")
    }
    for name in sorted(set(NAMED.findall(section(TESTED, heading)))):
        found = [file.name for file, text in tests.items() if is_defined(name, text)]
        assert 1 <= len(found) <= 3, (name, found)


def is_defined(name, text):
    return re.search(rf"(?m)^(?: *def|class) {name}\b", text)


def test_every_alert_that_the_runbook_names_is_there():
    alerts = set(re.findall(r"- alert: (\w+)", (DOCS / "how-to/observe.md").read_text()))
    named = set(re.findall(r"`(Idempotence[A-Z]\w+)`", text_of("run-in-production")))
    assert len(named) == 3
    assert named - alerts == set()
