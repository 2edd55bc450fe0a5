"""The HTTP on the pages is what the applications say."""

import pytest
from helpers.http_transcripts import WRITE, blocks, chains, rewritten, run_chain
from helpers.refusal_cases import REFUSAL_CASES
from helpers.repository import PAGES, REFERENCE, REFUSALS, ROOT, section, text_of

ERRORS = REFERENCE / "errors.md"
PAYMENTS = ROOT / "docs" / "how-to" / "payments-api.md"


def shown():
    """List the chains of code and HTTP, but for those of the page that has cases of its own.

    The Chinese one has the blocks of the English one.
    """
    return [
        pytest.param(page, number, id=f"{page.relative_to(ROOT)}-{number + 1}")
        for page in PAGES
        for number, _ in enumerate(chains(text_of(page)) if page.name != ERRORS.name else ())
    ]


def hold_to(page, answers):
    """Compare a page with what its application says, or bring it up to that."""
    if WRITE:
        page.write_text(rewritten(text_of(page), answers), encoding="utf-8")
    for block, said in answers if not WRITE else ():
        assert block.text == said, f"{page.name}: TRANSCRIPTS=write brings it up to date"


@pytest.mark.parametrize(("page", "number"), shown())
def test_every_answer_on_a_page_is_what_its_application_says(page, number):
    hold_to(page, run_chain(chains(text_of(page))[number]))


@pytest.mark.parametrize("slug", REFUSALS)
def test_every_refusal_is_shown_as_it_is_sent(slug):
    start = text_of(ERRORS).index(section(ERRORS, slug))
    end = start + len(section(ERRORS, slug))
    every = [block for chain in blocks(text_of(ERRORS)) for block in chain]
    its_own = [block for block in every if start <= block.start < end]
    assert [block.language for block in its_own] == ["http", "http"]
    case = REFUSAL_CASES[slug]()
    answers = run_chain(its_own, app=case.app, names=case.names)
    assert f"urn:flask-idempotence:{slug}" in answers[0][1]
    hold_to(ERRORS, answers)


def test_no_http_is_overlooked():
    """Every block that looks like HTTP is one of those that are played."""
    for page in PAGES:
        text = text_of(page)
        played = [block for chain in chains(text) for block in chain if block.language == "http"]
        assert text.count("```http") == len(played), page
        assert text.count("\nHTTP/1") == sum(block.is_answer for block in played), page
    assert all(chains(text_of(page)) for page in (PAYMENTS, ERRORS))
