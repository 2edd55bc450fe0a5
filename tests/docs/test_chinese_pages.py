"""The Chinese pages have the code, outline, links, names and figures of the English ones."""

import re
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import NamedTuple

import pytest
from helpers.http_transcripts import CONTINUES
from helpers.repository import CHINESE, README, REFUSALS, ROOT, headings, section, text_of

import flask_idempotence

pytestmark = pytest.mark.prose

DOCS = ROOT / "docs"
BLOCK = rf"(?ms)^(?:{CONTINUES}\n+)?```\S.*?^```$"
TEXT = re.compile(r'(?m)("[^"\n]*"|>[^<>\n]+<|^\w[^"\n]*[.。]$)')
HAN = re.compile(r"[\u4e00-\u9fff]")
SPRING = {
    *("`@Aspect`", "`@Around`", "`@RestControllerAdvice`", "`@Transactional`"),
    *("`HandlerInterceptor`", "`preHandle`", "`Result`"),
}
"""Names of Spring on the page for its users."""


class Part(NamedTuple):
    """An English page in a Chinese one, with its headings so much deeper there.

    Without sections, all of it; else those, and the introduction.
    """

    page: str
    depth: int = 0
    sections: tuple[str, ...] = ()

    @property
    def text(self):
        whole = text_of(DOCS / self.page)
        if not self.sections:
            return whole
        chosen = (f"\n## {title}\n{section(DOCS / self.page, title)}" for title in self.sections)
        return whole.partition("\n## ")[0] + "".join(chosen)


IN_ENGLISH_ONLY = {"A table of your database", "RQ", "Kafka", "Reference", "Class-based views"}
SHORTER = {"consume-messages", "test-your-application", "existing-application"}
"""Pages without those sections."""

ONLY_CHINESE = {"zh/index.md", "zh/messages.md"}


def twin_of(page):
    folders = ("", "how-to/", "reference/")
    english = next(f"{each}{page.name}" for each in folders if (DOCS / each / page.name).exists())
    sections = ()
    if page.stem in SHORTER:
        titles = headings(DOCS / english, 2)
        sections = tuple(title for title in titles if title not in IN_ENGLISH_ONLY)
    return Part(english, 0, sections)


CHINESE_PAGES = sorted((DOCS / "zh").glob("*.md"))
TWINS = {
    f"zh/{page.name}": (twin_of(page),)
    for page in CHINESE_PAGES
    if f"zh/{page.name}" not in ONLY_CHINESE
}
TWINS["zh/tutorial.md"] += (Part("coming-from-java.md", 1),)


def english(page):
    return "\n".join(part.text for part in TWINS[page])


def prose(text):
    return re.sub(BLOCK, "", text)


def outline(text):
    found = re.findall(r"(?m)^(#+) (.+)$", prose(text))
    return [(len(marks), slug(title)) for marks, title in found]


def slug(title):
    return re.sub(r"[ _]", "-", re.sub(r"[^\w\- ]", "", title.lower()))


def english_places():
    """Map each Chinese page and heading to the English one: `page.md` or `page.md#slug`."""
    places = {"zh/index.md": "index.md"}
    for page, parts in TWINS.items():
        headings = [
            part.page if level == 1 else f"{part.page}#{anchor}"
            for part in parts
            for level, anchor in outline(part.text)
        ]
        for (level, anchor), place in zip(outline(text_of(DOCS / page)), headings, strict=True):
            places[page if level == 1 else f"{page}#{anchor}"] = place
    return places


def links(text, page):
    labels = dict(re.findall(r"(?m)^\(([\w-]+)\)=\n#+ (.+)$", text))
    found = set()
    for path, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", prose(text)):
        target = (DOCS / page).parent.joinpath(path).resolve() if path else DOCS / page
        place = PurePosixPath(target).relative_to(DOCS).as_posix()
        found.add(f"{place}#{slug(labels.get(anchor, anchor))}" if anchor else place)
    return found


def names(text):
    return set(re.findall(r"`[^`\n]+`", prose(text)))


def untranslated(first, second):
    """Return the pieces of two blocks that differ and are no text and its translation."""
    pieces = (TEXT.split(re.sub(r"(?m) *# .*$", "", block)) for block in (first, second))
    return [
        pair
        for pair in zip_longest(*pieces, fillvalue="")
        if pair[0] != pair[1] and not is_translation(*pair)
    ]


def is_translation(text, translated):
    if not TEXT.fullmatch(text) or not TEXT.fullmatch(translated):
        return False
    without_defaults = [re.sub(r' or "[^"]*"', "", each) for each in (text, translated)]
    first, second = (sorted(re.findall(r"\{.*?\}|%\w|\\\w", each)) for each in without_defaults)
    return first == second and bool(HAN.search(translated)) and not HAN.search(text)


def hold_blocks_equal(text, translated):
    translated = translated.replace('<html lang="zh-CN">', '<html lang="en">')
    pairs = zip_longest(re.findall(BLOCK, text), re.findall(BLOCK, translated), fillvalue="")
    for first, second in pairs:
        assert untranslated(first, second) == [], second


def test_the_index_in_chinese_lists_each_page():
    trees = re.findall(r"(?ms)^```{toctree}\n(.*?)^```$", text_of(DOCS / "zh" / "index.md"))
    listed = re.findall(r"(?m)^.+ <([\w-]+)>$", "".join(trees))
    assert sorted([*listed, "index"]) == sorted(page.stem for page in CHINESE_PAGES)


def test_the_texts_in_chinese_are_complete():
    """The listing runs, as every other one does."""
    texts = re.findall(r'(?m)^        "([a-z-]+)": "(.*)",$', text_of(DOCS / "zh" / "messages.md"))
    assert [slug for slug, _ in texts] == list(REFUSALS)
    assert all(HAN.search(text) for _, text in texts)


@pytest.mark.parametrize("page", TWINS)
def test_the_blocks_of_a_chinese_page_differ_in_their_texts_only(page):
    hold_blocks_equal(english(page), text_of(DOCS / page))


@pytest.mark.parametrize("page", TWINS)
def test_a_chinese_page_has_the_outline_of_its_twin(page):
    levels = [level + part.depth for part in TWINS[page] for level, _ in outline(part.text)]
    assert [level for level, _ in outline(text_of(DOCS / page))] == levels


@pytest.mark.parametrize("page", TWINS)
def test_a_chinese_page_links_where_its_twin_does_and_to_chinese_where_there_is_one(page):
    places = english_places()
    targets = links(text_of(DOCS / page), page)
    assert targets & set(places.values()) == set()
    claims = {"reports/tested.md#sql-techniques"}
    meant = {places.get(target, target) for target in targets} - claims
    allowed = {link for part in TWINS[page] for link in links(part.text, part.page)}
    assert meant - allowed <= {part.page for part in TWINS[page]} | ONLY_CHINESE


@pytest.mark.parametrize("page", TWINS)
def test_a_chinese_page_names_no_other_code_and_no_less_of_the_package(page):
    pages = [each for each in DOCS.glob("**/[a-z]*.md") if each.parent.name != "zh"]
    known = " ".join(" ".join(map(text_of, pages)).split())
    named = names(text_of(DOCS / page))
    assert {name for name in named - SPRING if not HAN.search(name) and name not in known} == set()
    package = {f"`{name}`" for name in flask_idempotence.__all__}
    ours = {name for name in names(english(page)) if name in package or "IDEMPOTENCE_" in name}
    assert ours - named == set()


@pytest.mark.parametrize("page", [CHINESE, *CHINESE_PAGES], ids=lambda page: page.name)
def test_bold_text_is_rendered_bold(page):
    """Markdown closes bold text after punctuation only before a blank or other punctuation."""
    for line in prose(text_of(page)).splitlines():
        pieces = line.split("**")
        for inside, after in zip(pieces[1::2], pieces[2::2], strict=True):
            assert not (re.search(r"[^\w\s]$", inside) and re.match(r"\w", after)), line


@pytest.mark.parametrize("page", TWINS)
def test_a_chinese_page_has_the_figures_of_its_twin(page):
    cells = r"(?<=\| )(?=[^|\n]*\d)[\d.,%/ ]+(?= \|)"
    figures = re.findall(cells, english(page))
    assert re.findall(cells, text_of(DOCS / page)) == figures


def test_the_readme_in_chinese_has_all_that_the_english_one_has():
    """What is not prose is the same: blocks and headings in their order, links, names of code."""
    texts = [without_links_to_each_other(page) for page in (README, CHINESE)]
    hold_blocks_equal(*texts)
    first, second = map(prose, texts)
    for pattern in (r"(?m)^#+ ", r"(?m)^(?:\||- )"):  # headings; rows and items
        assert re.findall(pattern, first) == re.findall(pattern, second)
    assert sorted(re.findall(r"`[^`]+`", first)) == sorted(re.findall(r"`[^`]+`", second))
    chinese = {f"docs/{place}": f"docs/{page}" for page, place in english_places().items()}
    targets = [re.findall(r"\]\(([^)]+)\)", text) for text in (first, second)]
    assert sorted(chinese.get(target, target) for target in targets[0]) == sorted(targets[1])


def without_links_to_each_other(page):
    links = re.compile(r"(?m)^\[.+\]\(README(\.zh-CN)?\.md\) · \[中文文档\]\(docs/zh/index\.md\)$")
    assert len(links.findall(text_of(page))) == 1
    return links.sub("", text_of(page))
