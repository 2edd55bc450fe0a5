"""The network that the partitions are made of does what its rules say."""

import contextlib
import ctypes
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest
from helpers.servers.network import Network

pytestmark = pytest.mark.partition


@pytest.fixture
def network(needs_network):
    with Network("a", "b", "c") as made:
        yield made


@contextlib.contextmanager
def inside(network, host):
    """Open sockets on a host: a thread's namespace is that of its sockets, whoever uses them."""
    namespace = os.open(network.command(host, [])[1].removeprefix("--net="), os.O_RDONLY)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        _enter(namespace)
        yield
    finally:
        _enter(home)
        os.close(namespace)
        os.close(home)


def _enter(namespace):
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0):
        raise OSError(ctypes.get_errno(), "setns")


def datagrams(network, count=150, sender="a", receiver="b"):
    """Send numbered datagrams; return them as they arrived, and the seconds of the first."""
    with inside(network, receiver):
        target = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inside(network, sender):
        source = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with target, source:
        target.bind((network.address(receiver), 5000))
        target.settimeout(1)
        begun, arrived, first = time.monotonic(), [], None
        for number in range(count):
            source.sendto(str(number).encode(), (network.address(receiver), 5000))
            time.sleep(0.001)
        with contextlib.suppress(TimeoutError):
            while True:
                arrived.append(int(target.recv(100)))
                first = first or time.monotonic() - begun
        return arrived, first


def test_without_a_rule_all_packets_arrive_in_order(network):
    arrived, _ = datagrams(network)
    assert arrived == list(range(150))


def test_a_cut_is_both_ways_and_of_the_two_only(network):
    network.cut(["a"], ["b"])
    assert datagrams(network, 20)[0] == datagrams(network, 20, "b", "a")[0] == []
    assert len(datagrams(network, 20, "a", "c")[0]) == 20
    network.heal()
    assert len(datagrams(network, 20)[0]) == 20


def test_a_cut_may_be_one_way(network):
    network.cut_one_way(["a"], ["b"])
    assert datagrams(network, 20)[0] == []
    assert len(datagrams(network, 20, "b", "a")[0]) == 20


def test_hosts_that_are_isolated_together_still_reach_one_another(network):
    network.isolate("a", "b")
    assert len(datagrams(network, 20)[0]) == 20
    assert datagrams(network, 20, "a", "c")[0] == datagrams(network, 20, "c", "b")[0] == []


def test_loss_duplicates_and_late_packets(network):
    network.shape_all(loss=0.3)
    assert 70 < len(datagrams(network)[0]) < 140
    network.shape_all(loss=0, duplicate=0.3)
    assert 165 < len(datagrams(network)[0]) < 225
    network.shape_all(duplicate=0, reorder=0.3)
    arrived, _ = datagrams(network)
    assert sorted(arrived) == list(range(150)) != arrived


def test_packets_are_late_by_the_delay(network):
    network.shape_all(delay=0.3)
    arrived, first = datagrams(network, 1)
    assert arrived == [0]
    assert 0.3 <= first < 0.6


def test_nothing_is_left_behind_and_the_machine_keeps_its_devices(needs_network):
    def devices():
        return subprocess.check_output(["ip", "-oneline", "link"], text=True)

    before = devices()
    with Network("a", "b") as network:
        assert devices() == before
        path = Path(network.command("a", [])[1].removeprefix("--net="))
        assert path.exists()
        assert path.stat().st_ino != Path("/proc/self/ns/net").stat().st_ino
    assert not path.exists()
    assert devices() == before
