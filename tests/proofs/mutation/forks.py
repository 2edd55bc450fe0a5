"""Processes forked from a pytest that has collected its tests: each tries a mutant."""

import contextlib
import mmap
import os
import shutil
import signal
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from mutmut.mutation.trampoline import set_mutant_under_test

MARK = "MUTATION_JOB"
"""What the environment of every process of a fork contains."""
FIELDS = struct.Struct("=id?")  # which test, until when, whether it failed


@dataclass
class Outcome:
    at: int
    """The test that was the last."""
    failed: bool = False
    stuck: bool = False


class Failures:
    def __init__(self) -> None:
        self.texts = []

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed:
            self.texts.append(report.longreprtext)


class Fork:
    """A process that runs tests in their order, until one fails."""

    def __init__(self, mutant: str, items: list, seconds: list[float], log: Path) -> None:
        self.shared = mmap.mmap(-1, FIELDS.size)
        self._tell(0, seconds[0])
        self.mark = f"{os.getpid()}-{time.monotonic_ns()}"
        self.directory = Path(tempfile.mkdtemp(prefix="mutant-"))
        self.directory.chmod(0o755)  # PostgreSQL runs as another user there
        self.pid = os.fork()
        if not self.pid:
            with contextlib.suppress(BaseException):
                os._exit(self._run(mutant, items, seconds, log))
            os._exit(1)

    def _tell(self, at: int, seconds: float, failed: bool = False) -> None:
        self.shared[:] = FIELDS.pack(at, time.monotonic() + seconds, failed)

    def _run(self, mutant: str, items: list, seconds: list[float], log: Path) -> int:
        os.setsid()
        os.environ[MARK] = self.mark
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.directory)
        items[0].config._tmp_path_factory._given_basetemp = self.directory / "pytest"
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        set_mutant_under_test(mutant)
        failures = Failures()
        items[0].config.pluginmanager.register(failures)
        for at, item in enumerate(items):
            self._tell(at, seconds[at])
            following = items[at + 1] if at + 1 < len(items) else None
            try:
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            except BaseException as error:  # e.g. SystemExit
                failures.texts.append(repr(error))
            if failures.texts:
                self._tell(at, 10, failed=True)
                log.write_text(f"{item.nodeid}\n{failures.texts[0]}")
                with contextlib.suppress(BaseException):
                    item.session._setupstate.teardown_exact(None)
                return 1
        return 0

    def poll(self) -> Outcome | None:
        """Return how it ended, or nothing while it runs; end it when its test takes too long."""
        at, deadline, failed = FIELDS.unpack(self.shared[:])
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        stuck = not pid and time.monotonic() > deadline
        if not pid and not stuck:
            return None
        if stuck:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        at, _, failed = FIELDS.unpack(self.shared[:])
        if stuck or status:
            self._end_descendants()
        shutil.rmtree(self.directory, ignore_errors=True)
        return Outcome(at, failed=failed or bool(status), stuck=stuck and not failed)

    def _end_descendants(self) -> None:
        """End the servers and workers that its tests have started."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark:
                    process.kill()
