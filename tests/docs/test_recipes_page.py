"""The page of the recipes, and where their database is."""

import re

import pytest
from helpers.callers.recipe_requests import RecipeSite
from helpers.servers.example import HTML

from example_app import create_app


@pytest.mark.parametrize("path", ["deduplication-table/mug/guarded", "payments/guarded"])
def test_within_says_what_it_needs_where_the_guards_are_elsewhere(tmp_path, path):
    site = RecipeSite(f"sqlite:///{tmp_path}/recipes.sqlite3", tmp_path)
    answer = site.post(path, message="m", pieces=1, reference="A", amount=1)
    assert answer.status_code == 501
    assert "IDEMPOTENCE_STORAGE_URI" in answer.json["error"]
    site.close()


def test_the_recipes_are_beside_the_shop_or_with_the_guards_or_where_they_are_told(tmp_path):
    def place(**settings):
        app = create_app(EXAMPLE_DATABASE=tmp_path / "shop.sqlite3", **settings)
        return app.extensions["example_recipes"].engine.url.database

    assert place() == f"{tmp_path}/recipes.sqlite3"
    guards = f"sqlite:///{tmp_path}/guards.db"
    assert place(IDEMPOTENCE_STORAGE_URI=guards) == f"{tmp_path}/guards.db"
    chosen = f"sqlite:///{tmp_path}/chosen.db"
    assert place(IDEMPOTENCE_STORAGE_URI=guards, EXAMPLE_RECIPES_DATABASE=chosen).endswith(
        "chosen.db"
    )


def test_a_browser_sees_what_came_of_it_on_the_page(tmp_path):
    site = RecipeSite(f"sqlite:///{tmp_path}/recipes.sqlite3", tmp_path)
    client = site.app.test_client()
    for path in ("unique-index", "counter/guarded"):
        form = {"reference": "<b>", "voter": "Ada"}
        pages = [client.post(f"/recipes/{path}", data=form, headers=HTML) for _ in range(2)]
        assert '<h2 id="database">' in pages[0].text
        assert re.search(
            r'"right">\s+20[01] [^<]+<span class="plain">(number|used): 1<', pages[0].text
        )
        assert re.search(r'"neutral">\s+409 Conflict', pages[1].text)
    assert "Retry-After" in pages[1].headers
    assert 'id="counter-guarded-voter" name="voter" value="Ada"' in pages[1].text  # once more?
    assert client.post("/recipes/reset").location == "/recipes#database"
    assert (site.truth("orders"), site.truth("votes")) == (0, {})
    site.close()


def test_a_replay_has_a_tag_and_the_rows_of_now(tmp_path):
    site = RecipeSite(f"sqlite:///{tmp_path}/recipes.sqlite3", tmp_path)
    client = site.app.test_client()
    form, tag = {"reference": "A"}, '<span class="tag">replayed</span>'
    pages = [client.post("/recipes/unique-index/guarded", data=form, headers=HTML)]
    site.post("unique-index", reference="B")
    pages.append(client.post("/recipes/unique-index/guarded", data=form, headers=HTML))
    assert [tag in page.text for page in pages] == [False, True]
    assert [page.text.count(">number: 1<") for page in pages] == [1, 1]
    rows = [re.search(r"<td>Orders</td><td>(\d)<", page.text)[1] for page in pages]
    assert rows == ["1", "2"]
    assert client.post("/recipes/unique-index/guarded", data=form).json == {"number": 1}
    site.close()


@pytest.mark.parametrize("path", ["unique-index", "payments", "state-machine/1", "counter"])
def test_a_form_without_its_fields_is_refused(tmp_path, path):
    site = RecipeSite(f"sqlite:///{tmp_path}/recipes.sqlite3", tmp_path)
    assert site.post(path).status_code == 400
    assert site.post("optimistic-lock/nothing", percent=1).status_code == 404
    site.close()
