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


def in_words(told: dict) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in told["versions"].items())
    return (
        f"Measured on {told['date']} with {told['cores']} cores ({told['processor']}), "
        f"{told['memory']} of memory, {told['system']}; {versions}. "
        f"The load average was {told['load']} when it began."
    )
