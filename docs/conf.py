"""How Sphinx builds these pages; `zh/conf.py` has the differences of the Chinese ones."""

import os
import re
import sys
from pathlib import Path

from sphinx import addnodes
from sphinx.search.en import SearchEnglish

sys.path.insert(0, str(Path(__file__).parent.parent))

from flask_idempotence import __version__

DOCS = Path(__file__).parent

project = "Flask-Idempotence"
author = "The Flask-Idempotence contributors"
copyright = f"{author}; MIT licence"
version = release = __version__

BUILT_FROM = os.environ.get("READTHEDOCS_GIT_IDENTIFIER", "main")
"""The branch or the tag whose files the pages link to."""

if os.environ.get("READTHEDOCS_VERSION_TYPE", "tag") != "tag":  # a branch or a pull request
    release = f"{version}, {os.environ['READTHEDOCS_VERSION_NAME']}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_inline_tabs",
]
exclude_patterns = ["_build", "reports", "zh"]
templates_path = [str(DOCS / "_templates")]

html_theme = "furo"
html_title = f"{project} {release}"
html_short_title = project
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
html_favicon = str(DOCS / "_static" / "favicon.svg")
html_logo = str(DOCS.parent / "example_app" / "static" / "pictures" / "icon.svg")
html_static_path = [str(DOCS / "_static")]
html_css_files = ["site.css"]
html_js_files = ["site.js", "search.js"]
html_search_scorer = str(DOCS / "search_scorer.js")
html_copy_source = False
html_theme_options = {
    # "View this page" and "Edit this page" above every page.
    "source_repository": "https://github.com/flask-idempotence/flask-idempotence/",
    "source_branch": BUILT_FROM,
    "source_directory": "docs/",
    # The colours of the example application, whose pictures the pages show.
    "light_css_variables": {"color-brand-primary": "#0b6e63", "color-brand-content": "#0b6e63"},
    "dark_css_variables": {"color-brand-primary": "#5fd0bd", "color-brand-content": "#5fd0bd"},
}

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

# A link to a missing page or heading is an error. Short names in docstrings, and names of Flask,
# redis and SQLAlchemy, have no page here.
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]

copybutton_prompt_text = "$ "  # of a block with prompts, the commands are copied

linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_ignore = [
    r"https?://(localhost|127\.0\.0\.1|\[::1\])",
    r"https://github\.com/flask-idempotence/flask-idempotence/blob/main/docs/",
    r"https?://([\w-]+\.)*example(\.(com|org|net))?(/|:|$)",  # reserved by RFC 2606
]

default_role = "code"  # docstrings put code between single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"


TABS = re.compile(r"(?ms)^<!-- tabs -->$(.*?)^<!-- end of tabs -->$")
TAB = re.compile(r"(?ms)^\*\*([^*\n]+)\*\*$(.*?)(?=^\*\*[^*\n]+\*\*$|\Z)")


REPORT = re.compile(r"\]\((?:\.\./)*(reports/[^)]+)\)")
SOURCES = f"{html_theme_options['source_repository']}blob/{BUILT_FROM}/docs/"


def link_to_reports(_app, _docname, source):
    """Lead to the reports in the repository: the site does not have them."""
    source[0] = REPORT.sub(rf"]({SOURCES}\1)", source[0])


SEARCHED = {
    "how-to/protect-a-form": "double click, double-click, double submit, back button",
    "run-in-production": "docker, docker compose, kubernetes, systemd, deploy",
    "run-in-production#workers-and-their-time-limits": "timeout, timeouts, time-out",
    "how-to/openapi": "swagger, openapi",
    "upgrade": "upgrade, downgrade, new version, deprecated",
    "reference/errors": "400, 403, 409",
    "reference/errors#key-reused": "422",
    "reference/errors#store-unavailable": "503",
    "how-to/test-your-application": "pytest",
    "how-to/consume-messages": "celery, kafka, rabbitmq",
    "how-to/single-page-apps#use-cors": "cors",
    "security": "csrf",
    "how-to/existing-application#guard-a-blueprint": "blueprint",
    "how-to/sql-store": "postgres, postgresql, mysql, mariadb, sqlite",
    "servers": "gunicorn, uwsgi",
}
"""The pages and sections that a search shows first, each with the words for which it does."""


def name_in_index(app, doctree):
    """Give a page the entries of an index that the table above has for it."""
    for place, words in SEARCHED.items():
        page, _, anchor = place.partition("#")
        if page == app.env.docname and app.config.language == "en":
            names = [("single", word, anchor, "main", None) for word in words.split(", ")]
            doctree.insert(0, addnodes.index(entries=names))


class EnglishWithNumbers(SearchEnglish):
    """Sphinx leaves numbers out of its index: people search for 409 and 503."""

    def word_filter(self, word):
        return word not in self.stopwords


BELOW = {
    "choose-a-scheme": "catalogue",
    "content": "how-to/multi-tenant",
    "guarantees": "how-to/choose-a-guarantee",
    "how-to/existing-application": "how-to/migrate-a-home-made-scheme",
    "how-to/payments-api": "how-to/openapi",
    "identity": "content",
    "run-in-production": "reference/keyspace",
    "tutorial": "coming-from-java",
}
"""Pages that the sidebar shows below another one, and only there."""


def put_below(app, docname, source):
    """Give a page of the table above its child, without a block that GitHub would show."""
    if docname in BELOW and app.config.language == "en":
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n\n/{BELOW[docname]}\n```\n"


def collapse_sidebar(_app, _pagename, _template, context, _doctree):
    """Show the children of the current page only."""
    if toctree := context.get("toctree"):
        context["toctree"] = lambda **options: toctree(**{**options, "collapse": True})


def make_tabs(_app, _docname, source):
    """Turn what is between two comments into tabs, one for each line in bold.

    In the repository, GitHub shows the same lines as labels above their blocks of code.
    """
    source[0] = TABS.sub(lambda tabs: TAB.sub(r"`````{tab} \1\2`````\n", tabs[1]), source[0])


def mend_for_screen_readers(app, _pagename, _template, context, _doctree):
    """Name the language as HTML does, and give the captions of the sidebar a level."""
    context["language"] = app.config.language.replace("_", "-")
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace(
        'role="heading"',
        'role="heading" aria-level="2"',  # ARIA requires one of headings
    )


# The two languages are two sites, one in a folder of the other. Sphinx knows the pages of its own
# only: links between the sites become plain HTML, and a test of the built sites follows them.
TO_OTHER_SITE = {
    "en": re.compile(r"\[((?:[^][]|\n)+)\]\((zh/[\w-]+)\.md(#[^)]+)?\)"),
    "zh_CN": re.compile(r"\[((?:[^][]|\n)+)\]\((\.\./(?!deploy)[\w/-]+)\.md(#[^)]+)?\)"),
}
SAME_PAGE = {"coming-from-java": "tutorial"}
"""Pages that are a part of a Chinese page of another name."""


def link_to_other_site(app, _docname, source):
    """Lead to pages of the other language."""
    pattern = TO_OTHER_SITE[app.config.language]
    source[0] = pattern.sub(r'<a class="reference other-site" href="\2.html\3">\1</a>', source[0])


def other_language(app, pagename):
    """Return the path of a page in the other language, from the root of the site."""
    if app.config.language == "en":
        name = pagename.rpartition("/")[2]
        name = SAME_PAGE.get(name, name)
        return f"zh/{name if (DOCS / 'zh' / f'{name}.md').exists() else 'index'}.html"
    pages = [f"{folder}{pagename}" for folder in ("", "how-to/", "reference/")]
    return f"../{next((page for page in pages if (DOCS / f'{page}.md').exists()), 'index')}.html"


def offer_other_language(app, pagename, _template, context, _doctree):
    """Give `components/view-this-page.html` its link to the other language."""
    root = "../" * pagename.count("/")
    context["other_language"] = root + other_language(app, pagename)


TREE = re.compile(r"(?ms)^```{toctree}\n:caption: ([^\n]+)\n:hidden:\n\n(.*?)^```$")


def llms():
    """Return the list of pages for language models, by https://llmstxt.org."""
    parts = [f"# {project} {release}", f"> {first_paragraph(source('index'))}"]
    for caption, names in TREE.findall(source("index")):
        parts.append(f"## {caption}\n")
        for page in [page for name in names.split() for page in (name, *below(name))]:
            text = source(page)
            title = re.search("(?m)^# (.+)$", text)[1]
            parts[-1] += f"\n- [{title}]({html_baseurl}{page}.html): {first_sentence(text)}"
    return "\n\n".join(parts) + "\n"


def below(name):
    """List the pages that the sidebar shows below one."""
    return [page for child in [BELOW.get(name)] if child for page in (child, *below(child))]


def source(name):
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    included = re.match(r"```{include} (\S+)", page)
    return (DOCS / included[1]).read_text(encoding="utf-8") if included else page


NO_TEXT = re.compile(r"(?ms)^(`{3,}).*?^\1$|^<!--.*?-->$|^\([\w-]+\)=$|^#.*?$|^\|.*?$|\*\*|^\d\. ")


def first_sentence(page):
    """Return the first sentence, without tables, code and links."""
    sentence = re.match(r".+?[.:](?= |$)", first_paragraph(page))
    return sentence[0].removesuffix(":").removesuffix(".") + "."


def first_paragraph(page):
    text = re.sub(r"\[((?:[^][]|\n)+)\]\([^)]*\)", r"\1", NO_TEXT.sub("", page))
    return " ".join(text.strip().partition("\n\n")[0].split())


def write_llms(app, error):
    """Put the list beside the English pages."""
    if error is None and app.config.language == "en" and app.builder.name == "html":
        (Path(app.outdir) / "llms.txt").write_text(llms(), encoding="utf-8")


def setup(app):
    """Register the functions above."""
    app.connect("build-finished", write_llms)
    app.add_search_language(EnglishWithNumbers)
    app.connect("doctree-read", name_in_index)
    app.connect("source-read", link_to_reports)
    app.connect("source-read", make_tabs)
    app.connect("source-read", put_below)
    app.connect("source-read", link_to_other_site)
    app.connect("html-page-context", offer_other_language)
    app.connect("html-page-context", collapse_sidebar, priority=100)  # before the theme
    app.connect("html-page-context", mend_for_screen_readers, priority=900)  # after the theme
