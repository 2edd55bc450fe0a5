"""The counts of a history, as tables."""

from collections import Counter
from itertools import pairwise

from .checks import CHECKS, Violation, reason, repeatable_runs
from .history import History, Run
from .load import kind_of


def violations_in(history: History) -> dict[str, list[Violation]]:
    return {check.__name__: list(check(history)) for check in CHECKS}


def counts_of(history: History) -> dict[str, Counter]:
    effects = [run for run in history.runs if run.effect]
    killed = {fault.pid for fault in history.faults if "killed" in fault.kind} - {None}
    return {
        "Load": Counter(
            {
                "operations": len(history.attempts_of),
                "requests": len(history.attempts),
                "of these, when all was calm again": sum(a.probe for a in history.attempts),
                "with another user's token": sum(a.stolen for a in history.attempts),
            }
        ),
        "Answers": Counter(kind_of(attempt) for attempt in history.attempts),
        "Faults": Counter(fault.kind for fault in history.faults),
        "Views": Counter(
            {
                "began": len(history.runs),
                "had their effect": len(effects),
                "were in the middle when their worker was killed": sum(
                    (not run.end and run.pid in killed) or run.end == "kill"
                    for run in history.runs
                ),
                "were in the middle when their worker was stopped": sum(
                    was_stopped(history, run) for run in history.runs
                ),
                "longer than their lease": sum(
                    (run.ended or run.begun) - run.begun > history.lease for run in history.runs
                ),
            }
        ),
        "Second runs, at-least-once": second_runs(history),
        "Violations": Counter(
            {name.replace("_", " "): len(found) for name, found in violations_in(history).items()}
        ),
    }


def was_stopped(history: History, run: Run) -> bool:
    ended = run.ended or run.begun
    stops = [fault for fault in history.faults if "stopped" in fault.kind]
    return any(
        stop.pid == run.pid and stop.begun < ended and stop.ended > run.begun for stop in stops
    )


def second_runs(history: History) -> Counter:
    reasons = Counter()
    for _, runs in repeatable_runs(history, "least", "patient"):
        for first, second in pairwise(runs):
            reasons[reason(history, first, second) or "for no reason"] += 1
    return reasons


def report(history: History, title: str) -> str:
    longest = max((stall.length for stall in history.stalls), default=0.0)
    lines = [f"### {title}", "", "| | |", "|---|---|"]
    for heading, counts in counts_of(history).items():
        lines.append(f"| **{heading}** | |")
        lines += [f"| {what} | {count} |" for what, count in counts.items()]
    return "\n".join([*lines, "", f"The longest standstill of a process: {longest:.1f} s."])


def worst_of(history: History) -> str:
    lines = []
    for name, found in violations_in(history).items():
        for violation in found[:5]:
            lines.append(f"{name}: {violation.operation} {violation.what}")
            about = history.runs_of.get(violation.operation, [])
            lines += [f"    {run}" for run in about[:4]]
            tried = history.attempts_of.get(violation.operation, [])
            lines += [f"    {attempt}" for attempt in tried[-6:]]
            if about:
                begun, ended = about[0].arrived - history.lease, about[-1].begun
                near = [f for f in history.faults if f.begun < ended and f.ended > begun]
                lines += [f"    {fault}" for fault in near]
    return "\n".join(lines)
