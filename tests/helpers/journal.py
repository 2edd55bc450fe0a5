"""What an application writes down outside its store: every run of a view, and every standstill.

Each line is one write to a file that is open for appending, so lines of several processes do not
mix, and what was written outlives a SIGKILL of its writer. Times are of the monotonic clock, which
all processes of one machine share.
"""

import json
import os
import threading
import time
from pathlib import Path

LOOK_EVERY = 0.1
"""Seconds between two looks at the clock, by which a process notices that it stood still."""

STANDSTILL = 0.3
"""Seconds from which on a standstill is written down."""


class Journal:
    """The journal, open for writing, and beside it a file for each operation."""

    def __init__(self, directory: Path):
        self._directory = directory
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(directory / "journal", flags, 0o600)

    def note(self, event, **told) -> None:
        line = {"event": event, "at": time.monotonic(), "pid": os.getpid(), **told}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def ordinal(self, operation: str) -> int:
        """Count one more run of an operation, and return which one it is, from 1."""
        with (self._directory / operation.replace("/", "-")).open("ab", buffering=0) as file:
            file.write(b"x")
            return file.tell()

    def watch_for_standstills(self) -> None:
        """Write down, from a thread, when this process gets no time to run."""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            before = time.monotonic()
            time.sleep(LOOK_EVERY)
            if time.monotonic() > before + LOOK_EVERY + STANDSTILL:
                self.note("stall", since=before)


def read_journal(directory: Path) -> list[dict]:
    """Return the lines of a journal, in their order, save one that is being written."""
    whole, _, _ = (directory / "journal").read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines()]
