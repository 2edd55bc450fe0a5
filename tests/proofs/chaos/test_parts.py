"""What the chaos is made of: the journal, the cases and faults of a seed, and the report."""

from dataclasses import replace

from helpers.journal import Journal, read_journal

from .faults import LENGTHS, OneServer, Sentinels, Workers, schedule
from .history import KILLED, Attempt, Fault, History, Run, runs_in, stalls_in
from .load import cases
from .report import counts_of, report

LEASE = 3.0


def test_a_journal_is_read_as_it_was_written_save_what_is_half_written(tmp_path):
    journal = Journal(tmp_path)
    assert [journal.ordinal("least/1/anna") for _ in range(3)] == [1, 2, 3]
    about = {"operation": "least/1/anna", "attempt": "a", "arrived": 1.0}
    for run in ("one", "two"):
        journal.note("begun", run=run, **about)
    journal.note("effect", run="one")
    journal.note("exits", run="one")
    journal.note("stall", since=0.0)
    with (tmp_path / "journal").open("ab") as file:
        file.write(b'{"event": "eff')
    lines = read_journal(tmp_path)
    assert [(run.id, run.effect is None, run.end) for run in runs_in(lines)] == [
        ("one", False, "exit"),
        ("two", True, ""),
    ]
    assert len(stalls_in(lines)) == 1


def test_a_seed_makes_the_same_cases_and_faults_and_every_round_has_every_kind():
    for side in (OneServer, Sentinels):
        kinds = [*Workers.kinds, *side.kinds]
        one, other = schedule(5, kinds, LEASE), schedule(5, kinds, LEASE)
        plans = [one() for _ in range(3 * len(kinds))]
        assert plans == [other() for _ in plans]
        for round_begins in range(0, len(plans), len(kinds)):
            struck = [plan.kind for plan in plans[round_begins : round_begins + len(kinds)]]
            assert sorted(struck) == sorted(kinds)
        assert set(kinds) <= set(LENGTHS)
    first, second = cases(5, 6.0), cases(5, 6.0)
    assert [next(first) for _ in range(500)] == [next(second) for _ in range(500)]


def test_the_report_counts_what_is_in_the_history():
    first = Run("one", "least/1/anna", 1, "a", 0.0, 0.1, effect=0.2)
    second = Run("two", "least/1/anna", 2, "b", 4.0, 4.1, effect=4.2, ended=4.3, end="success")
    body = {"user": "anna", "number": 1, "run": "two", "attempt": "b"}
    answer = Attempt("b", "least/1/anna", 4.0, 5.0, 201, body=body)
    attempts = [answer, replace(answer, id="c", received=6.0, replayed=True)]
    history = History(attempts, [first, second], [Fault(KILLED, 0.3, 0.3, 1)])
    counts = counts_of(history)
    assert counts["Answers"] == {"201": 1, "201 replayed": 1}
    assert counts["Faults"] == {KILLED: 1}
    assert counts["Views"]["were in the middle when their worker was killed"] == 1
    assert counts["Second runs, at-least-once"] == {"its worker was killed": 1}
    assert counts["Violations"].total() == 0
    assert "| its worker was killed | 1 |" in report(history, "A title")
