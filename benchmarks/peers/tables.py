"""The tables, in Markdown. Nothing here runs anything."""

import re
import statistics
from collections.abc import Iterable

from measuring.machine import in_words
from measuring.pages import table

from .catalogue import PEERS, Peer
from .verdicts import SIGNS, Verdict, judge

OURS = PEERS[0].name

QUESTIONS = {  # scenario: its column in the summary, its heading, its steps
    "repeat": (
        "repeat",
        "A repeat",
        "A payment succeeds. The same request, with the same key, is sent again.",
    ),
    "duplicates": (
        "8 at once",
        "8 simultaneous duplicates",
        "Eight threads, released together, send the same request to two worker processes; the "
        "view takes 0.4 s. Five rounds.",
    ),
    "another_user": (
        "another user",
        "A second user with the same key",
        "Anna pays. Ben, with a credential of his own, pays the same amount under the same key.",
    ),
    "another_body": (
        "another body",
        "Another body under the same key",
        "Anna pays 12, and then 99 under the same key.",
    ),
    "aborted": (
        "`abort(404)`",
        "An `abort()`, then a retry",
        "The first run ends in mid-view with the framework's own 404. The same request is sent "
        "again.",
    ),
    "busy": (
        "`abort(429)`",
        "A passing failure, then a retry",
        "The same with 429: try again later. A library that remembers it answers 429 until it "
        "forgets.",
    ),
    "failed": (
        "exception",
        "An exception, then a retry",
        "The first run raises an unhandled exception. The same request is sent again.",
    ),
    "killed": (
        "`kill -9`",
        "A killed process",
        "All processes of the service are killed in mid-view, before the payment's effect; a "
        "second instance on the same store gets the request at once, and again after 6 s. Leases "
        "are 2 s, where they can be set. (After an effect, running again would repeat it.)",
    ),
    "slow": (
        "slow view",
        "A view that outlives its lease",
        "The view takes 4 s, twice the lease of the libraries with one; the same request is sent "
        "after 3 s.",
    ),
    "cookie": (
        "cookie",
        "An answer that sets a cookie",
        "The first answer sets a session cookie. The same request is sent again.",
    ),
}


def page_parts(report: dict) -> dict[str, str]:
    parts = {}
    peers = {peer.name: peer for peer in PEERS}
    if told := report.get("correctness"):
        judged = {
            peers[name].title: {
                scenario: judge(scenario, seen.get(scenario)) for scenario in QUESTIONS
            }
            for name, seen in told["seen"].items()
        }
        took_part = [peers[name] for name in told["seen"]]
        parts["participants"] = participants(took_part, told["versions"])
        parts["summary"] = "\n\n".join((summary(judged), legend(), in_words(told["machine"])))
        parts["details"] = details(judged)
    if told := report.get("speed"):
        titles = {name: peers[name].title for name in told["measured"]}
        about = f"{in_words(told['machine'])} {told['requests']:,} requests of each kind."
        parts["speed"] = f"{speed(told['measured'], titles, OURS)}\n\n{about}"
    return parts


def summary(judged: dict[str, dict[str, Verdict]]) -> str:
    """Return one row a peer (by title), one sign a scenario."""
    head = ["", *(short for short, _, _ in QUESTIONS.values())]
    rows = [[title, *(by[name].sign for name in QUESTIONS)] for title, by in judged.items()]
    return table(head, rows)


def details(judged: dict[str, dict[str, Verdict]]) -> str:
    """Return an item a scenario: its steps and its results."""
    parts = []
    for name, (_, heading, question) in QUESTIONS.items():
        groups: dict[tuple[str, str], list[str]] = {}
        for title, by in judged.items():
            groups.setdefault((by[name].sign, by[name].words), []).append(title)
        most = max(groups, key=lambda group: len(groups[group]))
        results = [
            f"  - {sign} {'; '.join(titles)}: {words}"
            for (sign, words), titles in groups.items()
            if (sign, words) != most
        ]
        results.append(f"  - {most[0]} {_the_rest(groups[most])}: {most[1]}")
        parts.append("\n".join((f"- **{heading}.** {question}", *results)))
    return "\n".join(parts)


def _the_rest(titles: list[str]) -> str:
    return "the others" if len(titles) > 2 else "; ".join(titles)


def participants(peers: Iterable[Peer], versions: dict[str, dict[str, str]]) -> str:
    """Return the compared libraries: settings, and versions (by name) where they are new."""
    rows, last = [], ""
    for peer in peers:
        numbers = ", ".join(f"{name} {number}" for name, number in versions[peer.name].items())
        rows.append([peer.title, peer.settings, "the same" if numbers == last else numbers])
        last = numbers
    return table(["library", "set-up", "versions"], rows)


def speed(measured: dict[str, dict], titles: dict[str, str], ours: str) -> str:
    """Return the table of added times, commands and bytes.

    Args:
        measured: by name, the results of `speed.measure`.
        titles: by name, the peer's title.
        ours: the name of the one that the others are divided by.
    """
    head = ["", "unguarded, µs", "a first request adds, µs", "to ours", "a replay adds, µs"]
    head += ["to ours", "commands", "bytes a key"]
    rows = []
    for name, told in measured.items():
        bare = statistics.median(bare for bare, _ in told["first"]["blocks"])
        row = [titles[name], f"{bare:.0f}"]
        for kind in ("first", "replay"):
            row += _added(told[kind], measured[ours][kind])
        rows.append([*row, _commands(told["commands"]), _bytes(told)])
    return table(head, rows)


def _added(told: dict, ours: dict) -> list[str]:
    if told["error"]:
        return [f"({told['error']})", "n/a"]
    added = [guarded - bare for bare, guarded in told["blocks"]]
    base = [guarded - bare for bare, guarded in ours["blocks"]]
    ratios = [mine / its for mine, its in zip(added, base, strict=True)]
    ratio = statistics.median(added) / statistics.median(base)
    return [
        f"{statistics.median(added):.0f} ({_quartiles(added, 0)})",
        f"{ratio:.2f} ({_quartiles(ratios, 2)})",
    ]


def _quartiles(values: list[float], digits: int) -> str:
    if len(values) < 2:
        return "one block"
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{low:.{digits}f} to {high:.{digits}f}"


def _commands(told: dict) -> str:
    return " / ".join(_number(told[kind]) for kind in ("first", "replay"))


def _number(commands: list[str] | int | None) -> str:
    if commands is None:
        return "n/a"
    return str(commands if isinstance(commands, int) else len(commands))


def _bytes(told: dict) -> str:
    words = f"{told['bytes']:,}"
    return words if told.get("expires", True) else words + ", some for ever"


def legend() -> str:
    return (
        f"{SIGNS['holds']} holds · {SIGNS['differs']} acceptable, but callers may "
        f"notice · {SIGNS['fails']} fails: an effect happened more than once, an answer "
        "went to the wrong person or request, or a key is blocked for more than five minutes · "
        f"{SIGNS['skipped']} does not apply"
    )


def parts_of(text: str) -> list[str]:
    """Return the names of the parts of a page that are between marks."""
    return re.findall("<!-- begin: (.+?) -->", text)
