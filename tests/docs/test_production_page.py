"""The pages for those who run it: claims name the tests behind them, which are there."""

import re

import pytest
from helpers.servers.example import ROOT

DOCS = ROOT / "docs"
NAMED = re.compile(r"`((?:test_|Test)\w+)`")
PAGES = ["run-in-production", "choose-a-topology", "when-redis-fails", "how-to/gateway"]


def text_of(page):
    whole = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    return re.sub(r"(?ms)^```.*?^```$", "", whole)


def claims_of(page):
    """The items of the page's lists, each with its heading."""
    for section in re.split(r"(?m)^(?=##)", text_of(page))[1:]:
        heading = section.splitlines()[0]
        for item in re.findall(r"(?ms)^- (.*?)(?=^- |^\S|^$|\Z)", section):
            yield heading, item


def test_every_item_of_the_checklist_and_the_runbook_names_a_test():
    claims = list(claims_of("run-in-production"))
    assert len(claims) > 60
    assert [claim for claim in claims if not NAMED.search(claim[1])] == []


def test_the_checklist_is_in_order():
    headings = re.findall(r"(?m)^## (?:(\d+)\. )?", text_of("run-in-production"))
    numbered = [int(number) for number in headings if number]
    assert numbered == list(range(1, len(numbered) + 1))
    assert headings[len(numbered) :] == [""]  # the runbook


@pytest.mark.parametrize("page", PAGES)
def test_every_section_names_the_tests_behind_it(page):
    sections = re.split(r"(?m)^## ", text_of(page))[1:]
    assert [text.splitlines()[0] for text in sections if not NAMED.search(text)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_name_leads_to_one_test_or_to_namesakes_in_few_files(page):
    tests = {
        file: file.read_text(encoding="utf-8") for file in (ROOT / "tests").glob("**/test_*.py")
    }
    for name in sorted(set(NAMED.findall(text_of(page)))):
        found = [file.name for file, text in tests.items() if is_defined(name, text)]
        assert 1 <= len(found) <= 3, (name, found)


def is_defined(name, text):
    return re.search(rf"(?m)^(?: *def|class) {name}\b", text)


def test_every_alert_that_the_runbook_names_is_there():
    alerts = set(re.findall(r"- alert: (\w+)", (DOCS / "how-to/observe.md").read_text()))
    named = set(re.findall(r"`(Idempotence[A-Z]\w+)`", text_of("run-in-production")))
    assert len(named) == 3
    assert named - alerts == set()
