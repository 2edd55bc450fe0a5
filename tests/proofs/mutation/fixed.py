"""300 mutants that were drawn once, so that two states of the code can be compared.

Each is found again by its texts, in whichever file its line is now. A line that has changed too
much is gone, and its mutant with it.
"""

import difflib
import json
import random
import re
from collections import Counter, defaultdict
from pathlib import Path

from .mutants import FOUND

FILE = Path(__file__).with_name("fixed.jsonl")
SEED, SIZE, LEAST = 20261127, 300, 12
ALIKE = 0.75
"""How much of a line must be left, for the same change of it to be the same mutant."""


def fixed():
    """Return the mutants of the list: place, texts, and how each ended on the first commit."""
    return [json.loads(line) for line in FILE.read_text().splitlines()]


def draw(mutants):
    """Return the mutants of a new list: of each package its share, and at least `LEAST`.

    Those whose text occurs twice, or does not show the change, cannot be found again.
    """
    texts = Counter(_texts(vars(mutant)) for mutant in mutants)
    packages = defaultdict(list)
    for mutant in sorted(mutants, key=lambda mutant: mutant.name):
        if mutant.removed and texts[_texts(vars(mutant))] == 1:
            packages[_package(mutant)].append(mutant)
    whole = sum(map(len, packages.values()))
    shares = {
        name: max(LEAST, round(SIZE * len(found) / whole)) for name, found in packages.items()
    }
    while (over := sum(shares.values()) - SIZE) != 0:
        shares[max(shares, key=shares.__getitem__)] -= 1 if over > 0 else -1
    chance = random.Random(SEED)
    return [
        mutant
        for name, found in sorted(packages.items())
        for mutant in sorted(chance.sample(found, shares[name]), key=lambda each: each.line)
    ]


def write(mutants, results=()):
    """Write the list, with the results on this commit where there are any."""
    ended = {mutant.name: told for mutant, told in results}
    lines = []
    for mutant in mutants:
        told = {name: getattr(mutant, name) for name in ("file", "function", "removed", "added")}
        if mutant.name in ended:
            told |= {name: ended[mutant.name][name] for name in ("status", "test")}
        lines.append(json.dumps(told, ensure_ascii=False))
    FILE.write_text("\n".join(lines) + "\n")


def find(told, mutants):
    """Return the mutant of today that makes the same change, or None: it is gone."""
    same = [mutant for mutant in mutants if mutant.added == told["added"]]
    for names in (("file", "function"), ("function",), ()):
        wanted = {name: told[name] for name in (*names, "removed")}
        found = [each for each in same if wanted.items() <= vars(each).items()]
        if len(found) == 1:
            return found[0]
    change = _change(told["removed"], told["added"])
    alike = [
        (ratio, each.function == told["function"], each)
        for each in mutants
        if each.file.split("/")[1] == told["file"].split("/")[1]  # of the same wing
        and (ratio := _ratio(each.removed, told["removed"])) >= ALIKE
        and _change(each.removed, each.added) == change
    ]
    alike.sort(key=lambda each: each[:2])
    if not alike or (len(alike) > 1 and alike[-2][:2] == alike[-1][:2]):
        return None
    return alike[-1][2]


def tests_of(mutants, results):
    """Return the test that each mutant died by on the first commit, where it was not tried yet."""
    tried = {told["mutant"] for told in results}
    pairs = [(told, find(told, mutants)) for told in fixed() if told.get("status") in FOUND]
    return {
        mutant.name: told["test"] for told, mutant in pairs if mutant and mutant.name not in tried
    }


def lost(results, mutants):
    """Return the mutants that died on the first commit and live today, with their first test."""
    ended = {mutant.name: told["status"] for mutant, told in results}
    pairs = [(told, find(told, mutants)) for told in fixed() if told.get("status") in FOUND]
    return {
        mutant: told["test"]
        for told, mutant in pairs
        if mutant and ended.get(mutant.name, FOUND[0]) not in FOUND
    }


def compare(results, mutants):
    """Return the lines of a report: how many ended how then and now, and which are lost."""
    ended = {mutant.name: told["status"] for mutant, told in results}
    counts = Counter()
    for told in fixed():
        mutant = find(told, mutants)
        today = _word(ended.get(mutant.name)) if mutant else "gone"
        counts[_word(told.get("status")), today] += 1
    lines = [f"{first} first, {today} today: {n}" for (first, today), n in sorted(counts.items())]
    for mutant, test in lost(results, mutants).items():
        lines += [f"{mutant.file}:{mutant.line} {mutant.function}, once found by {test}"]
        lines += [f"    - {mutant.removed}", f"    + {mutant.added}"]
    return lines


def _word(status):
    if status is None:
        return "not tried"
    return "died" if status in FOUND else "lived"


def _package(mutant):
    folders = mutant.file.split("/")[1:-1]
    return "/".join(folders[:2]) or "the root"


def _texts(told):
    return tuple(told[name] for name in ("file", "function", "removed", "added"))


def _ratio(one, other):
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    return min(matcher.real_quick_ratio(), matcher.quick_ratio()) and (
        matcher.ratio() if matcher.quick_ratio() >= ALIKE else 0
    )


def _change(removed, added):
    """Return the words that one text has and the other has not."""
    before, after = (re.findall(r"\w+|\S", text) for text in (removed, added))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [
        (before[a:b], after[c:d]) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"
    ]
