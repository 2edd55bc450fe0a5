"""Requests that schemathesis makes up from the description of guarded views, against real workers.

Needs the dependency group `fuzz`. `FUZZ_SECONDS` is how long it takes.
"""

import os
import re

import pytest
from helpers.servers.processes import Gunicorn, environment, run_to_end
from helpers.servers.wsgi import program_of

pytestmark = pytest.mark.fuzz

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
)
"""Left out are two. A described request may be refused: a key was used before, a token is none.
And flask-smorest answers unknown methods without the header `Allow`."""


def test_whatever_is_sent_the_answer_is_as_described_and_none_is_a_server_error(
    tmp_path, redis_url, record_property
):
    seconds = int(os.environ.get("FUZZ_SECONDS", "25"))
    server = Gunicorn("proofs.fuzzing.fuzzed_app:app", env=environment(STORE=redis_url), threads=8)
    with server:
        command = [program_of("schemathesis"), "run", f"{server.url}/docs/openapi.json"]
        command += ["--checks", ",".join(CHECKS), "--max-time", str(seconds), "--no-color"]
        command += ["--workers", "2", "--warnings", "off"]
        done = run_to_end(command, cwd=tmp_path, timeout=seconds + 120)
    summary = done.stdout.partition("= SUMMARY =")[2]
    record_property("report", summary)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) generated", summary)[1]) > seconds
    assert "Traceback" not in server.log
