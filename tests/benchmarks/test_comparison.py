"""The pure parts of the comparison with peers: what is judged, and the tables that tell it."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT), str(ROOT / "benchmarks")]
from measuring.pages import replace_part, table  # noqa: E402 - it is beside the tests

from benchmarks.peers import tables  # noqa: E402 - the same
from benchmarks.peers.command import PAGES  # noqa: E402 - the same
from benchmarks.peers.verdicts import (  # noqa: E402 - the same
    DIFFERS,
    FAILS,
    HOLDS,
    SKIPPED,
    Verdict,
    judge,
)


def answer(status=201, user="anna", amount=12, run=1, *, cookie=False, kind=""):
    told = {"status": status, "user": user, "amount": amount, "run": run}
    return {**told, "cookie": cookie, "kind": kind}


def refusal(status=409, *, kind=""):
    return answer(status, None, None, None, kind=kind)


def seen(*answers, runs=1, effects=1, ttl=86400, **more):
    counts = {"runs": runs, "effects": effects, "longest_ttl": ttl}
    return {"answers": list(answers), **counts, **more}


def one_round(effects=1, different_answers=1, **statuses):
    told = {status.removeprefix("s"): count for status, count in statuses.items()}
    return {"effects": effects, "statuses": told, "different_answers": different_answers}


SECONDS = {"first_told": 0.1, "second_asked": 6.0}
SLOW_SECONDS = {"first_told": 2.1, "second_asked": 6.0}
PAID = answer()

CASES = [
    ("repeat", seen(PAID, PAID), HOLDS, "the first answer, 201"),
    ("repeat", seen(PAID, answer(409)), DIFFERS, "the first answer, as 409"),
    ("repeat", seen(PAID, refusal(409)), DIFFERS, "409 instead of the first answer"),
    ("repeat", seen(PAID, refusal(422)), FAILS, "422 instead of the first answer"),
    ("repeat", seen(PAID, answer(run=2), runs=2, effects=2), FAILS, "paid 2 times"),
    (
        "duplicates",
        {"rounds": [one_round(s201=1, s409=7), one_round(s201=3, s409=5)]},
        HOLDS,
        "paid once; 1 to 3x 201, 5 to 7x 409",
    ),
    (
        "duplicates",
        {"rounds": [one_round(s201=1, s409=7), one_round(8, 8, s201=8)]},
        FAILS,
        "paid 1 to 8 times; 1 to 8x 201, 0 to 7x 409; 1 to 8 different answers",
    ),
    ("duplicates", {"rounds": [one_round(0, 0, s500=8)]}, DIFFERS, "paid 0 times; 8x 500"),
    ("another_user", seen(PAID, PAID), FAILS, "Ben was given Anna's answer"),
    ("another_user", seen(PAID, answer(user="ben", run=2)), HOLDS, "Ben's own payment"),
    ("another_user", seen(PAID, refusal(422)), DIFFERS, "Ben was refused, 422"),
    ("another_body", seen(PAID, refusal(422)), HOLDS, "refused, 422"),
    ("another_body", seen(PAID, PAID), FAILS, "the answer to the other request, 201"),
    (
        "another_body",
        seen(PAID, answer(amount=99, run=2), runs=2, effects=2),
        DIFFERS,
        "a payment of its own",
    ),
    ("another_body", seen(PAID, refusal(409)), DIFFERS, "refused, 409"),
    ("aborted", seen(refusal(404), refusal(404), wanted=404), HOLDS, "404 again, remembered"),
    ("busy", seen(refusal(429), refusal(429), wanted=429), DIFFERS, "429 again, remembered"),
    ("failed", seen(refusal(500), answer(run=2), runs=2, wanted=500), HOLDS, "ran again"),
    (
        "failed",
        seen(refusal(500), refusal(409), effects=0, ttl=-1, wanted=500),
        FAILS,
        "blocked, 409; the key never expires",
    ),
    (
        "aborted",
        seen(refusal(500), refusal(408), effects=0, ttl=230, wanted=404),
        DIFFERS,
        "500 at first; then blocked, 408; the key has 230 s left",
    ),
    ("aborted", seen(refusal(500), refusal(500), ttl=None, wanted=404), FAILS, "blocked, 500"),
    (
        "failed",
        seen(refusal(500), answer(run=2), runs=2, effects=2, wanted=500),
        FAILS,
        "ran again",
    ),
    ("killed", seen(PAID, PAID, seconds=SECONDS), HOLDS, "ran again at once"),
    ("killed", seen(PAID, PAID, seconds=SLOW_SECONDS), HOLDS, "ran again after waiting 2.1 s"),
    (
        "killed",
        seen(refusal(), PAID, seconds=SECONDS),
        HOLDS,
        "409 after 0.1 s; ran again after 6 s",
    ),
    (
        "killed",
        seen(refusal(), refusal(), effects=0, seconds=SECONDS),
        FAILS,
        "still 409 after 6 s; the key has 86,400 s left",
    ),
    (
        "killed",
        seen(refusal(), refusal(kind="outcome-unknown"), effects=0, seconds=SECONDS),
        DIFFERS,
        "409 `outcome-unknown`, as promised",
    ),
    ("killed", seen(PAID, PAID, effects=2, seconds=SECONDS), FAILS, "paid 2 times"),
    ("slow", seen(PAID, refusal(409)), HOLDS, "refused, 409"),
    ("slow", seen(PAID, PAID), HOLDS, "waited, then the first answer, 201"),
    ("slow", seen(PAID, answer(run=2), runs=2, effects=2), FAILS, "paid 2 times"),
    ("cookie", seen(answer(cookie=True), PAID), HOLDS, "not set again"),
    ("cookie", seen(answer(cookie=True), answer(cookie=True)), DIFFERS, "set again"),
    (
        "cookie",
        seen(PAID, answer(run=2), runs=2, effects=2),
        FAILS,
        "not remembered: paid 2 times",
    ),
    ("cookie", None, SKIPPED, "it guards a function, not a response"),
]


@pytest.mark.parametrize(("scenario", "what", "verdict", "words"), CASES)
def test_an_observation_is_judged_by_the_published_rule(scenario, what, verdict, words):
    judged = judge(scenario, what)
    assert judged.verdict == verdict
    assert judged.words.endswith(words)


def test_the_rule_knows_every_situation_that_the_page_tells_of():
    assert {scenario for scenario, *_ in CASES} == set(tables.QUESTIONS)


def test_a_table_has_as_many_cells_in_every_line():
    lines = table(["", "a|b"], [["one", "x | y"], ["two", ""]]).splitlines()
    assert lines[2] == "| one | x &#124; y |"
    assert {line.count("|") for line in lines} == {3}


def test_the_summary_shows_a_sign_for_every_peer_and_situation():
    judged = {
        "Ours": dict.fromkeys(tables.QUESTIONS, Verdict(HOLDS, "")),
        "Theirs": dict.fromkeys(tables.QUESTIONS, Verdict(FAILS, "")),
    }
    ours, theirs = tables.summary(judged).splitlines()[2:]
    assert (ours.count("✓"), theirs.count("✗")) == (10, 10)
    assert tables.details(judged).count("- ✗ Theirs: ") == 10


def timed(*blocks, error=None):
    return {"blocks": [list(block) for block in blocks], "error": error}


def test_added_times_are_told_with_quartiles_and_as_ratios_of_the_same_round():
    counted = {"commands": {"first": ["SET", "SET"], "replay": ["SET", "GET"]}, "bytes": 1280}
    measured = {
        "ours": {**counted, "first": timed((100, 200), (300, 420)), "replay": timed((100, 150))},
        "theirs": {
            **counted,
            "first": timed((50, 250), (50, 290)),
            "replay": timed(error="a replay was answered with 422"),
            "commands": {"first": 3, "replay": None},
            "expires": False,
        },
    }
    ours, theirs = tables.speed(
        measured, {"ours": "Ours", "theirs": "Theirs"}, "ours"
    ).splitlines()[2:]
    assert ours == (
        "| Ours | 200 | 110 (105 to 115) | 1.00 (1.00 to 1.00) | 50 (one block) | "
        "1.00 (one block) | 2 / 2 | 1,280 |"
    )
    assert theirs == (
        "| Theirs | 50 | 220 (210 to 230) | 2.00 (2.00 to 2.00) | "
        "(a replay was answered with 422) | n/a | 3 / n/a | 1,280, some for ever |"
    )


def test_a_part_of_a_page_is_replaced_and_the_rest_is_left():
    page = "above\n<!-- begin: x -->\nold\n<!-- end: x -->\nbelow\n"
    once = replace_part(page, "x", "new")
    assert once == "above\n<!-- begin: x -->\n\nnew\n\n<!-- end: x -->\nbelow\n"
    assert replace_part(once, "x", "new") == once
    with pytest.raises(ValueError, match="no marks for 'y'"):
        replace_part(page, "y", "new")


def test_the_page_tells_what_was_measured_and_nothing_by_hand():
    results = ROOT / "docs" / "reports" / "benchmarks"
    report = {
        name: json.loads((results / f"peers-{name}.json").read_text(encoding="utf-8"))
        for name in ("correctness", "speed")
    }
    parts, shown = tables.page_parts(report), []
    for file in PAGES:
        page = file.read_text(encoding="utf-8")
        for name in tables.parts_of(page):
            assert replace_part(page, name, parts[name]) == page, "--tables writes it anew"
            shown.append(name)
    assert sorted(shown) == sorted(parts)
