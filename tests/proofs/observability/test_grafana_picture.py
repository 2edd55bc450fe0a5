"""The picture of the dashboard on its page: drawn from a real Prometheus, with every panel.

`GRAFANA_PICTURE=1` draws it, in three minutes. The PNG holds a digest of its dashboard's file.
"""

import contextlib
import hashlib
import json
import math
import os
import subprocess
import threading
import time

import pytest
from helpers.repository import ROOT, text_of
from observability.test_metrics import PAGE
from proofs.observability.test_grafana import DASHBOARD, Shop, expressions
from proofs.observability.test_metrics_of_workers import ask

pytestmark = [pytest.mark.servers, pytest.mark.gunicorn]

PICTURE = ROOT / "docs" / "grafana" / "idempotence.png"
DRAWS_IT = bool(os.environ.get("GRAFANA_PICTURE"))
REMEDY = "draw it: GRAFANA_PICTURE=1 uv run --group bench pytest -n 0 -m servers -k picture_shows"
PACE = 1.5
"""Seconds between two rounds of requests; a round takes 1.2."""
WARM_UP, BEFORE, OUTAGE, AFTER, STEP = 12, 45, 20, 55, 1.0
"""Seconds of the recording; the first are not shown."""


def digest():
    return hashlib.sha256(DASHBOARD.read_bytes()).hexdigest()


def keep_busy(shop, until):
    def send():
        while time.time() < until:
            next_at = time.time() + PACE
            with contextlib.suppress(OSError):
                shop.load()
            time.sleep(max(0.0, next_at - time.time()))

    def count():
        while time.time() < until:
            with contextlib.suppress(subprocess.CalledProcessError):  # in the outage
                shop.write_statistics()
            time.sleep(2)

    threads = [threading.Thread(target=each) for each in (send, send, count)]
    for thread in threads:
        thread.start()
    return threads


def record(directory):
    from proofs.observability.grafana_picture import name_of  # noqa: PLC0415 - needs matplotlib

    with Shop(directory) as shop:
        start = time.time() + WARM_UP
        end = start + BEFORE + OUTAGE + AFTER
        threads = keep_busy(shop, end)
        time.sleep(start + BEFORE - time.time())
        froze = time.time()
        shop.redis.pause()
        time.sleep(OUTAGE)
        shop.redis.resume()
        resumed = time.time()
        for thread in threads:
            thread.join()
        dashboard, found = json.loads(text_of(DASHBOARD)), []
        for panel in dashboard["panels"]:
            found.append({})
            for target, expression in zip(panel["targets"], expressions(panel), strict=True):
                for series in shop.prometheus.query_range(expression, start, end, STEP):
                    name = name_of(target["legendFormat"], series["metric"])
                    points = [(float(at), float(value)) for at, value in series["values"]]
                    found[-1][name] = [each for each in points if not math.isnan(each[1])]
        assert ask(shop.server, "/orders?n=after")[0] == 200
    return {
        "dashboard": dashboard,
        "series": found,
        "start": start,
        "end": end,
        "outages": [(froze, resumed)],
    }


def test_the_picture_shows_the_dashboard_as_it_is(tmp_path):
    if DRAWS_IT:
        from proofs.observability.grafana_picture import draw  # noqa: PLC0415 - needs matplotlib

        data = record(tmp_path)
        assert all(any(series.values()) for series in data["series"])
        draw(data, PICTURE, dashboard=digest())
    assert digest().encode() in PICTURE.read_bytes(), REMEDY
    assert PICTURE.stat().st_size < 150_000
    assert f"../grafana/{PICTURE.name}" in text_of(PAGE)
