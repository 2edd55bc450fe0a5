"""The words of pages, strings and comments: `CONTRIBUTING.md` has the list for people."""
# ruff: noqa: RUF001 (Chinese punctuation)

import functools
import re

import pytest
from helpers.repository import CHINESE, PAGES, ROOT, text_of
from helpers.wings import PACKAGE

pytestmark = pytest.mark.prose

PERSONS = ("user", "users", "visitor", "client", "clients", "people", "those", "one")
AFTER_NO_PERSON = "".join(rf"(?<!\b{person}\s)" for person in PERSONS)

ENGLISH = {
    r"(?i:\b(?:who|what)(?:so)?ever\b)": 'name it: "every client", "any sender", "always"',
    r"(?i:\b(?:is|are|was|were|be|been|being)(?: \w+)? told\b)": 'name the message: "gets", '
    '"the response says", "distinguished" for "told apart"',
    r"(?i:\bat it\b)": 'name the work: "runs", "handles the order"',
    r"(?i:\bto be had\b)": '"available"',
    # Questions may ask so: a sentence that begins with the word, or ends with a question mark.
    r"\bwhat (?:is|are|was|has|have|had|does|stands|holds|comes)\b(?![^.!|]*\?)": "use the noun: "
    '"the record", "the content", "the state"',
    rf"{AFTER_NO_PERSON}\bwho (?:is|has|have|was)\b(?![^.!|]*\?)": 'use the noun: "the owner"',
    r"(?i:\bstands?\b(?! for\b))": '"is", "remains", "holds"',
    r"(?i:\bhad better\b)": '"should"',
    r"(?i:\banew\b)": '"again"',
    r"(?i:\bno matter\b)": '"regardless of", or leave it out',
    r"(?i:\bsome(?:body|one)\b)": 'a noun: "another user", "a second worker"',
    r"(?i:\bin vain\b)": '"without success"',
    r"(?i:(?<!time\s)\bpass(?:es|ed)? for\b)": '"count as"',
    r"(?i:\blook(?:s after|ed (?:after|into))\b)": '"handle", "test", "check"',
    r"(?i:\bg[ia]ve[sn]? (?:\w+ ){1,3}free\b)": '"releases"',
    r"(?i:\bke(?:eps?|pt) (?:its|their|the|a) (?:word|promise)s?\b)": '"holds"',
    r"(?i:\b(?:go|goes|going|gone|went) on\b)": '"continues", "proceeds"',
    r"(?i:\bgood-?bye\b)": '"exit"',
    r"(?i:\bby itself\b)": '"automatically", "alone"',
    r"(?i:\bwins over\b)": '"takes precedence over"',
    r"(?i:\bin truth\b(?!\.\w))": '"really", or leave it out',
    r"(?i:\bto no effect\b)": '"without success"',
}
IN_CHINESE = {
    r"线上的?(?:报文|请求|响应|字节|格式)": "实际的 HTTP 报文（线上指生产环境）",
    "配方": "示例、方案示例",
    "保护器": "守卫",
    "您": "你，或省略",
    r"[一-鿿][,;:?!]|[一-鿿]\.(?!\w)": "全角标点：，；：？！。",
}
CODE = "\x1f"
"""In place of code; no pattern reaches over it."""

STRING_OR_COMMENT = re.compile(
    r'''(?s:"""(?:\\.|[^\\])*?""")|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#.*'''
)
CODE_IN_PAGE = re.compile(
    r"(?ms)^ *(`{3,}|~{3,}).*?^ *\1$"  # a block
    r"|<!--.*?-->|^\([\w-]+\)=$"  # a comment, the name of a heading
    r"|(`+)(?:(?!\n\n).)+?\2"  # a span
    r"|(?<=\])\([^()]*\)"  # the target of a link
)


def hits(file, text, words):
    found = []
    for match in compiled(tuple(words)).finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        phrase = " ".join(match[0].split())
        remedy = list(words.values())[match.lastindex - 1]
        found.append(f'{name_of(file)}:{line}: "{phrase}" -> {remedy}')
    return found


def name_of(file):
    root = PACKAGE.parent if file.is_relative_to(PACKAGE) else ROOT  # it may be installed
    return file.relative_to(root)


@functools.cache
def compiled(patterns):
    """Put all patterns into one, with a group for each; a space matches the end of a line, too."""
    return re.compile("|".join(f"({pattern})" for pattern in patterns).replace(" ", r"\s+"))


def without_code(text):
    return CODE + "\n" * text.count("\n")


def prose_of_page(text):
    prose = CODE_IN_PAGE.sub(lambda code: without_code(code[0]), text)
    return re.sub(r"(?m)^[>|]", " ", prose)


def prose_of_python(text):
    """Return strings and comments; those with only space between them make one text."""
    parts, end = [], 0
    for found in STRING_OR_COMMENT.finditer(text):
        between = text[end : found.start()]
        parts += [without_code(between) if between.strip() else between, found[0].strip("\"'#")]
        end = found.end()
    return re.sub("`[^`\n]+`", CODE, "".join(parts))


def prose_of_script(text):
    """Return the whole text, without the marks of comments at the beginnings of lines."""
    return re.sub("`[^`\n]+`", CODE, re.sub(r"(?m)^(\s*)(?://|--|/?\*+)", r"\1", text))


def refuse(texts, words):
    """Fail where a file of these, each with its prose, has a phrase of the list."""
    found = [hit for file, prose in texts for hit in hits(file, prose, words)]
    if found:
        pytest.fail("\n".join([f"{len(found)} places need other words:", *found]), pytrace=False)


def read(files, prose_of):
    return [(file, prose_of(text_of(file))) for file in files]


def files(folder, *endings):
    found = [file for ending in endings for file in sorted(folder.rglob(f"*.{ending}"))]
    assert found
    return found


def pages():
    english = [page for page in PAGES if page != CHINESE and page.parent.name != "zh"]
    return [*english, ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"]


def test_the_pages_use_words_of_the_field():
    refuse(read(pages(), prose_of_page), ENGLISH)


@pytest.mark.parametrize("folder", [PACKAGE, ROOT / "example_app"], ids=lambda path: path.name)
def test_strings_and_comments_use_words_of_the_field(folder):
    scripts = files(folder, "html", "js", "mjs", "ts", "mts", "lua", "css")
    texts = read(files(folder, "py"), prose_of_python) + read(scripts, prose_of_script)
    refuse(texts, ENGLISH)


@pytest.mark.parametrize(
    ("folder", "endings"), [("gateway", ("lua", "conf")), ("deploy", ("conf", "service", "yaml"))]
)
def test_configuration_files_use_words_of_the_field(folder, endings):
    refuse(read(files(ROOT / "docs" / folder, *endings), prose_of_script), ENGLISH)


def test_the_pages_in_chinese_use_one_word_for_a_thing():
    chinese = [CHINESE, *sorted((ROOT / "docs" / "zh").glob("*.md"))]
    refuse(read(chinese, prose_of_page), IN_CHINESE)


def test_a_phrase_is_found_and_code_is_not():
    page = "It goes on, no\n> matter who is\ntold. What is a lease? It stands for `whatever`."
    code = "what = 1  # anew,\n# the client is\n# told\nx = what is None, 'it goes ' \"on\""
    for prose, words, found in (
        (prose_of_page(page), ENGLISH, ["goes on", "no matter", "who is"]),
        (prose_of_python(code), ENGLISH, ["anew", "is told", "goes on"]),
        (prose_of_page("令牌,请您重试。见 `SETTINGS: x`。1.0"), IN_CHINESE, ["牌,", "您"]),
    ):
        assert [re.search('"(.+?)" ->', hit)[1] for hit in hits(CHINESE, prose, words)] == found
