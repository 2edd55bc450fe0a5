"""The example's recipes on each database, and the example on servers."""

import pytest
from helpers.callers.recipe_requests import RecipeSite
from helpers.servers.example import FlaskRun, gunicorn

from example_app import create_app


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
    return make()


@pytest.fixture
def client(tmp_path):
    app = create_app(TESTING=True, EXAMPLE_DATABASE=tmp_path / "folder" / "shop.sqlite3")
    yield app.test_client()
    app.extensions["example_database"].close()


@pytest.fixture(scope="module")
def flask_run():
    with FlaskRun() as server:
        yield server


@pytest.fixture(scope="module")
def two_workers(redis_server, tmp_path_factory):
    with gunicorn(redis_server.url, tmp_path_factory.mktemp("example")) as server:
        yield server


@pytest.fixture(params=["flask_run", "two_workers"])
def server(request):
    """The example as the README starts it, in one process with threads or in two without."""
    return request.getfixturevalue(request.param)
