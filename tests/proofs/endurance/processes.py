"""What Linux says of a process: its memory, threads, descriptors, children and CPU time."""

import os
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE


@dataclass(frozen=True)
class Usage:
    """What a process has; `uss` are the bytes that no other process shares."""

    rss: int
    uss: int
    threads: int
    descriptors: int
    cpu: float


def usage_of(pid: int) -> Usage:
    memory = _memory(pid)
    # The name in the second field may hold spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Usage(
        rss=memory["Rss"],
        uss=memory["Private_Clean"] + memory["Private_Dirty"],
        threads=int(fields[17]),
        descriptors=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        cpu=(int(fields[11]) + int(fields[12])) / TICKS,
    )


def proportional_size(pid: int) -> int:
    """Return the bytes of a process, where what several share counts in parts."""
    return _memory(pid)["Pss"]


def _memory(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {
        name: int(amount.split()[0]) * KIBIBYTE
        for name, _, amount in (line.partition(":") for line in lines)
    }


def children_of(pid: int) -> list[int]:
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for file in files for child in file.read_text().split())


def zombies_of(pid: int) -> list[int]:
    return [child for child in children_of(pid) if _state(child) == "Z"]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def figures_of(usage):
    return {
        "USS, MiB": usage.uss / MEBIBYTE,
        "RSS, MiB": usage.rss / MEBIBYTE,
        "threads": usage.threads,
        "descriptors": usage.descriptors,
    }
