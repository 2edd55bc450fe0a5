"""The example's recipes on each database."""

import pytest
from helpers.callers.recipe_requests import RecipeSite


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
