"""Figures that pages give and tests take from the code: a changed constant changes its page."""

import re

import pytest
from helpers.repository import ROOT, text_of

from flask_idempotence.engine import keeper, publisher, store_calls
from flask_idempotence.stores.redis import node
from flask_idempotence.stores.sql import pool

FIGURES = {
    "After three time-outs in a row a circuit breaker opens": (
        "when-redis-fails.md",
        node.OPEN_AFTER,
        3,
    ),
    "probe every half a second": ("when-redis-fails.md", node.PROBE_EVERY, 0.5),
    "two seconds at most": ("when-redis-fails.md", keeper.EXIT_TIMEOUT, 2),
    "ends a round after twenty failures": ("when-redis-fails.md", keeper.MAX_FAILURES, 20),
    "one line every five seconds": ("when-redis-fails.md", store_calls.LOG_EVERY, 5),
    "If 10,000 wait, further ones are dropped": (
        "how-to/observe.md",
        publisher.MOST_EVENTS,
        10_000,
    ),
    "eight threads at most keep waiting": (
        "how-to/sql-store.md",
        pool._MOST_OVERDUE + pool._MOST_PROBES,
        8,
    ),
}


@pytest.mark.parametrize("sentence", FIGURES)
def test_a_page_gives_the_figure_of_the_code(sentence):
    page, figure, given = FIGURES[sentence]
    text = re.sub(r"[*\s]+|\[✓\]\(\S+\)", " ", text_of(ROOT / "docs" / page))
    assert re.sub(" +", " ", sentence) in re.sub(" +", " ", text)
    assert figure == given
