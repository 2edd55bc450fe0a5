"""Payments whose process is killed before, in or after a step, and their repeats."""

import json
import sys

import pytest
from helpers.killed_steps import POINTS
from helpers.servers.processes import environment, run_to_end

PLACES = [
    pytest.param("redis", marks=pytest.mark.lifecycle),
    pytest.param("sqlite", marks=pytest.mark.lifecycle),
    "postgres",
    "mariadb",
]


@pytest.fixture
def told(request, tmp_path):
    uri, url = "", f"sqlite:///{tmp_path / 'payments.db'}"
    if request.param == "redis":
        uri = request.getfixturevalue("redis_url")
    elif request.param != "sqlite":
        url = request.getfixturevalue(request.param).new_database()
    command = [sys.executable, "-m", "helpers.killed_steps", uri, url]
    done = run_to_end(command, check=True, env=environment(), timeout=120)
    return json.loads(done.stdout)


@pytest.mark.parametrize("told", PLACES, indirect=True)
def test_each_finished_step_has_run_once_and_the_provider_has_charged_once(told, request):
    is_by_redis = "redis" in request.node.callspec.id
    for point in POINTS:
        repeat = told[point]
        assert repeat["death"] == -9, point
        assert (repeat["status"], len(repeat["json"])) == (201, 3), point
        assert repeat["charged"] == 1, point
        when, step = point.split()
        again = when == "in" and step == "charge"
        assert len(repeat["asked"]) == 1 + again, point
        assert len(set(repeat["asked"])) == 1, point
        assert repeat["json"][1] == ("charged before" if again else "charged"), point
        # Without within=, a step that is killed in its middle has its effect twice.
        twice = [step] if is_by_redis and when == "in" and step != "charge" else []
        assert repeat["written"] == sorted(["book", "reserve", *twice]), point
