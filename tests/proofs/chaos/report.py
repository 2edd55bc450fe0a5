"""The counts of a history, and what happened to the operations that violate a promise."""

from collections import Counter
from itertools import pairwise

from .checks import CHECKS, reason, repeatable_runs


def counts_of(history):
    runs, attempts = history.runs, history.attempts
    killed = {fault.pid for fault in history.faults if "killed" in fault.kind} - {None}
    dying = [run for run in runs if run.end == "kill" or (not run.end and run.pid in killed)]
    stops = [fault for fault in history.faults if "stopped" in fault.kind]
    stopped = [run for run in runs if any(is_struck(run, stop) for stop in stops)]
    long = [run for run in runs if (run.ended or run.begun) - run.begun > history.lease]
    views = {
        "began": len(runs),
        "had their effect": sum(run.effect is not None for run in runs),
        "were in the middle when their worker was killed": len(dying),
        "were in the middle when their worker was stopped": len(stopped),
        "longer than their lease": len(long),
    }
    second_runs = [
        reason(history, first, second) or "for no reason"
        for _, of_one in repeatable_runs(history, "least", "patient")
        for first, second in pairwise(of_one)
    ]
    return {
        "Load": Counter(operations=len(history.attempts_of), requests=len(attempts)),
        "Answers": Counter(kind_of(attempt) for attempt in attempts),
        "Faults": Counter(fault.kind for fault in history.faults),
        "Views": Counter(views),
        "Second runs, at-least-once": Counter(second_runs),
    }


def kind_of(attempt):
    if attempt.status is None:
        return "no answer"
    told = f"{attempt.status} {attempt.slug}".strip()
    return f"{told} replayed" if attempt.replayed else told


def is_struck(run, stop):
    ended = run.ended or run.begun
    return stop.pid == run.pid and stop.begun < ended and stop.ended > run.begun


def worst_of(history, checks=CHECKS):
    """Return the first violations, each with what happened to its operation."""
    lines = []
    for check in checks:
        for violation in [*check(history)][:5]:
            lines.append(f"{check.__name__}: {violation.operation} {violation.what}")
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
