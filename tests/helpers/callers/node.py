"""Node, the script for browsers that it runs, and clients from npm, installed for the run."""

import os
import shutil
import subprocess
from pathlib import Path

import flask_idempotence
from helpers.repository import ROOT

NODE = shutil.which("node")
MUST_RUN = os.environ.get("CI") == "true"
SCRIPT = Path(flask_idempotence.__file__).parent / "web" / "static" / "idempotence.js"
DECIDE = ROOT / "tests" / "js" / "decide.mjs"

os.environ["SCRIPT_UNDER_TEST"] = str(SCRIPT)  # read by what node runs in tests/js

PACKAGES = ("axios", "axios-retry", "got", "ky", "stripe")
SUBPROCESS = {"capture_output": True, "text": True, "timeout": 60}
REMEDY = "install Node 20 or newer with npm"
NODE_CLIENTS = (
    *("stripe (Node)", "fetch (Node)", "axios", "axios-retry", "axios-retry, set up"),
    *("got", "got, set up", "ky", "ky, set up"),
)


class NodeClients:
    def __init__(self, folder):
        self._script = shutil.copy(ROOT / "tests" / "js" / "clients.mjs", folder)
        npm = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *PACKAGES]
        subprocess.run(npm, check=True, capture_output=True, timeout=120)

    def caller(self, name):
        def call(url, key):
            command = [NODE, self._script, name, url, *([key] if key else [])]
            done = subprocess.run(command, check=False, **SUBPROCESS)
            if done.returncode:
                raise RuntimeError(done.stderr)

        return call


def is_installed():
    if not NODE or not shutil.which("npm"):
        return False
    version = subprocess.check_output([NODE, "--version"], text=True, timeout=10)
    return int(version.removeprefix("v").partition(".")[0]) >= 20  # got needs it
