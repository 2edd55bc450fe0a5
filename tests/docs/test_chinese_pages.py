"""The Chinese pages have the code, outline, links, names and figures of the English ones."""

import re
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import NamedTuple

import pytest
from helpers.http_transcripts import CONTINUES
from helpers.repository import CHINESE, README, ROOT, headings, section, text_of

import flask_idempotence

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
    """An English page in a Chinese one.

    Attributes:
        page: its path below docs/.
        depth: by how much its headings are deeper there.
        sections: those that are translated, besides the introduction; all without it.
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


IN_ENGLISH_ONLY = {"A table of your database", "RQ", "Kafka"}
MESSAGES = "how-to/consume-messages.md"
TRANSLATED = [title for title in headings(DOCS / MESSAGES, 2) if title not in IN_ENGLISH_ONLY]
TWINS = {
    "zh/tutorial.md": (Part("tutorial.md"), Part("coming-from-java.md", 1)),
    "zh/choose-a-scheme.md": (Part("choose-a-scheme.md"),),
    "zh/catalogue.md": (Part("catalogue.md"),),
    "zh/sql-techniques.md": (Part("sql-techniques.md"),),
    "zh/consume-messages.md": (Part(MESSAGES, 0, tuple(TRANSLATED)),),
    "zh/payment-callbacks.md": (Part("how-to/payment-callbacks.md"),),
}


def english(page):
    return "\n".join(part.text for part in TWINS[page])


def prose(text):
    return re.sub(BLOCK, "", text)


def outline(text):
    """Return the levels and slugs of the headings."""
    found = re.findall(r"(?m)^(#+) (.+)$", prose(text))
    return [(len(marks), slug(title)) for marks, title in found]


def slug(title):
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


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
    """Return the targets inside the documentation, as paths from docs/."""
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
    placeholders = [sorted(re.findall(r"\{.*?\}|%\w|\\\w", each)) for each in (text, translated)]
    same = placeholders[0] == placeholders[1]
    return same and bool(HAN.search(translated)) and not HAN.search(text)


def hold_blocks_equal(text, translated):
    pairs = zip_longest(re.findall(BLOCK, text), re.findall(BLOCK, translated), fillvalue="")
    for first, second in pairs:
        assert untranslated(first, second) == [], second


def test_each_chinese_page_has_a_twin():
    pages = {f"zh/{page.name}" for page in (DOCS / "zh").glob("*.md")}
    assert pages == {*TWINS, "zh/index.md"}
    listed = re.findall(r"(?m)^[\w-]+$", text_of(DOCS / "zh" / "index.md").split("```")[1])
    assert listed == [PurePosixPath(page).stem for page in TWINS]


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
    assert meant - allowed <= {part.page for part in TWINS[page]}


@pytest.mark.parametrize("page", TWINS)
def test_a_chinese_page_names_no_other_code_and_no_less_of_the_package(page):
    pages = [each for each in DOCS.glob("**/[a-z]*.md") if each.parent.name != "zh"]
    known = " ".join(" ".join(map(text_of, pages)).split())
    named = names(text_of(DOCS / page))
    assert {name for name in named - SPRING if not HAN.search(name) and name not in known} == set()
    package = {f"`{name}`" for name in flask_idempotence.__all__}
    ours = {name for name in names(english(page)) if name in package or "IDEMPOTENCE_" in name}
    assert ours - named == set()


@pytest.mark.parametrize(
    "page", [CHINESE, *sorted((DOCS / "zh").glob("*.md"))], ids=lambda page: page.name
)
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
    links = re.compile(r"(?m)^\[.+\]\(README(\.zh-CN)?\.md\)$")
    assert len(links.findall(text_of(page))) == 1
    return links.sub("", text_of(page))
