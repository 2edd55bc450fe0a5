"""Run the suites of other projects with the extension on every application that they make.

uv run --directory tests python -m proofs.applications [NAME …] [--report FILE]

Each suite comes as a source distribution through pip, into an environment of its own, and runs
bare first. What a directory has already is not run again. A difference has a cause in
`suites.CAUSES`, or it is a fault: then the exit code is 1.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from helpers import ROOT
from helpers.servers.processes import RedisServer

from .suites import CAUSES, REPOSITORIES, SUITES

PLUGIN = Path(__file__).with_name("plugin")
VARIANTS = (
    *("installed", "observing", "observing with keys", "whole app", "fresh keys"),
    *("twice, first", "twice, replay"),
)
BACKENDS = ("flit-core", "hatchling", "hatch-vcs", "setuptools<81", "poetry-core", "wheel")
MOST = 240
"""Seconds for one run of a suite."""


def quiet(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def fetcher(directory):
    """Make an environment of pip and the build backends: pip need not make one for each."""
    python = directory / ".fetcher" / "bin" / "python"
    if not python.exists():
        quiet("uv", "venv", "-q", "-p", sys.executable, str(directory / ".fetcher"))
        quiet("uv", "pip", "install", "-q", "-p", str(python), "pip", *BACKENDS)
    return python


def fetch(name, directory):
    """Return the directory of a project's sources, with its tests; None where there are none."""
    home = directory / name
    if not home.exists():
        home.mkdir(parents=True)
        command = (str(fetcher(directory)), "-m", "pip", "download", "-q", "-d", str(home))
        quiet(*command, "--no-deps", "--no-build-isolation", "--no-binary", ":all:", name)
        for archive in home.glob("*.tar.gz"):
            with tarfile.open(archive) as opened:
                opened.extractall(home, filter="data")
    return find_tests(home)


def find_tests(home):
    found = next(home.glob("*/**/test*.py"), None)
    return found and home / found.relative_to(home).parts[0]


def prepare(name, source):
    """Make an environment for a suite; return its Python, or None where it cannot be made."""
    environment = source.parent.parent / ".environments" / name
    python = environment / "bin" / "python"
    if not (environment / "made").exists():
        quiet("uv", "venv", "-q", "--clear", "-p", sys.executable, str(environment))
        extra = ("pytest<9", "setuptools<81", *SUITES.get(name, "").split())
        command = ("uv", "pip", "install", "-q", "-p", str(python), str(source), *extra)
        done = quiet(*command, "-r", str(ROOT / "pyproject.toml"))  # what the package needs
        if done.returncode:
            sys.stderr.write(f"{name}: no environment: {done.stderr[-600:]}\n")
            return None
        (environment / "made").touch()
    return python


def known(python, source, variant=None, store="memory://"):
    """Return the results of an earlier run, or run the suite."""
    file = source.parent / "results" / f"{variant or 'bare'} on {store.partition(':')[0]}.json"
    if file.exists():
        return json.loads(file.read_text())
    found, noted = run(python, source, variant, store)
    if found:
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps([found, noted]))
    return found, noted


def run(python, source, variant, store):
    """Run a suite; return how each test ended, and what the plugin has noted."""
    results, notes = source.parent / "results.xml", source.parent / "notes.jsonl"
    for file in (results, notes):
        file.unlink(missing_ok=True)
    tests = next((name for name in ("tests", "test") if (source / name).is_dir()), ".")
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
        "--continue-on-collection-errors",
    ]
    command += ["-o", "junit_family=xunit1", f"--junitxml={results}", tests]
    environment = os.environ | {"CI": "", "DOUBLED_STORE": store, "DOUBLED_LOG": str(notes)}
    environment.pop("PYTHONPATH", None)
    if variant:
        command[3:3] = ["-p", "doubled_requests"]
        environment |= {
            "DOUBLED": variant,
            "PYTHONPATH": os.pathsep.join([str(PLUGIN), str(ROOT)]),
        }
    try:
        quiet(*command, cwd=source, env=environment, timeout=MOST)
    except subprocess.TimeoutExpired:
        return {}, []
    noted = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    return outcomes(results), noted


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


def cause_of(*place):
    text = ", ".join(place)
    return next((why for pattern, why in CAUSES.items() if re.search(pattern, text)), None)


def differences(name, variant, bare, found, noted):
    """Yield what a variant has changed: place, text and cause, or None: that is a fault."""
    if not found:
        yield variant, "the run did not end", cause_of(name, variant, "run")
    for test, (state, text) in found.items():
        if state == "failed" and bare.get(test, ("", ""))[0] == "passed":
            yield f"{variant}: {test}", text, cause_of(name, variant, test, text)
    for each in noted:
        if "fault" in each:
            yield f"{variant}: {each['test']}", each["text"], cause_of(name, variant, each["text"])
        elif each["replayed"] and each["differs"]:
            place = f"{variant}: {each['test']} {each['method']} {each['path']}"
            text = f"replay differs: {each['differs']}"
            yield place, text, cause_of(name, place, text)


def tell(name, directory, variants, redis, faults):
    """Run all variants of a suite; return its row of the report."""
    source = fetch(name, directory)
    if source is None:
        return [name, "no tests in the distribution; " + REPOSITORIES.get(name, "")]
    if (python := prepare(name, source)) is None:
        return [name, "no environment"]
    version = re.sub(r".*-(?=\d)", "", source.name)
    began, (bare, _) = time.monotonic(), known(python, source)
    passed = sum(state == "passed" for state, _ in bare.values())
    sys.stderr.write(f"{name} {version}: {passed} of {len(bare)} pass bare, ")
    sys.stderr.write(f"{time.monotonic() - began:.0f} s\n")
    if not passed:
        return [name, version, "the suite does not run here"]
    counts, kinds = Counter(), Counter()
    runs = [(variant, "memory://") for variant in variants] + [("twice, first", redis)]
    for variant, store in runs:
        found, noted = known(python, source, variant, store)
        sent = [each for each in noted if "replayed" in each]
        counts["doubled"] += len(sent)
        counts["replayed"] += sum(each["replayed"] for each in sent)
        for each in sent:
            if not each["replayed"]:
                kinds[
                    f"{each['first']} then {each['second']} {each['refusal'] or ''}".strip()
                ] += 1
        new = list(
            differences(name, f"{variant} on {store.partition(':')[0]}", bare, found, noted)
        )
        counts["explained"] += sum(why is not None for *_, why in new)
        faults += [(name, *each) for each in new if each[2] is None]
        failed = sum(state == "failed" for state, _ in found.values())
        sys.stderr.write(
            f"  {variant} on {store.partition(':')[0]}: {failed} fail, {len(sent)} doubled, "
        )
        sys.stderr.write(f"{len(new)} differences\n")
    own = sum(fault[0] == name for fault in faults)
    seen = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common(4))
    sums = [counts[kind] for kind in ("doubled", "replayed", "explained")]
    return [name, version, passed, *sums, own, seen]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(SUITES))
    parser.add_argument("--directory", type=Path, help="for sources and environments")
    parser.add_argument("--variants", nargs="+", default=VARIANTS, choices=VARIANTS)
    parser.add_argument("--report", type=Path, help="where to write the table")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.gettempdir(), "applications-of-others")
    faults = []
    with RedisServer() as server:
        rows = [
            tell(name, directory.resolve(), options.variants, server.url, faults)
            for name in options.names
        ]
    head = "suite | version | tests | doubled | replayed | explained | unexplained | not replayed"
    lines = [f"| {head} |", "|---" * 8 + "|"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    done = [row for row in rows if len(row) == 8]
    sums = [sum(row[at] for row in done) for at in (2, 3, 4, 5, 6)]
    lines.append(
        f"| {len(done)} suites | {datetime.now(UTC):%Y-%m-%d} | {' | '.join(map(str, sums))} | |"
    )
    text = "\n".join(lines) + "\n"
    (options.report.write_text if options.report else sys.stdout.write)(text)
    for fault in faults:
        sys.stdout.write(f"UNEXPLAINED {fault}\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
