"""A process that makes hosts (network namespaces) and carries the IP packets between them.

Each host has one device, `eth0`, whose packets the kernel hands to this process (a tun device). It
passes each packet on to the host of its destination, by the rule for that pair of hosts. TCP meets
packets that are lost, late, doubled or overtaken as with netem, which not every kernel has.

Run as a script with the names of the hosts. It prints the file descriptors of the namespaces, then
takes rules as lines of JSON and answers each with a line. It ends with its input, and the
namespaces end with it.
"""

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import select
import struct
import subprocess
import sys
import time

NETWORK = "10.77.0."
_FIRST = 10
_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN_WITHOUT_HEADER = 0x1001
_DESTINATION = slice(16, 20)  # of an IPv4 packet
_MOST = 65536
_OVERTAKEN_FOR = 0.02

_BATCH = 64
"""Packets that are taken from one host before the next one has its turn."""


def address_of(place: int) -> str:
    return f"{NETWORK}{_FIRST + place}"


def make_host(place: int) -> tuple[int, int]:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    namespace = os.open("/proc/self/ns/net", os.O_RDONLY)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", b"eth0", _IFF_TUN_WITHOUT_HEADER))
    address = f"address add {address_of(place)}/24 dev eth0"
    for command in (address, "link set eth0 up", "link set lo up"):
        subprocess.run(["ip", *command.split()], check=True, stdin=subprocess.DEVNULL)
    return namespace, device


class Switch:
    def __init__(self, devices: list[int]) -> None:
        self._devices = devices
        self._places = {
            bytes(map(int, address_of(place).split("."))): place for place in range(len(devices))
        }
        self.rules: dict[tuple[int, int], dict] = {}
        self._late: list[tuple[float, int, int, bytes]] = []
        self._numbers = itertools.count()
        self._random = random.Random(1)

    def take_from(self, place: int) -> None:
        for _ in range(_BATCH):
            try:
                packet = os.read(self._devices[place], _MOST)
            except BlockingIOError:
                return
            target = self._places.get(packet[_DESTINATION])
            if target is not None:
                self._carry(packet, target, self.rules.get((place, target)))

    def _carry(self, packet: bytes, target: int, rule: dict | None) -> None:
        if not rule:
            self._deliver(packet, target)
            return
        chance = self._random.random
        if chance() < rule.get("loss", 0):
            return
        for _ in range(1 + (chance() < rule.get("duplicate", 0))):
            pause = rule.get("delay", 0.0)
            if chance() < rule.get("reorder", 0):  # those that come later overtake it
                pause += _OVERTAKEN_FOR * chance()
            if pause:
                due = time.monotonic() + pause
                heapq.heappush(self._late, (due, next(self._numbers), target, packet))
            else:
                self._deliver(packet, target)

    def _deliver(self, packet: bytes, target: int) -> None:
        # A full queue loses packets, as a real one does.
        with contextlib.suppress(BlockingIOError):
            os.write(self._devices[target], packet)

    def deliver_late(self) -> float | None:
        """Deliver the packets that are due; return the seconds until the next one is."""
        while self._late:
            left = self._late[0][0] - time.monotonic()
            if left > 0:
                return left
            _, _, target, packet = heapq.heappop(self._late)
            self._deliver(packet, target)
        return None


def main(hosts: list[str]) -> None:
    made = [make_host(place) for place in range(len(hosts))]
    devices = [device for _, device in made]
    switch = Switch(devices)
    places = {device: place for place, device in enumerate(devices)}
    names = {name: place for place, name in enumerate(hosts)}
    _answer([namespace for namespace, _ in made])
    watch = select.poll()
    for each in (sys.stdin.fileno(), *devices):
        watch.register(each, select.POLLIN)
    while True:
        left = switch.deliver_late()
        # Rounded up, so that poll does not return too early again and again.
        for ready, _ in watch.poll(None if left is None else int(left * 1000) + 1):
            if ready in places:
                switch.take_from(places[ready])
                continue
            line = sys.stdin.readline()
            if not line:
                return
            switch.rules = {
                (names[sender], names[receiver]): rule
                for sender, receiver, rule in json.loads(line)
            }
            _answer("ok")


def _answer(value: object) -> None:
    sys.stdout.write(f"{json.dumps(value)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
