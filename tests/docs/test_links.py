"""The pages are few and short, and their links lead to files."""

import re

import pytest
from helpers.repository import PAGES, README, ROOT, text_of

pytestmark = pytest.mark.prose


def test_the_readme_is_short_and_names_the_commands():
    text = text_of(README)
    assert len(text.splitlines()) <= 130
    assert len(text.split()) <= 800
    lines = "".join(re.findall(r"(?ms)^```sh\n(.*?)^```$", text)).splitlines()
    example = "uv run --no-default-groups --group example flask --app example_app run"
    for command in (example, "uv run pytest"):
        assert lines.count(f"pip install uv && {command}") == 1


def test_the_site_has_few_pages_and_a_short_sidebar():
    docs = ROOT / "docs"
    elsewhere = {docs / "reports", docs / "zh"}
    pages = [page for page in docs.rglob("*.md") if elsewhere.isdisjoint(page.parents)]
    assert len(pages) <= 46
    trees = re.findall(r"(?ms)^```{toctree}\n(.*?)^```$", text_of(docs / "index.md"))
    links = [line for tree in trees for line in tree.splitlines() if line and line[0] != ":"]
    assert 30 < len(links) <= 36


def test_the_landing_page_leads_to_few_pages_and_needs_no_redis():
    page = text_of(ROOT / "docs" / "index.md")
    assert len(re.findall(r"\]\(", page)) <= 15
    listings = "".join(re.findall(r"(?ms)^```python\n(.*?)^```$", page))
    assert "STORAGE_URI" not in re.sub("#.*", "", listings)
    assert "pip install flask-idempotence\n" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_links_to_is_there(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text_of(page)):
        assert (page.parent / target).exists(), target
