"""When and on what something is measured."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path


def machine(**versions: str) -> dict:
    """Return the date, the machine's size, how busy it is, and versions of what is used."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory": f"{pages / 2**30:.0f} GiB",
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "load": f"{os.getloadavg()[0]:.1f}",
        "versions": {"Python": platform.python_version(), **versions},
    }


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def processor_times() -> tuple[int, int]:
    """Return how long the processors were kept from this machine by others of its host, and all.

    Both in the ticks of /proc/stat (proc(5): the eighth column is what was stolen), zero where
    there is none.
    """
    file = Path("/proc/stat")
    if not file.exists():
        return 0, 0
    ticks = [int(word) for word in file.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)


def stolen_since(before: tuple[int, int]) -> float:
    """Return the share of the processors' time since then that others of the host had."""
    stolen, whole = (now - then for now, then in zip(processor_times(), before, strict=True))
    return round(stolen / whole, 3) if whole else 0.0


def in_words(told: dict) -> str:
    """Return it as sentences for a page."""
    return f"{hardware(told)} {conditions(told)}"


def hardware(told: dict) -> str:
    """Return when and with what it was measured, as a sentence."""
    versions = ", ".join(f"{name} {number}" for name, number in told["versions"].items())
    return (
        f"Measured on {told['date']} with {told['cores']} cores ({told['processor']}), "
        f"{told['memory']} of memory, {told['system']}; {versions}."
    )


def conditions(told: dict) -> str:
    """Return how busy the machine and its host were, as sentences."""
    others = ""
    if "stolen" in told:
        share = f"{told['stolen']:.0%}"
        others = f" Its host withheld {share} of the processors' time."
    return f"The load average was {told['load']} when it began.{others}"
