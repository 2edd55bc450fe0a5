"""Node, and the script for browsers that it runs."""

import os
import shutil
from pathlib import Path

import flask_idempotence
from helpers.repository import ROOT

NODE = shutil.which("node")
MUST_RUN = os.environ.get("CI") == "true"
SCRIPT = Path(flask_idempotence.__file__).parent / "web" / "static" / "idempotence.js"
DECIDE = ROOT / "tests" / "js" / "decide.mjs"

os.environ["SCRIPT_UNDER_TEST"] = str(SCRIPT)  # read by what node runs in tests/js
