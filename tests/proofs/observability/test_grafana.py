"""The dashboard and the alerts, on a real Prometheus that scrapes two workers under load."""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time

import pytest
import yaml
from helpers.repository import ROOT, text_of
from helpers.servers.processes import Assembled, RedisServer, all_at_once, until
from observability.test_metrics import PAGE
from proofs.observability.prometheus import Prometheus
from proofs.observability.test_metrics_of_workers import SERVED, URI, Metered, pay

pytestmark = pytest.mark.servers

DASHBOARD = ROOT / "docs" / "grafana" / "idempotence.json"
OUTAGE = {"IdempotenceStoreFails", "IdempotenceSettlementsPending"}
WINDOW = "8s"
"""For each window and pause of the rules, which are minutes."""

SETTINGS = 'app.config.update(IDEMPOTENCE_LEASE=1, IDEMPOTENCE_STORAGE_OPTIONS={"deadline": 0.3})'
MORE = """
import time
from flask_idempotence import LeaseLost, current_guard

@app.post("/lose")
@no_repeat_submit(20)
def lose():
    app.extensions["idempotence"].store.clear("idempotence:2:lock:lose")
    try:
        current_guard.ensure_held()
    except LeaseLost:
        return "lost"
    return "held"

@app.post("/observed")
@no_repeat_submit(20, observe=True)
def observed():
    return "observed"

@app.get("/stats.prom")
def statistics():
    with open("stats.prom") as file:
        return file.read(), {"Content-Type": "text/plain"}

@app.post("/slow")
@idempotent
def slow():
    time.sleep(1.2)
    return "slow"
"""


def panels():
    return json.loads(text_of(DASHBOARD))["panels"]


def expressions(panel):
    for target in panel["targets"]:
        expression = target["expr"].replace("$__rate_interval", WINDOW).replace("$job", ".*")
        assert "$" not in expression
        yield expression


def alert_rules():
    [text] = re.findall(r"(?ms)^```yaml\n(.*?)^```$", text_of(PAGE))
    quick = re.sub(r"\[\d+m\]", f"[{WINDOW}]", text)
    quick = re.sub(r"offset \d+m", f"offset {WINDOW}", quick)
    return yaml.safe_load(re.sub(r"for: \d+m", "for: 1s", quick))


class Shop(Assembled):
    """Two workers on Redis, the store's statistics as a file, and the Prometheus of both."""

    def __init__(self, directory):
        self.directory = directory
        self.numbers = iter(range(10**6))

    def _assemble(self, start):
        (self.directory / "metered.py").write_text(
            SERVED.replace("Idempotence(app)", f"{SETTINGS}\nIdempotence(app)", 1) + MORE
        )
        (self.directory / "figures").mkdir()
        self.redis = start(RedisServer())
        self.environment = {
            **os.environ,
            URI: self.redis.url,
            "PROMETHEUS_MULTIPROC_DIR": str(self.directory / "figures"),
        }
        self.server = start(
            Metered("metered:app", threads=8, env=self.environment, cwd=self.directory)
        )
        self.write_statistics()
        targets = {"shop": f"{self.server.url}/metrics", "store": f"{self.server.url}/stats.prom"}
        self.prometheus = start(Prometheus(targets, alert_rules()))

    def write_statistics(self):
        command = [sys.executable, "-m", "flask", "--app", "metered", "idempotence", "stats"]
        printed = subprocess.check_output(
            [*command, "--prometheus"], env=self.environment, cwd=self.directory
        )
        (self.directory / "stats.new").write_bytes(printed)
        (self.directory / "stats.new").rename(self.directory / "stats.prom")

    def order(self, n):
        return self.server.ask(f"/orders?n={n}", "POST").status

    def load(self):
        n = next(self.numbers)
        spend = {
            "Idempotence-Token": self.server.ask("/token").json.get("token", "none was issued")
        }
        calls = [
            *[lambda: self.order(n)] * 3,
            *[lambda: pay(self.server, n)] * 3,
            *[lambda: self.server.ask("/checkout", "POST", spend)] * 2,
            lambda: self.server.ask("/observed", "POST"),
            lambda: self.server.ask(f"/lose?n={n}", "POST"),
            lambda: self.server.ask("/slow", "POST", {"Idempotency-Key": str(n)}),
        ]
        return all_at_once(calls)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    with Shop(tmp_path_factory.mktemp("shop")) as shop:
        shop.load()
        shop.write_statistics()
        yield shop


def has_data(prometheus, expression):
    return any(float(series["value"][1]) >= 0 for series in prometheus.query(expression))


def test_every_panel_has_data_and_the_alerts_fire_and_end(shop):
    prometheus = shop.prometheus
    empty = {panel["title"]: list(expressions(panel)) for panel in panels()}
    failures = empty.pop("Store errors")  # below
    began = time.monotonic()
    while any(empty.values()) and time.monotonic() - began < 40:
        shop.load()
        empty = {
            title: [each for each in wanted if not has_data(prometheus, each)]
            for title, wanted in empty.items()
        }
    assert {title: left for title, left in empty.items() if left} == {}
    assert prometheus.firing() & OUTAGE == set()
    assert until(lambda: "IdempotenceLeasesLost" in prometheus.firing(), 20)

    # The claims of slow views are granted, and their settlements find no Redis.
    with contextlib.suppress(OSError):
        threading.Thread(target=shop.load, daemon=True).start()
        time.sleep(0.6)
    shop.redis.pause()
    assert until(lambda: fails(shop), 60)
    assert has_data(prometheus, *failures)
    shop.redis.resume()
    assert until(lambda: not OUTAGE & prometheus.firing(), 60)
    assert shop.order("after") == 200


def fails(shop):
    assert shop.order(f"frozen{next(shop.numbers)}") == 503
    return shop.prometheus.firing() >= OUTAGE


def test_every_metric_of_the_page_is_in_a_panel():
    queried = " ".join(target["expr"] for panel in panels() for target in panel["targets"])
    documented = set(re.findall(r"(?m)^\| `(idempotence_\w+)`", text_of(PAGE)))
    missing = {name for name in documented if name not in queried}
    assert len(documented) >= 8
    assert missing == set()


def test_every_threshold_is_the_limit_of_an_alert():
    rules = [rule["expr"] for group in alert_rules()["groups"] for rule in group["rules"]]
    limits = {float(limit) for rule in rules for limit in re.findall(r"> ([\d.]+)", rule)}
    drawn = {
        panel["title"]: panel["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]["value"]
        for panel in panels()
        if "thresholds" in panel["fieldConfig"]["defaults"]
    }
    assert len(drawn) == 3
    assert {title for title, limit in drawn.items() if limit not in limits} == set()
