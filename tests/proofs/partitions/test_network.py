"""The network that the partitions are made of does what its rules say."""

import contextlib
import ctypes
import os
import socket
import time
from pathlib import Path

import pytest
from helpers.servers.network import Network

pytestmark = pytest.mark.partition


@pytest.fixture
def network(needs_network):
    with Network("a", "b", "c") as made:
        yield made


def socket_on(network, host):
    """Open a socket on a host: a thread's namespace is that of its sockets, whoever uses them."""
    enter = ctypes.CDLL(None, use_errno=True).setns
    path = Path(network.command(host, [])[1].removeprefix("--net="))
    with path.open() as namespace, Path("/proc/self/ns/net").open() as home:
        assert not enter(namespace.fileno(), 0), os.strerror(ctypes.get_errno())
        try:
            return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        finally:
            assert not enter(home.fileno(), 0)


def datagrams(network, way="ab", count=20):
    """Send numbered datagrams; return them as they arrived, and the seconds of the first."""
    sender, receiver = way
    with socket_on(network, receiver) as target, socket_on(network, sender) as source:
        target.bind((network.address(receiver), 5000))
        target.settimeout(0.5)
        begun, arrived, first = time.monotonic(), [], None
        for number in range(count):
            source.sendto(str(number).encode(), (network.address(receiver), 5000))
            time.sleep(0.001)
        with contextlib.suppress(TimeoutError):
            while True:
                arrived.append(int(target.recv(100)))
                first = first or time.monotonic() - begun
        return arrived, first


def test_packets_arrive_in_order_save_between_hosts_that_are_cut_off(network):
    def open_ways():
        arrived = {way: datagrams(network, way)[0] for way in every_way}
        assert all(numbers in ([], [*range(20)]) for numbers in arrived.values())
        return {way for way, numbers in arrived.items() if numbers}

    every_way = {"ab", "ba", "ac", "ca", "cb"}
    assert open_ways() == every_way
    network.cut_one_way(["a"], ["b"])
    assert open_ways() == every_way - {"ab"}
    network.heal()
    network.isolate("a", "b")
    assert open_ways() == {"ab", "ba"}
    network.heal()
    assert open_ways() == every_way


def test_loss_duplicates_late_packets_and_delays(network):
    network.shape_all(loss=0.3)
    assert 70 < len(datagrams(network, count=150)[0]) < 140
    network.shape_all(loss=0, duplicate=0.3)
    assert 165 < len(datagrams(network, count=150)[0]) < 225
    network.shape_all(duplicate=0, reorder=0.3)
    arrived, _ = datagrams(network, count=150)
    assert sorted(arrived) == list(range(150)) != arrived
    network.shape_all(reorder=0, delay=0.3)
    arrived, first = datagrams(network, count=1)
    assert arrived == [0]
    assert 0.3 <= first < 0.6
