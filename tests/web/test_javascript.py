"""The script for browsers: its own tests under node, and its size."""

import gzip
import re
import subprocess

import pytest
from helpers.callers.node import MUST_RUN, NODE, SCRIPT
from helpers.repository import ROOT

MOST_BYTES = 6 * 1024


@pytest.mark.skipif(NODE is None and not MUST_RUN, reason="node is missing")
def test_the_script_passes_its_own_tests():
    assert NODE, "node is missing, and CI=true says that it must not be"
    files = sorted((ROOT / "tests" / "js").glob("*.test.mjs"))
    assert len(files) == 2
    command = [NODE, "--test", "--test-reporter=tap", *map(str, files)]
    options = {"capture_output": True, "text": True, "timeout": 120}
    run = subprocess.run(command, check=False, **options)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "\n# fail 0\n" in run.stdout
    assert "\n# skipped 0\n" in run.stdout


def test_the_script_is_small():
    assert len(gzip.compress(SCRIPT.read_bytes())) < MOST_BYTES


def test_module_types_and_page_offer_what_the_script_does():
    static = SCRIPT.parent
    offered = "fetch: fetchOnce, token, renew, newKey"
    assert f"globalThis.idempotence = {{ {offered} }};" in SCRIPT.read_text()
    assert (
        "export const { fetch, token, renew, newKey }" in (static / "idempotence.mjs").read_text()
    )
    types = (static / "idempotence.d.ts").read_text()
    page = (ROOT / "docs" / "how-to" / "single-page-apps.md").read_text()
    for name in ("fetch", "token", "renew", "newKey"):
        assert f"export function {name}(" in types
        assert f"\n### idempotence.{name}\n" in page
    (written,) = re.findall(r"const PATIENCE = \{ (.*), onRetry\(\) \{\} \};", SCRIPT.read_text())
    defaults = dict(option.split(": ") for option in written.split(", "))
    assert set(defaults) == {"retries", "minDelay", "maxDelay", "timeout"}
    for name, default in defaults.items():
        assert f"| `{name}` | `{default}` |" in page
        assert re.search(rf"Default: {default.replace('_', '')}\. \*/\n  {name}\?: number;", types)
    for name in ("key", "onRetry"):
        assert f"| `{name}` |" in page
        assert f"  {name}?:" in types
