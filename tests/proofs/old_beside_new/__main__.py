"""Run every scenario on an older commit and on this tree, and group what differs.

uv run --directory tests python -m proofs.old_beside_new 124e40b1 [FAMILY …]

A difference is explained by a row of `EXPECTED`, or it is a fault: then the exit code is 1.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

EXPECTED = {
    r"settings: IDEMPOTENCE_WATCH,": "the setting is gone",
    r"(?s)commands: .*(\bwatch\b|_WATCH\b)": "the command, its setting and its check are gone",
    r"(?m)^\+error ConfigurationError: .* and no dotted names": "dotted names are refused",
    r"(?m)^\+error ConfigurationError: .* takes a collection of names": "names are strings",
    r"(?s)arguments: .*(key|compare)=lambda.*UUID": "these functions may return a UUID",
    r"(?ms)^\w+: .*token.*^-.*(token-spent|TAKEN)": "a token is put back after each failure",
    r"arguments: .*key=lambda: 'k', wait=1": "a wait ends when its sleeps add up",
    r"lock waits.*(\n[-+]Retry-After: \d)+$": "and its sleeps are counted from other moments",
    r"(?s)commands: .*--mode": "modes are listed by the alphabet",
    r"\A[^\n]+\n(-signal[^\n]*\n)?-Idempotent-Expires-In: \d+\s*\Z": "repeats differ",
    r"\A(requests|hooks|bodies): .*, methods": "QUERY is a safe method",
    r"(?s)commands: .*routes.*\n-.*QUERY": "QUERY is a safe method",
    r"(?s)senders: .*\n[-+]log WARNING (The session|Only addresses|A guest's)": "each name once",
    r"\+log WARNING A guest's request has a header": "each name is logged once",
    r"senders: (7, 8|8, 7), key": "the ids 1 and '1' are two users",
    r"calls the view again outside its guard": "the error names the other cause",
    r"nestings: .*lock observed, releases": "release() also releases what is only observed",
    r'<meta name="viewport"': "the page of a refusal fits a phone and names its language",
    r"\+Vary: Cookie": "a record keeps that its view has read the session",
    r"'key-in-progress', 'key-reused'": "another status may be set for key-reused",
    r"Give --running for all held claims": "the error names --running",
    r"The identity_loader returned": "a loader's object is refused",
    r"keep\(ttl=5\) is less than": "steps must not outlive the record",
    r"arguments: F.Retries": "clocks are looked up when they are called, so the repr differs",
}
"""A pattern of a group's text (family, scenario, lines that differ): why they shall differ."""


def start(tree, names, families, file, only):
    """Start the scenarios on the package in a tree; the code of the scenarios is this one."""
    paths = os.pathsep.join([str(tree), str(ROOT / "tests")])
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "0", "TZ": "UTC"}
    command = [sys.executable, "-P", "-W", "ignore", "-m", "proofs.old_beside_new.scenarios"]
    command += [str(tree), names, *families]
    with file.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=output)
    process.stdin.write(json.dumps(only).encode())
    process.stdin.close()
    return process


def told(file):
    lines = map(json.loads, file.read_text().splitlines())
    return {(family, name): answer for family, name, answer in lines}


def difference(old, new):
    """Return the lines that differ, without the numbers of requests."""
    lines = difflib.unified_diff(old, new, n=0, lineterm="")
    return [re.sub(r"^([-+])\d ", r"\1", line) for line in lines if line[:3] not in ("---", "+++")
            and not line.startswith("@@")]  # fmt: skip


def compare(old, new):
    """Print the groups of differences, the largest first; return how many nobody explains."""
    groups, families = defaultdict(list), Counter(family for family, _ in new)
    for scenario in old | new:
        lines = difference(old.get(scenario, ["missing"]), new.get(scenario, ["missing"]))
        if lines:
            groups[scenario[0], tuple(dict.fromkeys(lines))].append(scenario[1])
    explained, unexplained = Counter(), 0
    for (family, lines), names in sorted(groups.items(), key=lambda each: -len(each[1])):
        text = "\n".join([f"{family}: {names[0]}", *lines])
        reason = next((why for what, why in EXPECTED.items() if re.search(what, text)), None)
        if reason:
            explained[reason] += len(names)
        else:
            unexplained += 1
            sys.stdout.write(f"\nUNEXPLAINED, {len(names)} scenarios\n{text[:1500]}\n")
    for reason, count in explained.most_common():
        sys.stdout.write(f"\n{count}: {reason}")
    counts = ", ".join(f"{family} {count}" for family, count in families.items())
    sys.stdout.write(f"\n\n{len(new)} scenarios: {counts}\n")
    sys.stdout.write(f"{sum(map(len, groups.values()))} differ, in {len(groups)} groups, ")
    sys.stdout.write(f"of which {unexplained} are unexplained\n")
    return unexplained


def run(trees, names, families, files, only=()):
    running = [
        start(*each, only) for each in zip(trees, [names] * 2, [families] * 2, files, strict=True)
    ]
    try:
        while any(process.poll() is None for process in running):
            time.sleep(5)
            counts = [file.read_text().count("\n") for file in files]
            sys.stderr.write(f"{counts} scenarios of each tree\n")
        assert not any(process.returncode for process in running), "the scenarios broke off"
    finally:
        for process in running:
            process.kill()
    return [told(file) for file in files]


def both(commit, families, directory):
    """Return the answers of both trees; those that differ are from a second attempt."""
    trees, git = (directory / "older", ROOT), ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "-q", "--detach", str(trees[0]), commit], check=True)
    try:
        pages = [(tree / "docs" / "settings.md").read_text() for tree in trees]
        found = {name for page in pages for name in re.findall(r"(?m)^### (\w+)", page)}
        names = " ".join(sorted(found))
        files = [directory / f"{name}.jsonl" for name in ("old", "new")]
        old, new = run(trees, names, families, files)
        if differ := [each for each in old | new if old.get(each) != new.get(each)]:
            files = [directory / f"{name}-again.jsonl" for name in ("old", "new")]
            again = run(trees, names, families, files, differ)
            old, new = old | again[0], new | again[1]
        return old, new
    finally:
        subprocess.run([*git, "remove", "--force", str(trees[0])], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit")
    parser.add_argument("families", nargs="*")
    parser.add_argument("--keep", type=Path, help="an empty directory for the answers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as passing:
        answers = both(options.commit, options.families, options.keep or Path(passing))
    sys.exit(bool(compare(*answers)))


if __name__ == "__main__":
    main()
