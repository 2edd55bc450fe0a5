"""The script on the catalogue's page does what the page says; its Python runs with all others."""

import re
import subprocess

import pytest
from helpers.callers.node import MUST_RUN, NODE
from helpers.repository import ROOT, section

CLICKS = """
const sent = [];
const send = throttled((value) => sent.push(value), 40);
send(1); send(2);
setTimeout(() => { send(3); console.log(JSON.stringify(sent)); }, 120);
"""


@pytest.mark.skipif(NODE is None and not MUST_RUN, reason="node is missing")
def test_a_second_click_is_dropped_until_the_time_is_over():
    assert NODE, "node is missing, and CI=true says that it must not be"
    page = section(ROOT / "docs" / "catalogue.md", "Debounce")
    [script] = re.findall(r"(?ms)^```js\n(.*?)^```$", page)
    command = [NODE, "--eval", script + CLICKS]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "[1,3]\n"
