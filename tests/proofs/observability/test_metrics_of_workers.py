"""Figures for Prometheus from several workers: they add up exactly."""

import re

import pytest
from helpers.cli_shell import APP
from helpers.repository import text_of
from helpers.servers.processes import Gunicorn, all_at_once
from observability.test_metrics import PAGE

pytestmark = pytest.mark.servers

SERVED = f"""{APP}
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from flask_idempotence.metrics import Metrics

Metrics(app)

@app.get("/metrics")
def metrics():
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return generate_latest(registry)
"""
URI = "FLASK_IDEMPOTENCE_STORAGE_URI"


class Metered(Gunicorn):
    """The application above, with the settings that the page about it shows."""

    SETTINGS = Gunicorn.SETTINGS + next(
        block
        for block in re.findall(r"(?ms)^```python\n(.*?)^```$", text_of(PAGE))
        if "child_exit" in block
    )


def pay(server, n):
    return server.ask("/payments", "POST", {"Idempotency-Key": f"secretmark{n}"})


def pay_until_two_have_served(server, copies=1):
    """Send payments, each so many times at once; return how many when two workers have run views.

    A key is secretmark and the number of its payment.
    """
    pids, keys = set(), 0
    while len(pids) < 2:
        assert keys < 800, "one worker has served everything"
        numbers = [*range(keys, keys + 40 // copies)] * copies
        answers = all_at_once([lambda n=n: pay(server, n) for n in numbers])
        pids |= {answer.json["pid"] for answer in answers if answer.status == 200}
        keys += 40 // copies
    return keys


@pytest.mark.parametrize("extra", [(), ("--preload",)], ids=["forked first", "preloaded"])
def test_the_figures_of_two_workers_add_up_exactly(tmp_path, redis_url, extra):
    (tmp_path / "metered.py").write_text(SERVED)
    (tmp_path / "figures").mkdir()
    environment = {URI: redis_url, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "figures")}
    place = {"env": environment, "cwd": tmp_path}
    with Metered("metered:app", threads=8, extra=extra, **place) as server:
        all_at_once([lambda n=n: server.ask(f"/orders?n={n % 20}", "POST") for n in range(60)])
        paid = pay_until_two_have_served(server)
        for n in range(paid):
            assert pay(server, n).status == 200
        shown = server.ask("/metrics").text
        told = {
            name: float(value)
            for name, value in (line.rsplit(" ", 1) for line in shown.splitlines())
            if name.startswith(("idempotence_requests", "idempotence_settle", "idempotence_store"))
            and "_bucket" not in name
            and "_sum" not in name
        }
    lock, key = 'endpoint="create_order",mode="lock"', 'endpoint="pay",mode="key"'
    assert told == {
        f'idempotence_requests_total{{{lock},outcome="claimed"}}': 20,
        f'idempotence_requests_total{{{lock},outcome="repeat-submit"}}': 40,
        f'idempotence_requests_total{{{key},outcome="claimed"}}': paid,
        f'idempotence_requests_total{{{key},outcome="replayed"}}': paid,
        f'idempotence_settlements_total{{{lock},outcome="completed"}}': 20,
        f'idempotence_settlements_total{{{key},outcome="completed"}}': paid,
        "idempotence_settlements_pending": 0,
        'idempotence_store_seconds_count{operation="claim"}': 60 + 2 * paid,
        'idempotence_store_seconds_count{operation="complete"}': paid,
        'idempotence_store_seconds_count{operation="renew"}': 20,  # to the lock's interval
    }
