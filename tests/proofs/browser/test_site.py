"""The documentation in a browser: on a phone, in the dark, by the keyboard, searched, copied."""

import importlib.util
import json
import re
import subprocess
import sys

import pytest
from flask import Flask
from helpers.callers.http_callers import serving
from helpers.callers.node import NODE
from helpers.repository import ROOT, text_of
from helpers.servers.processes import needed
from proofs.browser.browsers import DESKTOP, PHONE, violations

pytestmark = pytest.mark.browser

DOCS = ROOT / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if DOCS / "reports" not in page.parents]
BEYOND = """() => Math.max(...[document.documentElement, ...document.querySelectorAll(
  ".main, .content, .article-container, article")].map((box) => box.scrollWidth - innerWidth))"""
"""Pixels by which a page, or what holds its text, is too wide. Code and tables may scroll."""

HAN = re.compile(r"[\u4e00-\u9fff]")
SOURCE = "https://github.com/flask-idempotence/flask-idempotence/blob/main/docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    extensions = ("sphinx_copybutton", "sphinx_inline_tabs", "jieba")
    for package in ("sphinx", "myst_parser", "furo", *extensions):
        needed(importlib.util.find_spec(package), f"{package} is missing (uv run --group docs)")
    folder = tmp_path_factory.mktemp("site")
    for pages, output in ((DOCS, folder), (DOCS / "zh", folder / "zh")):
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", pages, output]
        subprocess.run(command, check=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def url(site):
    """Serve the site, because a search reads the pages that it has found."""
    with serving(Flask("site", static_folder=site, static_url_path="")) as url:
        yield url


def pages_of(site):
    pages = sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)
    assert len(pages) > 30
    return pages


def test_no_page_is_wider_than_a_phone(visit, site):
    page = visit(viewport=PHONE)
    wide = []
    for path in pages_of(site):
        page.goto(path.as_uri())
        beyond = page.evaluate(BEYOND)
        if beyond > 0:
            wide.append((path.name, beyond))
    assert wide == []


KINDS = [
    *("index", "search", "tutorial", "settings", "guarantees", "catalogue", "zh/index"),
    *("how-to/protect-a-form", "reference/api", "reference/cli"),
    "_modules/flask_idempotence/extension",
]
"""A page of each kind: tabs, tables, listings, pictures, generated text, Chinese."""

EVERY = pytest.param("light", DESKTOP, None, marks=pytest.mark.deep)


@pytest.mark.parametrize(
    ("scheme", "size", "names"), [("light", DESKTOP, KINDS), ("dark", PHONE, KINDS), EVERY]
)
def test_no_page_violates_wcag(visit, site, scheme, size, names):
    page = visit(viewport=size, color_scheme=scheme)
    if names is None:
        pages = [path for path in pages_of(site) if "_modules" not in path.parts]
    else:
        pages = [site / f"{name}.html" for name in names]
    found = {}
    for path in pages:
        page.goto(path.as_uri())
        found[path.name] = violations(page)
    assert {name: each for name, each in found.items() if each} == {}


def test_the_button_copies_the_command_of_a_block_and_not_its_output(visit, url):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.goto(f"{url}/reference/cli.html")
    blocks = page.locator(".highlight pre")
    assert page.locator("button.copybtn").count() == blocks.count() > 5
    block = page.locator(".highlight-console", has_text="idempotence doctor").first
    block.hover()
    block.get_by_role("button").click()
    page.locator("button.copybtn.success").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == "flask --app shop idempotence doctor"


def test_a_page_has_its_language_its_tabs_and_a_link_to_its_source(site):
    for path in PAGES:
        name = path.relative_to(DOCS)
        page = text_of((site / name).with_suffix(".html"))
        language = "zh-CN" if path.parent.name == "zh" else "en"
        assert f'<html class="no-js" lang="{language}"' in page, path
        assert page.count('class="tab-set ') == text_of(path).count("<!-- tabs -->"), path
        [link] = re.findall(r'(?s)<div class="view-this-page">\s*<a [^>]*href="([^"]+)"', page)
        assert link.removesuffix("?plain=true") == f"{SOURCE}/{name.as_posix()}"


FIRST = {
    "409": "reference/errors",
    "422": "reference/errors#key-reused",
    "503": "reference/errors#store-unavailable",
    "double click": "how-to/protect-a-form",
    "back button": "how-to/protect-a-form",
    "docker": "run-in-production",
    "swagger": "how-to/openapi",
    "upgrade": "upgrade",
    "timeout": "run-in-production#workers-and-their-time-limits",
    "rabbitmq": "how-to/consume-messages",
    "幂等": "zh/search.html?q=%E5%B9%82%E7%AD%89",
}
"""The page that a search shows first, or the other site that it leads to."""


def search(site, queries):
    """Ask Sphinx's own scripts, under node, for the pages of each query in their order."""
    needed(NODE, "node is missing")
    command = [NODE, ROOT / "tests" / "js" / "search.mjs", site]
    asked = json.dumps(list(queries)).encode()
    done = subprocess.run(command, input=asked, check=True, stdout=subprocess.PIPE, timeout=60)
    return json.loads(done.stdout)


def test_a_search_shows_the_right_page_first(site):
    found = search(site, FIRST)
    assert {query: pages[0] for query, pages in found.items()} == FIRST


def test_the_pages_that_have_a_word_of_everything_come_last(site):
    for query, pages in search(site, ["lock", "snowflake", "redis", "token"]).items():
        last = [page for page in pages if page.partition("#")[0] in {"catalogue", "changelog"}]
        assert last, query
        assert pages[-len(last) :] == last, query


CHINESE = {
    "409": "",
    "令牌": "protect-a-form",
    "幂等": "payments-api",
    "防重复提交怎么做": "tutorial",
}


def test_the_chinese_search_finds_numbers_and_words(site):
    for query, pages in search(site / "zh", CHINESE).items():
        assert any(page.startswith(CHINESE[query]) for page in pages), (query, pages)


def test_every_page_switches_to_the_other_language(site):
    switch = re.compile(r'<a class="other-language" href="([^"]+)" hreflang="([^"]+)"')
    there = {}
    for path in pages_of(site):
        [(target, language)] = switch.findall(text_of(path))
        there[path] = (path.parent / target).resolve()
        assert there[path].is_file(), path
        assert (language == "en") == (site / "zh" in path.parents) == ("zh/" not in target), path
    for page in (DOCS / "zh").glob("*.md"):
        chinese = site / "zh" / f"{page.stem}.html"
        if page.stem != "messages":
            assert there[there[chinese]] == chinese
    assert there[site / "coming-from-java.html"] == site / "zh" / "tutorial.html"
    assert there[site / "how-to" / "sql-store.html"] == site / "zh" / "sql-store.html"


def test_links_between_the_languages_lead_to_a_page_and_its_heading(site):
    link, found = re.compile(r'<a class="reference other-site" href="([^"]+)">'), 0
    for path in pages_of(site):
        is_chinese = site / "zh" in path.parents
        for target in link.findall(text_of(path)):
            page, _, heading = target.partition("#")
            there = (path.parent / page).resolve()
            assert (site / "zh" in there.parents) != is_chinese, (path, target)
            assert not heading or f'id="{heading}"' in text_of(there), (path, target)
            found += 1
    assert found > 80


def test_the_chinese_site_is_chinese(site):
    page = text_of(site / "zh" / "troubleshooting.html")
    [sidebar] = re.findall(r'(?s)<div class="sidebar-tree">(.*?)</div>', page)
    assert re.findall(r'class="caption-text">(.*?)<', sidebar) == ["入门", "指南", "运维", "参考"]
    titles = re.findall(r"toctree-l1[^>]*><a [^>]*>(.*?)<", sidebar)
    assert len(titles) == len(list((DOCS / "zh").glob("*.md"))) - 1
    assert all(HAN.search(title) for title in titles)
    for text in ('placeholder="搜索"', ">回到顶部<", "本页目录", ">下一页<", "跳到正文"):
        assert text in page
    assert not re.search(">(Back to top|Next|Previous|Home|Search)<|On this page|Made with", page)
