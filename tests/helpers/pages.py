"""Applications of the pages: their blocks of code, run."""

import sys
from types import ModuleType

from helpers.http_transcripts import blocks
from helpers.repository import ROOT, text_of

FORM_PAGE = ROOT / "docs" / "how-to" / "protect-a-form.md"
GRAPHQL_PAGE = ROOT / "docs" / "how-to" / "graphql.md"
PAYMENTS_PAGE = ROOT / "docs" / "how-to" / "payments-api.md"


def namespace():
    """Return the names of a new module, which libraries find by its name as they find others."""
    sys.modules["example"] = module = ModuleType("example")
    return vars(module)


def run_blocks(page, count, replaced=()):
    """Run a page's first blocks of Python, some texts of theirs replaced; return their names."""
    names = namespace()
    for block in blocks(text_of(page))[0][:count]:
        code = block.text
        for text, other in dict(replaced).items():
            assert text in text_of(page)
            code = code.replace(text, other)
        exec(compile(code, str(page), "exec"), names)
    return names
