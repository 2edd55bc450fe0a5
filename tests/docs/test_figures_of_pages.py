"""Figures, alerts and a script that pages give: what changes in the code changes its page."""

import re

import pytest
from helpers.callers.node import MUST_RUN, NODE
from helpers.repository import ROOT, section, text_of
from helpers.servers.processes import run_to_end

from flask_idempotence.engine import keeper, store_calls
from flask_idempotence.stores import process
from flask_idempotence.stores.sql import pool

FIGURES = {
    "After three time-outs in a row a circuit breaker opens": (
        "when-redis-fails.md",
        process.OPEN_AFTER,
        3,
    ),
    "probe every half a second": ("when-redis-fails.md", process.PROBE_EVERY, 0.5),
    "two seconds at most": ("when-redis-fails.md", keeper.EXIT_TIMEOUT, 2),
    "ends a round after twenty failures": ("when-redis-fails.md", keeper.MAX_FAILURES, 20),
    "one line every five seconds": ("when-redis-fails.md", store_calls.LOG_EVERY, 5),
    "32 threads at most keep waiting": ("how-to/sql-store.md", pool._MOST, 32),
}


@pytest.mark.parametrize("sentence", FIGURES)
def test_a_page_gives_the_figure_of_the_code(sentence):
    page, figure, given = FIGURES[sentence]
    text = re.sub(r"[*\s]+|\[✓\]\(\S+\)", " ", text_of(ROOT / "docs" / page))
    assert re.sub(" +", " ", sentence) in re.sub(" +", " ", text)
    assert figure == given


def test_the_checklist_is_in_order_and_the_alerts_of_its_runbook_are_there():
    text = text_of(ROOT / "docs" / "run-in-production.md")
    *numbers, runbook = re.findall(r"(?m)^## (?:(\d+)\. )?", text)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert runbook == ""
    alerts = re.findall(r"- alert: (\w+)", text_of(ROOT / "docs" / "how-to" / "observe.md"))
    named = set(re.findall(r"`(Idempotence[A-Z]\w+)`", text))
    assert len(named) == 3
    assert named <= set(alerts)


CLICKS = """
const sent = [];
const send = throttled((value) => sent.push(value), 40);
send(1); send(2);
setTimeout(() => { send(3); console.log(JSON.stringify(sent)); }, 120);
"""


@pytest.mark.skipif(NODE is None and not MUST_RUN, reason="node is missing")
def test_the_catalogues_script_drops_a_second_click_until_the_time_is_over():
    assert NODE, "node is missing, and CI=true says that it must not be"
    page = section(ROOT / "docs" / "catalogue.md", "Debounce")
    [script] = re.findall(r"(?ms)^```js\n(.*?)^```$", page)
    assert run_to_end([NODE, "--eval", script + CLICKS], check=True).stdout == "[1,3]\n"
