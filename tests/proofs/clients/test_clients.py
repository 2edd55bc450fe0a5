"""The rows of docs/reports/clients.md: clients for Python and Node, and curl."""

import json
import re
import shutil
import subprocess

import pytest
from helpers.callers.clients_page import (
    KEY,
    MEASURED,
    attempt,
    measured,
    retries_of_a_final_conflict,
    rows,
)
from helpers.callers.node import MUST_RUN, NODE_CLIENTS, REMEDY, NodeClients, is_installed
from helpers.callers.python_clients import PYTHON_CLIENTS
from helpers.repository import section
from helpers.servers.faulty_shop import RESULT, Shop

pytestmark = pytest.mark.clients

REPEATING = [
    *("curl --retry --retry-all-errors", "openai", "anthropic", "tenacity"),
    *("axios-retry", "got, set up", "ky, set up"),
]
"""Clients that send no key and repeat after a lost response."""


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    if not is_installed() and not MUST_RUN:
        pytest.skip(f"node: {REMEDY}")
    assert is_installed(), REMEDY
    return NodeClients(tmp_path_factory.mktemp("node"))


@pytest.fixture(params=[*PYTHON_CLIENTS, *NODE_CLIENTS])
def name(request):
    return request.param


@pytest.fixture
def caller(request, name):
    if name in NODE_CLIENTS:
        return request.getfixturevalue("node").caller(name)
    if "curl" in name and not shutil.which("curl") and not MUST_RUN:
        pytest.skip("curl: not found, install it")
    return PYTHON_CLIENTS[name]


def test_a_client_does_as_its_row_says(name, caller):
    assert measured(caller) == rows()[name]


def test_each_row_is_measured():
    assert set(rows()) == {*PYTHON_CLIENTS, *NODE_CLIENTS}


def test_with_wait_each_client_gets_the_result_of_its_running_attempt(caller):
    with Shop("running", wait=10) as shop:
        assert attempt(caller, shop, KEY) is None
    assert (shop.statuses, shop.effects) == ([200], 1)


def test_curl_as_the_page_sets_it_prints_the_result_alone():
    table = section(MEASURED, "What the client sets")
    [cell] = re.findall(r"(?m)^\| curl \|.*\| `(.*)` \|$", table)
    command = ["curl", "--silent", *cell.split(), "--header", f"Idempotency-Key: {KEY}"]
    with Shop("500") as shop:
        command += ["--json", "{}", f"{shop.url}/payments"]
        printed = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    assert json.loads(printed) == RESULT
    assert shop.statuses == [500, 200]


@pytest.mark.parametrize("name", REPEATING)
def test_without_a_key_each_attempt_takes_effect(caller):
    with Shop("lost") as shop:
        assert attempt(caller, shop, None) is None
    assert (shop.statuses, shop.effects) == ([None, 200], 2)


@pytest.mark.parametrize(
    ("name", "retries", "least"),
    [
        *(("stripe, set up", 3, 1.5), ("openai", 2, 0.9), ("anthropic", 2, 0.9)),
        ("stripe (Node)", 2, 0.9),
    ],
)
def test_a_final_conflict_is_not_sent_again(caller, name, retries, least, record_property):
    before, seconds = retries_of_a_final_conflict(caller, advised=False)
    record_property("report", f"{name}: {before} useless retries in {seconds:.1f} s")
    assert (before, seconds >= least) == (retries, True)
    after, _ = retries_of_a_final_conflict(caller, advised=True)
    assert after == 0


@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_a_route_that_requires_a_key_refuses_those_that_send_none_once(client):
    with Shop(required=True) as shop:
        assert attempt(PYTHON_CLIENTS[client], shop, None) is not None
    assert (shop.statuses, shop.effects) == ([400], 0)
