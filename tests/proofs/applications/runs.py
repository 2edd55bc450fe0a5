"""Sources, environments and runs of a suite; what each run has found is kept in a file."""

import json
import os
import re
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import urlsplit

from helpers import ROOT

from .suites import SUITES

PLUGIN = Path(__file__).with_name("plugin")
BACKENDS = ("flit-core", "hatchling", "hatch-vcs", "setuptools<81", "poetry-core", "wheel")
OPTIONS = "-q -p no:cacheprovider -p no:randomly --continue-on-collection-errors"


def quiet(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


class Sources:
    """A suite's sources and environment, in a directory of its own."""

    def __init__(self, name, directory):
        self.name, self.suite, self.home = name, SUITES[name], directory / name
        self._directory = directory

    def fetch(self):
        """Return the directory of the project, with its tests; None where there are none."""
        if not self.home.exists():
            self.home.mkdir(parents=True)
            self._clone() if self.suite.repository else self._download()
        found = next(self.home.glob("*/**/*test*.py"), None)
        return found and self.home / found.relative_to(self.home).parts[0]

    def _clone(self):
        """Clone the repository, unless a checkout is there."""
        address = f"https://github.com/{self.suite.repository}"
        quiet("git", "clone", "-q", "--depth", "1", address, str(self.home / self.name.lower()))

    def _download(self):
        command = (str(self._fetcher()), "-m", "pip", "download", "-q", "-d", str(self.home))
        quiet(*command, "--no-deps", "--no-build-isolation", "--no-binary", ":all:", self.name)
        for archive in self.home.glob("*.tar.gz"):
            with tarfile.open(archive) as opened:
                opened.extractall(self.home, filter="data")

    def _fetcher(self):
        """Make an environment of pip and the build backends: pip need not make one for each."""
        python = self._directory / ".fetcher" / "bin" / "python"
        if not python.exists():
            quiet("uv", "venv", "-q", "-p", sys.executable, str(python.parent.parent))
            quiet("uv", "pip", "install", "-q", "-p", str(python), "pip", *BACKENDS)
        return python

    def prepare(self, source):
        """Make an environment for a suite; return its Python, or None where it cannot be made."""
        environment = self._directory / ".environments" / self.name
        python = environment / "bin" / "python"
        if not (environment / "made").exists():
            version = self.suite.python or sys.executable
            quiet("uv", "venv", "-q", "--clear", "-p", version, str(environment))
            command = ["uv", "pip", "install", "-q", "-p", str(python), "--no-verify-hashes"]
            pinned = self.suite.requirements
            command += ["-r", str(source / pinned)] if pinned else [str(source), "setuptools<81"]
            command += [] if self.suite.python else ["pytest<9"]
            command += [*self.suite.needs.split(), "-r", str(ROOT / "pyproject.toml")]
            done = quiet(*command)
            if done.returncode:
                sys.stderr.write(f"{self.name}: no environment: {done.stderr[-600:]}\n")
                return None
            (environment / "made").touch()
        return python

    def version(self, source):
        """Return the version of the distribution, or the commit of the checkout and its date."""
        if not (source / ".git").exists():
            return re.sub(r".*-(?=\d)", "", source.name)
        return quiet("git", "-C", str(source), "log", "-1", "--format=%h, %cs").stdout.strip()

    def kept(self, variant, store):
        return self.home / "results" / f"{variant or 'bare'} on {store.partition(':')[0]}.json"

    def known(self, source, variant, store, servers, seconds):
        """Return the results of an earlier run, or run the suite."""
        file = self.kept(variant, store)
        if not file.exists():
            found, noted = self._run(source, variant, store, servers, seconds)
            if not found:
                return {}, []
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps([found, noted]))
        return json.loads(file.read_text())

    def _run(self, source, variant, store, servers, seconds):
        """Run a suite; return how each test ended, and what the plugin has noted."""
        label = self.kept(variant, store).stem
        results, notes = self.home / f"{label}.xml", self.home / f"{label}.jsonl"
        for file in (results, notes):
            file.unlink(missing_ok=True)
        tests = self.suite.tests or next(
            (name for name in ("tests", "test") if (source / name).is_dir()), "."
        )
        for path, text in self.suite.files:
            (source / path).write_text(text)
        command = [str(self.prepare(source)), "-m", "pytest", *OPTIONS.split(), "-o", "addopts="]
        command += ["-o", "junit_family=xunit1", f"--junitxml={results}", *tests.split()]
        environment = os.environ | {"CI": "", "DOUBLED_STORE": store, "DOUBLED_LOG": str(notes)}
        environment["PATH"] = os.pathsep.join((str(Path(command[0]).parent), os.environ["PATH"]))
        environment |= variables(self.suite.variables, servers)
        environment["PYTHONPATH"] = os.pathsep.join(map(str, (source, PLUGIN, ROOT)))
        environment |= {"SUITE_ENDS": str(time.monotonic() + seconds), "DOUBLED": variant or ""}
        command[3:3] = ["-p", "in_time", *(["-p", "doubled_requests"] if variant else [])]
        try:
            done = quiet(*command, cwd=source, env=environment, timeout=seconds + 300)
        except subprocess.TimeoutExpired:
            return {}, []
        (self.home / f"{label}.txt").write_text(done.stdout[-20_000:] + done.stderr[-5_000:])
        lines = notes.read_text().splitlines() if notes.exists() else []
        return outcomes(results), [json.loads(line) for line in lines]


def variables(text, servers):
    """Fill in the addresses of the servers; each run has an empty database of its own."""
    if "{" in text:
        url = servers.postgres.new_database()
        parts = urlsplit(url)
        text = text.format(
            url=re.sub(r"^postgresql\+\w+", "postgresql", url),
            host=parts.hostname,
            port=parts.port,
            database=parts.path[1:],
            redis_port=servers.redis.port,
        )
    return dict(word.split("=", 1) for word in text.split())


def outcomes(file):
    if not file.exists():
        return {}
    found = {}
    for case in ET.parse(file).getroot().iter("testcase"):
        failed = [each for each in case if each.tag in ("failure", "error")]
        skipped = case.find("skipped") is not None
        text = failed[0].get("message", "") if failed else ""
        state = "failed" if failed else "skipped" if skipped else "passed"
        found[f"{case.get('classname')}::{case.get('name')}"] = (state, text[:300])
    return found
