"""The recipes in a real browser: each answer appears beside its form."""

# ruff: noqa: F811 (a fixture is imported, and then an argument)
import pytest
from proofs.browser.example import PHONE, expect, running, url, wider_than_the_window  # noqa: F401 - fixtures

pytestmark = pytest.mark.browser


def button(page, path):
    action = f"/recipes/{path}"
    return page.locator(f"form[action='{action}'] button, form[action^='{action}#'] button")


def send(page, path):
    button(page, path).click()
    return page.locator(".answer")


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize(
    "path", ["select-then-insert", "unique-index/guarded", "payments", "counter/guarded"]
)
def test_an_answer_appears_beside_its_form(visit, url, expect, path, scripts):
    page = visit(viewport=PHONE, java_script_enabled=scripts)
    page.goto(url + "/recipes")
    answer = send(page, path)
    expect(answer).to_have_count(1)
    expect(answer).to_be_in_viewport(ratio=1)
    expect(answer).to_be_focused()
    expect(button(page, path)).to_be_in_viewport()
    assert wider_than_the_window(page) <= 0


def test_a_replay_has_a_tag_and_the_first_answer_has_none(visit, url, expect):
    page = visit()
    page.goto(url + "/recipes")
    first = send(page, "unique-index/guarded")
    expect(first).to_contain_text("201 Created")
    expect(first.locator(".tag")).to_have_count(0)
    text = first.locator(".plain").inner_text()
    second = send(page, "unique-index/guarded")
    expect(second.locator(".tag")).to_have_text("replayed")
    expect(second.locator(".plain")).to_have_text(text)


def test_a_refusal_is_neutral_and_duplicates_are_wrong(visit, url, expect):
    page = visit()
    page.goto(url + "/recipes")
    send(page, "unique-index")
    refused = send(page, "unique-index")
    expect(refused).to_have_attribute("data-outcome", "neutral")
    expect(refused).to_contain_text("409 Conflict")
    expect(send(page, "select-then-insert")).to_have_attribute("data-outcome", "wrong")
    guarded = send(page, "select-then-insert/guarded")
    expect(guarded).to_have_attribute("data-outcome", "right")
    expect(guarded).to_contain_text("duplicates: 0")


def test_every_recipe_has_a_heading_that_the_contents_lead_to(visit, url, expect):
    page = visit(viewport=PHONE)
    page.goto(url + "/recipes")
    links = page.get_by_role("navigation", name="Recipes").get_by_role("link")
    titles = links.all_inner_texts()
    assert len(titles) == 9
    for title in titles:
        page.get_by_role("link", name=title, exact=True).click()
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_in_viewport()
