"""The README's first command: few packages, and all of the example."""

import os
import re
import shutil

import pytest
from helpers.callers.node import MUST_RUN
from helpers.repository import README, text_of
from helpers.servers.example import FlaskRun, ask, run_lab

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not shutil.which("uv") and not MUST_RUN, reason="uv: not found"),
]

MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return tmp_path_factory.mktemp("example") / "venv"


@pytest.fixture(scope="module")
def url(environment):
    [command] = re.findall(r"(?m)^pip install uv && (uv run .*example_app run)$", text_of(README))
    others = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    with FlaskRun(
        env=others | {"UV_PROJECT_ENVIRONMENT": str(environment)}, command=command.split()
    ) as server:
        yield server.url


def test_the_first_command_installs_little(url, environment):
    assert ask(url).status == 200
    assert len(list(environment.glob("lib/python*/site-packages/*.dist-info"))) <= 45
    files = [path for path in environment.rglob("*") if not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) <= 60 * MEGABYTE


def test_every_page_is_shown_without_the_packages_of_the_tests(url):
    seen, left = set(), {"/"}
    while left:
        path = left.pop()
        seen.add(path)
        answer = ask(url + path)
        assert answer.status == 200, path
        left |= set(re.findall(r'(?:href|src)="(/[^"#?]*)', answer.text)) - seen
    assert len(seen) > 15


def test_the_lab_and_a_recipe_run_without_the_packages_of_the_tests(url):
    assert run_lab(url, "key", 5, delay=50)["effects"] == 1
    sent = ask(url + "/recipes/unique-index", {"reference": "A-1"})
    assert sent.status == 201, sent.text
