"""The counts of a history, as tables."""

from collections import Counter
from itertools import pairwise

from .checks import CHECKS, Violation, reason, repeatable_runs
from .history import Attempt, History, Run


def violations_in(history: History, checks=CHECKS) -> dict[str, list[Violation]]:
    """Return what each check finds, of those that find something."""
    found = {check.__name__: list(check(history)) for check in checks}
    return {name: violations for name, violations in found.items() if violations}


def counts_of(history: History) -> dict[str, Counter]:
    runs, attempts = history.runs, history.attempts
    killed = {fault.pid for fault in history.faults if "killed" in fault.kind} - {None}
    load = {
        "operations": len(history.attempts_of),
        "requests": len(attempts),
        "of these, when all was calm again": sum(attempt.probe for attempt in attempts),
        "with another user's token": sum(attempt.stolen for attempt in attempts),
    }
    views = {
        "began": len(runs),
        "had their effect": sum(run.effect is not None for run in runs),
        "were in the middle when their worker was killed": sum(
            (not run.end and run.pid in killed) or run.end == "kill" for run in runs
        ),
        "were in the middle when their worker was stopped": sum(
            was_stopped(history, run) for run in runs
        ),
        "longer than their lease": sum(
            (run.ended or run.begun) - run.begun > history.lease for run in runs
        ),
    }
    second_runs = [
        reason(history, first, second) or "for no reason"
        for _, of_one in repeatable_runs(history, "least", "patient")
        for first, second in pairwise(of_one)
    ]
    found = {name.replace("_", " "): len(told) for name, told in violations_in(history).items()}
    return {
        "Load": Counter(load),
        "Answers": Counter(kind_of(attempt) for attempt in attempts),
        "Faults": Counter(fault.kind for fault in history.faults),
        "Views": Counter(views),
        "Second runs, at-least-once": Counter(second_runs),
        "Violations": Counter(found),
    }


def kind_of(attempt: Attempt) -> str:
    if attempt.status is None:
        return "no answer"
    told = f"{attempt.status} {attempt.slug}".strip()
    return f"{told} replayed" if attempt.replayed else told


def was_stopped(history: History, run: Run) -> bool:
    ended = run.ended or run.begun
    stops = [f for f in history.faults if "stopped" in f.kind and f.pid == run.pid]
    return any(stop.begun < ended and stop.ended > run.begun for stop in stops)


def report(history: History, title: str) -> str:
    longest = max((stall.length for stall in history.stalls), default=0.0)
    lines = [f"### {title}", "", "| | |", "|---|---|"]
    for heading, counts in counts_of(history).items():
        lines.append(f"| **{heading}** | |")
        lines += [f"| {what} | {count} |" for what, count in counts.items()]
    return "\n".join([*lines, "", f"The longest standstill of a process: {longest:.1f} s."])


def worst_of(history: History, checks=CHECKS) -> str:
    """Return the first violations, each with what happened to its operation."""
    lines = []
    for name, found in violations_in(history, checks).items():
        for violation in found[:5]:
            lines.append(f"{name}: {violation.operation} {violation.what}")
            runs = history.runs_of.get(violation.operation, [])[:4]
            tried = history.attempts_of.get(violation.operation, [])[-6:]
            near = [
                fault
                for fault in history.faults
                if runs and fault.begun < runs[-1].begun
                if fault.ended > runs[0].arrived - history.lease
            ]
            lines += [f"    {event}" for event in (*runs, *tried, *near)]
    return "\n".join(lines)
