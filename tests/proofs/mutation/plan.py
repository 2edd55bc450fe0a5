"""Which mutants are tried, and which tests are run on each, in which order."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable

from .mutants import Mutant


def sample(mutants: Iterable[Mutant], seed: int, size: int | None, least: int) -> list[Mutant]:
    """Return so many mutants, each file with its share of them, and each wing with the least."""
    chance = random.Random(seed)
    files = defaultdict(list)
    for mutant in mutants:
        files[mutant.file].append(mutant)
    places = []
    for file in sorted(files):
        found = files[file]
        chance.shuffle(found)
        places += [((at + chance.random()) / len(found), each) for at, each in enumerate(found)]
    order = [mutant for _, mutant in sorted(places, key=lambda place: place[0])]
    wings = defaultdict(list)
    for mutant in order:
        wings[mutant.wing].append(mutant)
    chosen = order[:size] + [mutant for found in wings.values() for mutant in found[:least]]
    return list(dict.fromkeys(chosen))


class Plan:
    """The tests of a mutant: those that call its function, the quick and specific ones first."""

    def __init__(self, calls: dict[str, tuple[float, list[str]]]) -> None:
        """Take how long each test takes, and what it calls."""
        self.seconds = {test: seconds for test, (seconds, _) in calls.items()}
        self._breadth = {test: len(called) + 5 for test, (_, called) in calls.items()}
        self._callers = defaultdict(list)
        for test, (_, called) in calls.items():
            for function in called:
                self._callers[function].append(test)
        self._kills = defaultdict(Counter)

    def note_kill(self, mutant: Mutant, test: str) -> None:
        """Remember a test that has killed a mutant: it may kill its neighbours."""
        self._kills[mutant.key][test] += 1
        self._kills[mutant.file][test] += 1

    def tests(self, mutant: Mutant, seconds: float, slow_too: bool = False) -> list[str]:
        """Return the first tests of a mutant, as many as took so many seconds unmutated."""
        callers = self._callers[mutant.key]
        proven = [
            test
            for place in (mutant.key, mutant.file)
            for test, _ in self._kills[place].most_common(15)
            if test in callers
        ]
        folder = mutant.file.split("/")[1]
        weights = {test: self._weight(test, folder, slow_too) for test in callers}
        chosen = []
        for test in dict.fromkeys(proven + _in_turn(weights)):
            seconds -= self.seconds[test] + 0.01
            if seconds < 0 and chosen:
                break
            chosen.append(test)
        return chosen

    def _weight(self, test: str, folder: str, slow_too: bool) -> float:
        elsewhere = 1 if test.startswith(f"tests/{folder}/") else 2
        seconds = 1 if slow_too else self.seconds[test] + 0.02
        return self._breadth[test] * elsewhere * seconds


def _in_turn(weights: dict[str, float]) -> list[str]:
    """Take one test of each file after another, for tests of one file are much alike."""
    turns, taken = [], Counter()
    for test in sorted(weights, key=weights.__getitem__):
        file = test.partition("::")[0]
        taken[file] += 1
        turns.append((taken[file] * weights[test], test))
    return [test for _, test in sorted(turns)]
