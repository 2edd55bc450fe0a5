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


def ask(server, path, method="POST", **headers):
    answer = server.ask(path, method, headers)
    return answer.status, answer.text


@pytest.mark.gunicorn
@pytest.mark.parametrize("extra", [(), ("--preload",)], ids=["forked first", "preloaded"])
def test_the_figures_of_two_workers_add_up_exactly(tmp_path, redis_url, extra):
    (tmp_path / "metered.py").write_text(SERVED)
    (tmp_path / "figures").mkdir()
    environment = {URI: redis_url, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "figures")}
    with Metered(
        "metered:app", workers=2, threads=8, env=environment, cwd=tmp_path, extra=extra
    ) as server:
        orders = [lambda n=n: ask(server, f"/orders?n={n % 20}") for n in range(60)]
        answers = all_at_once(orders)
        paid = 0
        while len({body for status, body in answers if status == 200}) < 2 or not paid:
            assert paid < 800, "one worker has served everything"
            payments = [
                lambda n=n: ask(server, "/payments", **{"Idempotency-Key": str(n)})
                for n in range(paid, paid + 40)
            ]
            answers += all_at_once(payments)
            paid += 40
        again = [ask(server, "/payments", **{"Idempotency-Key": str(n)}) for n in range(paid)]
        assert [status for status, _ in again] == [200] * paid
        _, shown = ask(server, "/metrics", "GET")
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
