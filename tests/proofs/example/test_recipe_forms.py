"""The forms of the page of recipes, on each database, and the commands that start it there."""

import os
import subprocess
import sys

import pytest
from helpers.repository import ROOT
from helpers.servers.example import FlaskRun, ask

from example_app.recipes.pages import recipes

pytestmark = pytest.mark.database

JSON = {"Accept": "application/json"}


def test_every_form_of_the_page_is_answered_with_success(make):
    site = make(within=True)
    shown = recipes(version=1)
    for form in [form for recipe in shown for form in (recipe.technique, recipe.guard)]:
        answer = site.post(form.path, **form.fields)
        assert answer.status_code in {200, 201}, (form.path, answer.text)
    assert len(shown) == 9


def test_the_commands_of_the_page_start_the_recipes_on_a_database(url, tmp_path):
    environment = {
        **os.environ,
        "IDEMPOTENCE_STORAGE_URI": url,
        "EXAMPLE_DATABASE": str(tmp_path / "shop.sqlite3"),
    }
    command = [sys.executable, "-m", "flask", "--app", "example_app", "idempotence", "init-db"]
    subprocess.run(command, check=True, cwd=ROOT, env=environment, timeout=60)
    form = {"reference": "A", "amount": 12}
    with FlaskRun(env=environment) as server:
        paid = [ask(f"{server.url}/recipes/payments/guarded", form) for _ in range(2)]
        assert [answer.status for answer in paid] == [201, 201]
        assert paid[1].headers["Idempotent-Replayed"]
        assert ask(f"{server.url}/recipes", headers=JSON).json["payments"] == 1
