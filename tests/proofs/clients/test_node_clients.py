"""The rows of docs/reports/clients.md: clients for Node against an application on loopback."""

import pytest
from helpers.callers.clients_page import KEY, attempt, measured, retries_of_a_final_conflict, rows
from helpers.callers.node import MUST_RUN, NODE_CLIENTS, REMEDY, NodeClients, is_installed
from helpers.servers.faulty_shop import Shop

pytestmark = pytest.mark.clients


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    if not is_installed() and not MUST_RUN:
        pytest.skip(f"node: {REMEDY}")
    assert is_installed(), REMEDY
    return NodeClients(tmp_path_factory.mktemp("node"))


@pytest.mark.parametrize("name", NODE_CLIENTS)
def test_a_client_of_node_does_as_its_row_says(node, name):
    assert measured(node.caller(name)) == rows()[name]


@pytest.mark.parametrize("name", NODE_CLIENTS)
def test_with_wait_each_node_client_gets_the_result_of_its_running_attempt(node, name):
    with Shop("running", wait=10) as shop:
        assert attempt(node.caller(name), shop, KEY) is None
    assert (shop.statuses, shop.effects) == ([200], 1)


@pytest.mark.parametrize("name", ["axios-retry", "got, set up", "ky, set up"])
def test_node_clients_without_a_key_repeat_the_effect(node, name):
    with Shop("lost") as shop:
        assert attempt(node.caller(name), shop, None) is None
    assert (shop.statuses, shop.effects) == ([None, 200], 2)


def test_a_final_conflict_is_not_sent_again_by_node(node, record_property):
    call = node.caller("stripe (Node)")
    before, seconds = retries_of_a_final_conflict(call, advised=False)
    record_property("report", f"stripe (Node): {before} useless retries in {seconds:.1f} s")
    assert (before, seconds >= 0.9) == (2, True)
    after, _ = retries_of_a_final_conflict(call, advised=True)
    assert after == 0
