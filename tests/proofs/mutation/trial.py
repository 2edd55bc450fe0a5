"""A plugin of pytest that tries mutants in forks, in place of running the tests."""

import gc
import json
import os
import random
import sys
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from .forks import Fork, Outcome
from .mutants import FOUND, Mutant, mutants_in, results_in

CONTROLS = 20
"""One of so many trials is of the unmutated code, and has to survive."""
QUICK, FULL = 12, 120
"""Seconds of tests for a mutant, at first and with `again`."""


def sample(mutants, seed, size, least):
    """Return so many mutants, and of each wing the least."""
    order = sorted(mutants, key=lambda mutant: mutant.name)
    random.Random(seed).shuffle(order)
    wings = defaultdict(list)
    for mutant in order:
        wings[mutant.wing].append(mutant)
    chosen = order[:size] + [mutant for found in wings.values() for mutant in found[:least]]
    return list(dict.fromkeys(chosen))


class Plan:
    """The tests of a mutant: those that call its function, the quick and specific ones first."""

    def __init__(self, calls):
        self.seconds = {test: seconds for test, (seconds, _) in calls.items()}
        self._breadth = {test: len(called) + 5 for test, (_, called) in calls.items()}
        self._callers = defaultdict(list)
        for test, (_, called) in calls.items():
            for function in called:
                self._callers[function].append(test)
        self._kills = defaultdict(Counter)

    def note_kill(self, mutant, test):
        """Remember a test that has killed a mutant: it may kill its neighbours."""
        self._kills[mutant.key][test] += 1
        self._kills[mutant.file][test] += 1

    def tests(self, mutant, seconds, slow_too=False):
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

    def _weight(self, test, folder, slow_too):
        elsewhere = 1 if test.startswith(f"tests/{folder}/") else 2
        seconds = 1 if slow_too else self.seconds[test] + 0.02
        return self._breadth[test] * elsewhere * seconds


def _in_turn(weights):
    """Take one test of each file after another, for tests of one file are much alike."""
    turns, taken = [], Counter()
    for test in sorted(weights, key=weights.__getitem__):
        file = test.partition("::")[0]
        taken[file] += 1
        turns.append((taken[file] * weights[test], test))
    return [test for _, test in sorted(turns)]


@dataclass
class Trial:
    """A mutant, and the tests that are still to be run on it."""

    mutant: Mutant
    tests: list[str] = field(default_factory=list)
    control: bool = False
    full: bool = False
    suspect: str | None = None
    fork: Fork | None = None
    began: float = 0.0


class Laboratory:
    def __init__(self, items: list, settings: dict) -> None:
        self._items = {item.nodeid: item for item in items}
        self._settings = settings
        directory = Path(os.environ["MUTATION_DIRECTORY"])
        notes = directory / "notes"
        self._results = directory / "results.jsonl"
        self._logs = notes / "logs"
        self._logs.mkdir(exist_ok=True)
        self._running = []
        calls = {}
        for file in sorted(notes.glob("calls-*.json")):
            calls |= json.loads(file.read_text())
        self._plan = Plan({test: told for test, told in calls.items() if test in self._items})
        self._waiting = deque(self._trials(mutants_in(directory), results_in(directory)))

    def _trials(self, known: dict[str, Mutant], results: list[dict]) -> list[Trial]:
        if chosen := self._settings.get("chosen"):  # with a control for each
            return [
                Trial(known[name], [test], control=control)
                for name, test in chosen.items()
                if test in self._items
                for control in (False, True)
            ]
        # The last result of each mutant of an earlier part of the run.
        results = [told for told in results if not told["status"].startswith("control")]
        last = {told["mutant"]: told for told in results}
        for told in results:
            if told["test"]:
                self._plan.note_kill(known[told["mutant"]], told["test"])
        if self._settings["again"]:
            # And each test that has found something, once more where there is nothing to find.
            killers = {told["test"]: known[told["mutant"]] for told in last.values()}
            killers.pop("", None)
            controls = [Trial(mutant, [test], control=True) for test, mutant in killers.items()]
            missed = [name for name, told in last.items() if told["status"] not in FOUND]
            if names := self._settings.get("names"):
                missed = [name for name in missed if name in names]
            return controls + [Trial(known[name], full=True) for name in missed]
        trials = []
        if names := self._settings.get("names"):
            drawn = [known[name] for name in names]
        else:
            drawn = sample(known.values(), *map(self._settings.get, ("seed", "size", "least")))
        for number, mutant in enumerate(drawn):
            if mutant.name not in last:
                trials.append(Trial(mutant))
                if number % CONTROLS == 0:
                    trials.append(Trial(mutant, control=True))
        return trials

    def run(self) -> None:
        while self._running or self._may_begin():
            while self._may_begin() and len(self._running) < self._settings["forks"]:
                self._begin(self._waiting.popleft())
            time.sleep(0.01)
            for trial in list(self._running):
                if outcome := trial.fork.poll():
                    self._running.remove(trial)
                    self._conclude(trial, outcome)

    def _may_begin(self) -> bool:
        return bool(self._waiting) and time.time() < self._settings["until"]

    def _begin(self, trial: Trial) -> None:
        if not trial.tests:
            seconds = FULL if trial.full else QUICK
            trial.tests = self._plan.tests(trial.mutant, seconds, slow_too=trial.full)
        trial.began = time.monotonic()
        if trial.tests:
            self._fork(trial)
        else:
            self._write(trial, "no tests")

    def _fork(self, trial: Trial) -> None:
        tests = [trial.suspect] if trial.suspect else trial.tests
        trial.fork = Fork(
            "" if trial.control else trial.mutant.name,
            [self._items[test] for test in tests],
            [15 + 10 * self._plan.seconds.get(test, 1.0) for test in tests],
            self._logs / f"{trial.mutant.name}{'-control' * trial.control}.txt",
        )
        self._running.append(trial)

    def _conclude(self, trial: Trial, outcome: Outcome) -> None:
        """A test that has failed is run once more, alone: it has to fail again."""
        if outcome.failed or outcome.stuck:
            if trial.suspect:
                self._write_failure(trial, outcome)
                return
            trial.suspect = trial.tests[outcome.at]
            trial.tests = trial.tests[outcome.at + 1 :]
        elif trial.suspect:
            trial.suspect = None
        else:
            trial.tests = []
        if trial.suspect or trial.tests:
            self._fork(trial)
        elif trial.control or not self._settings.get("first"):  # else it gets more tests later
            self._write(trial, "control passed" if trial.control else "survived")

    def _write_failure(self, trial: Trial, outcome: Outcome) -> None:
        if trial.control:
            self._write(trial, "control failed", trial.suspect)
        else:
            self._plan.note_kill(trial.mutant, trial.suspect)
            self._write(trial, "timeout" if outcome.stuck else "killed", trial.suspect)

    def _write(self, trial: Trial, status: str, test: str = "") -> None:
        told = {
            "mutant": trial.mutant.name,
            "status": status,
            "test": test,
            "seconds": round(time.monotonic() - trial.began, 2),
        }
        with self._results.open("a") as results:
            results.write(json.dumps(told) + "\n")
        sys.__stderr__.write(f"{len(self._waiting)} left; {told}\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session) -> bool:
    settings = json.loads(os.environ.pop("MUTATION_SETTINGS"))
    laboratory = Laboratory(session.items, settings)
    assert len(sys._current_frames()) == 1, "a fork has no threads but its own"
    gc.collect()
    gc.freeze()
    laboratory.run()
    return True
