"""Run the suites of other projects with the extension on every application that they make.

Each suite comes from PyPI or its repository, into an environment of its own, and runs bare
first. A run whose result the directory keeps is not repeated, so a run that was broken off goes
on. A difference has a cause in `suites.CAUSES`, or it is a fault: then the exit code is 1.
"""

import argparse
import contextlib
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from helpers.servers.postgres import PostgresServer
from helpers.servers.processes import RedisServer

from .runs import Sources
from .suites import CAUSES, SUITES

MEMORY = "memory://"
VARIANTS = (
    *("twice, first", "twice, replay", "made, twice"),
    *("installed", "observing", "observing with keys", "whole app", "fresh keys"),
)
HEAD = "suite | version | tests | doubled | replayed | explained | unexplained | not replayed"


class Servers(contextlib.ExitStack):
    """The servers that suites and stores use, started by the first that needs them."""

    @cached_property
    def redis(self):
        return self.enter_context(RedisServer())

    @cached_property
    def postgres(self):
        return self.enter_context(PostgresServer())


@dataclass
class Found:
    """What the runs of one suite have shown."""

    row: list
    causes: Counter = field(default_factory=Counter)
    faults: list = field(default_factory=list)


def cause_of(*place):
    text = ", ".join(place)
    return next((why for pattern, why in CAUSES.items() if re.search(pattern, text)), None)


def differences(variant, bare, found, noted):
    """Yield the place and the text of each difference that a variant has made."""
    if not found:
        yield variant, "the run did not end"
    for test, (state, text) in found.items():
        if state == "failed" and bare.get(test, ("", ""))[0] == "passed":
            yield f"{variant}: {test}", text
    for each in noted:
        place = f"{variant}: {each['test']}"
        if "fault" in each:
            yield place, each["text"]
            continue
        place += f" {each['method']} {each['path']}"
        if each["replayed"] and each["differs"]:
            yield place, f"replay differs: {each['differs']}"
        elif each["reached"] and not each["replayed"] and each["first"] < "4":
            yield place, f"no replay: {each['first']}, {each['second']} {each['refusal']}"


def judge(name, options, servers):
    """Run all variants of a suite; return what they have found."""
    sources = Sources(name, options.directory)
    if (source := sources.fetch()) is None or sources.prepare(source) is None:
        return Found([name, "no tests here; " + SUITES[name].repository])
    version = sources.version(source)

    def known(variant, store=MEMORY):
        began = time.monotonic()
        result = sources.known(source, variant, store, servers, options.seconds)
        states = Counter(state for state, _ in result[0].values())
        sys.stderr.write(f"{name}, {variant or 'bare'} on {store.partition(':')[0]}: ")
        sys.stderr.write(f"{dict(states)}, {time.monotonic() - began:.0f} s\n")
        return result

    bare, _ = known(None)
    passed = sum(state == "passed" for state, _ in bare.values())
    if not passed:
        return Found([name, version, "the suite does not run here"])
    found, kinds, counts = Found([]), Counter(), Counter()
    runs = [(variant, MEMORY) for variant in options.variants]
    if "twice, first" in options.variants and not options.memory:
        runs.insert(1, ("twice, first", servers.redis.url))
    for variant, store in runs:
        if options.kept and not sources.kept(variant, store).exists():
            continue
        results, noted = known(variant, store)
        sent = [each for each in noted if "replayed" in each]
        counts["doubled"] += len(sent)
        counts["replayed"] += sum(each["replayed"] for each in sent)
        kinds.update(
            f"{each['first']} then {each['second']} {each['refusal'] or ''}".strip()
            for each in sent
            if not each["replayed"]
        )
        where = f"{variant} on {store.partition(':')[0]}"
        for place, text in differences(where, bare, results, noted):
            if why := cause_of(name, place, text):
                found.causes[why] += 1
            else:
                found.faults.append((name, place, text))
    seen = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common(4))
    sums = [counts["doubled"], counts["replayed"], found.causes.total(), len(found.faults)]
    found.row = [name, version, passed, *sums, seen]
    return found


def report(all_found):
    """Return the tables of the report."""
    rows = [found.row for found in all_found]
    done = [row for row in rows if len(row) == 8]
    sums = [sum(row[at] for row in done) for at in (2, 3, 4, 5, 6)]
    rows.append([f"{len(done)} suites", f"{datetime.now(UTC):%Y-%m-%d}", *sums, ""])
    lines = [f"| {HEAD} |", "|---" * 8 + "|"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    lines += ["", "| suite | differences | cause |", "|---|---|---|"]
    for found in all_found:
        lines += [f"| {found.row[0]} | {count} | {why} |" for why, count in found.causes.items()]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(SUITES), metavar="NAME")
    parser.add_argument(
        "--directory",
        type=lambda text: Path(text).resolve(),
        default=Path(tempfile.gettempdir(), "applications-of-others"),
        help="sources, environments and results; a checkout in DIRECTORY/NAME is used",
    )
    parser.add_argument("--variants", nargs="+", default=VARIANTS, choices=VARIANTS)
    parser.add_argument("--memory", action="store_true", help="leave out the runs on Redis")
    parser.add_argument("--seconds", type=int, default=600, help="for one run of a suite")
    parser.add_argument("--kept", action="store_true", help="report what is kept, run nothing")
    parser.add_argument("--report", type=Path, help="where to write the tables")
    options = parser.parse_args()
    if unknown := set(options.names) - set(SUITES):
        parser.error(f"no suite {', '.join(unknown)}; there are {', '.join(SUITES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the servers, too
    with Servers() as servers:
        all_found = [judge(name, options, servers) for name in options.names]
    (options.report.write_text if options.report else sys.stdout.write)(report(all_found))
    faults = [fault for found in all_found for fault in found.faults]
    for fault in faults:
        sys.stdout.write(f"UNEXPLAINED {fault}\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
