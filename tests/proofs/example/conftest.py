"""The example's recipes on each database."""

import pytest
from helpers.callers.recipe_requests import RecipeSite


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/recipes.sqlite3"
    return request.getfixturevalue(request.param).new_database()


@pytest.fixture
def make(url, tmp_path):
    made = []

    def make(**settings):
        made.append(RecipeSite(url, tmp_path, **settings))
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.fixture
def site(make):
    """The application with the guards in memory."""
    return make()
