"""Payments whose process is killed before, in or after a step, and their repeats."""

import os
import time
from contextlib import closing
from multiprocessing import get_context

import pytest
from helpers.servers.processes import environment
from proofs.lifecycle.killed_steps import LEASE, POINTS, Payments, asked, die_at, written

PLACES = [
    pytest.param("redis", marks=pytest.mark.lifecycle),
    pytest.param("sqlite", marks=pytest.mark.lifecycle),
    "postgres",
    "mariadb",
]


@pytest.fixture
def place(request, tmp_path):
    if request.param == "redis":
        return request.getfixturevalue("redis_url"), f"sqlite:///{tmp_path / 'payments.db'}"
    if request.param == "sqlite":
        return "", f"sqlite:///{tmp_path / 'payments.db'}"
    return "", request.getfixturevalue(request.param).new_database()


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_each_finished_step_has_run_once_and_the_provider_has_charged_once(place):
    with closing(Payments(*place)) as payments:
        assert deaths(*place) == [-9] * len(POINTS)
        time.sleep(LEASE + 0.2)
        for point in POINTS:
            repeat = payments.send(point)
            assert (repeat.status_code, len(repeat.json)) == (201, 3), point
            when, step = point.split()
            again = when == "in" and step == "charge"
            keys = payments.rows(asked, "key", point)
            assert (len(keys), len(set(keys))) == (1 + again, 1), point
            assert repeat.json[1] == ("charged before" if again else "charged"), point
            # Without within=, a step that is killed in its middle has its effect twice.
            is_twice = place[0] and when == "in" and step != "charge"
            rows = sorted(["book", "reserve", *[step] * bool(is_twice)])
            assert payments.rows(written, "step", point) == rows, point


def deaths(uri, url):
    os.environ["PYTHONPATH"] = environment()["PYTHONPATH"]  # of the server that forks them
    processes = get_context("forkserver")
    processes.set_forkserver_preload(["proofs.lifecycle.killed_steps"])
    statuses = []
    for point in POINTS:
        process = processes.Process(target=die_at, args=(uri, url, point))
        process.start()
        process.join(120)
        statuses.append(process.exitcode)
    return statuses
