"""The checklist for production: its order, and the alerts of its runbook."""

import re

from helpers.repository import ROOT, text_of

DOCS = ROOT / "docs"
CHECKLIST = DOCS / "run-in-production.md"


def test_the_checklist_is_in_order():
    numbers = re.findall(r"(?m)^## (?:(\d+)\. )?", text_of(CHECKLIST))
    numbered = [int(number) for number in numbers if number]
    assert numbered == list(range(1, len(numbered) + 1))
    assert numbers[len(numbered) :] == [""]  # the runbook


def test_every_alert_that_the_runbook_names_is_there():
    alerts = set(re.findall(r"- alert: (\w+)", text_of(DOCS / "how-to" / "observe.md")))
    named = set(re.findall(r"`(Idempotence[A-Z]\w+)`", text_of(CHECKLIST)))
    assert len(named) == 3
    assert named - alerts == set()
