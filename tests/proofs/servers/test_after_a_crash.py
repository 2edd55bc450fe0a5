"""From the last line that a process has logged to its claim, and to a request that runs again."""

import re
import sys
import time

import pytest
from helpers.cli_shell import Shell
from helpers.servers.processes import environment, run_to_end

pytestmark = pytest.mark.servers

DYING = """
import logging, os
from flask_idempotence import idempotent
from flask_idempotence.logs import LogFilter
from helpers.applications.plain import app

handler = logging.FileHandler("business.log")
handler.addFilter(LogFilter())
handler.setFormatter(logging.Formatter("%(message)s key=%(idempotence_key)s"))
logger = logging.getLogger("business")
logger.addHandler(handler)
logger.setLevel("INFO")

@app.post("/payments")
@idempotent(guarantee="at-most-once")
def pay():
    logger.info("charging")
    if "DIE" in os.environ:
        os._exit(9)
    return "paid"
"""
PAY = """
import shop
print(shop.app.test_client().post("/payments", headers={"Idempotency-Key": "1"}).status_code)
"""


def test_the_last_line_of_a_dead_process_leads_to_its_claim(tmp_path, redis_url):
    shell = Shell(tmp_path, app=DYING, **environment(redis_url, lease=0.5))

    def pay(**environment):
        place = {"cwd": tmp_path, "env": shell.environment | environment}
        done = run_to_end([sys.executable, "-c", PAY], **place)
        return done.returncode, done.stdout.strip()

    assert pay(DIE="1")[0] == 9
    time.sleep(0.6)
    assert pay() == (0, "409")
    logged = (tmp_path / "business.log").read_text()
    shown = re.fullmatch(r"charging (key=[0-9a-f]{12})\n", logged)[1]
    assert shell.pipe("inspect", shown).out.split("\t")[1:4] == ["key", "pay", "ended"]
    assert shell.pipe("release", shown, "--yes").code == 0
    assert pay() == (0, "200")
