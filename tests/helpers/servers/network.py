"""Hosts on a network of their own, whose packets are lost, late, doubled or overtaken on demand.

The hosts are network namespaces without names. Nothing of the machine's own network is touched,
and the namespaces end with the process that carries their packets, also after a failure.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path

from helpers.servers import packet_switch


def missing() -> list[str]:
    wanted = {
        "Linux": sys.platform == "linux",
        "root": hasattr(os, "geteuid") and os.geteuid() == 0,
        "/dev/net/tun": Path("/dev/net/tun").exists(),
        "iproute2": shutil.which("ip"),
        "nsenter": shutil.which("nsenter"),
    }
    return [name for name, found in wanted.items() if not found]


class Network:
    """Hosts that reach one another until a rule says otherwise."""

    def __init__(self, *hosts: str):
        self.hosts = hosts
        self._rules = {}

    def __enter__(self):
        command = [sys.executable, packet_switch.__file__, *self.hosts]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._switch = subprocess.Popen(command, start_new_session=True, **pipes)
        line = self._switch.stdout.readline()
        if not line:
            self.__exit__()
            raise RuntimeError("The hosts could not be made.")
        self._namespaces = dict(zip(self.hosts, json.loads(line), strict=True))
        return self

    def __exit__(self, *_):
        self._switch.stdin.close()
        self._switch.wait(10)
        self._switch.stdout.close()

    def address(self, host: str) -> str:
        return packet_switch.address_of(self.hosts.index(host))

    def command(self, host: str, command: Iterable[str]) -> list[str]:
        namespace = f"/proc/{self._switch.pid}/fd/{self._namespaces[host]}"
        return ["nsenter", f"--net={namespace}", "--", *command]

    def shape(self, senders: Iterable[str], receivers: Iterable[str], **rule: float) -> None:
        """Set how packets travel from some hosts to others, one way.

        `loss`, `duplicate` and `reorder` are shares of the packets, `delay` is in seconds.
        A reordered packet is late by up to 20 ms.
        """
        for pair in product(senders, receivers):
            self._rules[pair] = {**self._rules.get(pair, {}), **rule}
        self._send()

    def shape_all(self, **rule: float) -> None:
        self.shape(self.hosts, self.hosts, **rule)

    def cut_one_way(self, senders: Iterable[str], receivers: Iterable[str]) -> None:
        self.shape(senders, receivers, loss=1)

    def cut(self, left: Iterable[str], right: Iterable[str]) -> None:
        self.cut_one_way(left, right)
        self.cut_one_way(right, left)

    def isolate(self, *hosts: str) -> None:
        self.cut(hosts, set(self.hosts) - set(hosts))

    def heal(self) -> None:
        self._rules.clear()
        self._send()

    def _send(self) -> None:
        rules = [[*pair, rule] for pair, rule in self._rules.items()]
        self._switch.stdin.write(json.dumps(rules) + "\n")
        self._switch.stdin.flush()
        if self._switch.stdout.readline() != '"ok"\n':
            raise RuntimeError("The process that carries the packets has ended.")
