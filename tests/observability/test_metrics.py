"""Figures for Prometheus: exact, by few labels, and true for several workers."""

import re
import time

import pytest
import yaml
from helpers.apps import add_views, bare_app, make_app
from helpers.keeper_harness import KeeperHarness
from helpers.repository import ROOT, text_of
from helpers.servers.faults import Proxy
from helpers.servers.processes import until
from prometheus_client import CollectorRegistry

from flask_idempotence import ConfigurationError, MemoryStore, idempotent
from flask_idempotence.engine.store_calls import Instrument
from flask_idempotence.metrics import Metrics
from flask_idempotence.testing import FakeClock

PAGE = ROOT / "docs" / "how-to" / "observe.md"


def figures(registry):
    """Return every sample that is not 0, by name and labels; no times of creation."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.value and not sample.name.endswith("_created")
    }


def of(name, registry, *labels):
    """Return the values of one counter by the values of some labels."""
    return {
        tuple(dict(place)[label] for label in labels): value
        for (sample, place), value in figures(registry).items()
        if sample == f"idempotence_{name}"
    }


@pytest.fixture
def registry():
    return CollectorRegistry()


def pay(client, *keys):
    """Send a payment with each key, or without for None."""
    for key in keys:
        client.post("/payments", headers={"Idempotency-Key": key} if key else {})


def test_outcomes_are_counted_by_mode_and_endpoint(registry):
    app = add_views(make_app())
    Metrics(app, registry=registry)
    client = app.test_client()
    for outcome in ("well", "well", "well", "fail", "fail", "lose"):
        client.post(f"/orders/{outcome}")
    pay(client, "1", "1", "1", "2", None)
    token = client.get("/token").get_json()
    for _ in range(2):
        client.post("/checkout", headers={"Idempotence-Token": token["token"]})
    client.post("/checkout")
    assert of("requests_total", registry, "mode", "endpoint", "outcome") == {
        ("lock", "order", "claimed"): 4,
        ("lock", "order", "repeat-submit"): 2,
        ("key", "pay", "claimed"): 2,
        ("key", "pay", "replayed"): 2,
        ("key", "pay", "key-missing"): 1,
        ("token", "checkout", "claimed"): 1,
        ("token", "checkout", "token-spent"): 1,
        ("token", "checkout", "token-missing"): 1,
    }
    assert of("settlements_total", registry, "mode", "endpoint", "outcome") == {
        ("lock", "order", "completed"): 1,
        ("lock", "order", "released"): 2,
        ("key", "pay", "completed"): 2,
        ("token", "checkout", "completed"): 1,
    }
    assert of("leases_lost_total", registry, "mode", "endpoint", "during") == {
        ("lock", "order", "renew"): 1
    }
    assert of("tokens_total", registry, "outcome") == {("issued",): 1, ("spent",): 1}
    assert of("store_seconds_count", registry, "operation") == {
        ("claim",): 4 + 2 + 4,
        ("release",): 2,
        ("renew",): 2,
        ("complete",): 2,
        ("put_token",): 1,
        ("take_token",): 2,
    }


def test_what_clients_send_is_never_a_label(registry):
    app = add_views(make_app())
    Metrics(app, registry=registry)
    client, sizes = app.test_client(), set()
    for number in range(9):
        mark = f"secretmark{number}"
        client.post(f"/orders/well?mark={mark}")
        client.post("/payments", headers={"Idempotency-Key": mark})
        client.get(f"/token?purpose={mark}")
        client.post("/checkout", headers={"Idempotence-Token": mark})
        if number:  # the second order is the first that is refused
            sizes.add(len([place for place in figures(registry) if "bucket" not in place[0]]))
    assert len(sizes) == 1
    assert "secretmark" not in str(figures(registry))


def test_a_store_that_fails_is_counted_and_timed(registry):
    app = add_views(make_app(store=MemoryStore(max_entries=1)))
    Metrics(app, registry=registry)
    client = app.test_client()
    assert [client.post(f"/orders/{n}").status_code for n in range(3)] == [200, 503, 503]
    assert of("store_failures_total", registry, "operation") == {("claim",): 2}
    assert of("store_seconds_count", registry, "operation") == {("claim",): 3}
    outcomes = of("requests_total", registry, "outcome")
    assert outcomes == {("claimed",): 1, ("store-unavailable",): 2}


def test_the_time_that_the_store_takes_is_measured(registry):
    class Slow(MemoryStore):
        def claim(self, *claim):
            time.sleep(0.06)
            return super().claim(*claim)

    app = add_views(make_app(store=Slow()))
    Metrics(app, registry=registry)
    app.test_client().post("/orders/well")
    buckets = of("store_seconds_bucket", registry, "operation", "le")
    assert ("claim", "0.05") not in buckets
    assert buckets["claim", "+Inf"] == 1
    assert 0.06 < of("store_seconds_sum", registry)[()] < 1


def test_settlements_that_wait_are_shown_until_the_store_has_answered(registry, fresh_redis):
    with Proxy(fresh_redis) as proxy:
        app = add_views(make_app(IDEMPOTENCE_STORAGE_URI=proxy.url))
        Metrics(app, registry=registry)

        @app.post("/late")
        @idempotent
        def late():
            proxy.refuse()
            return "done"

        client = app.test_client()
        answer = client.post("/late", headers={"Idempotency-Key": "1"})
        assert answer.headers["Idempotent-Stored"] == "false"
        assert until(lambda: of("settlements_pending", registry) == {(): 1})
        proxy.accept()
        assert until(lambda: of("settlements_pending", registry) == {}, 10)
    assert of("settlements_total", registry, "endpoint", "outcome") == {("late", "completed"): 1}


def test_a_keeper_that_is_late_shows_it(registry):
    clock = FakeClock()
    harness = KeeperHarness(MemoryStore(clock=clock), clock=clock, lease=30.0)
    app = make_app()
    Metrics(app, registry=registry)
    harness.keeper.store_calls.instruments = app.extensions[
        "idempotence"
    ].engine.store_calls.instruments
    for key, lease in (("a", 9.0), ("b", 24.0)):
        hold = harness.hold(key, lease=lease)
        harness.store.claim(key, hold.owner, hold.fingerprint, lease, 0)
    clock.advance(3.0)
    harness.keeper.tick()  # a is due, just now
    clock.advance(7.5)
    harness.keeper.tick()  # b was due 2.5 seconds ago
    harness.keeper.tick()  # and nothing is due
    assert of("keeper_lag_seconds_count", registry) == {(): 2}
    assert of("keeper_lag_seconds_sum", registry) == {(): 2.5}


def test_applications_and_registries_may_be_several_and_nothing_is_counted_twice(registry):
    other = CollectorRegistry()
    for _ in range(2):
        app = add_views(make_app())
        metrics = Metrics(app, registry=registry)
        Metrics(registry=other).init_app(app)
        app.test_client().post("/orders/well")
        with pytest.raises(ConfigurationError, match="counted already"):
            metrics.init_app(app)
    assert of("requests_total", registry, "outcome") == {("claimed",): 2}
    assert figures(registry).keys() == figures(other).keys()
    with pytest.raises(ConfigurationError, match="call Idempotence"):
        metrics.init_app(bare_app())


def test_an_instrument_that_fails_changes_nothing(caplog):
    class Broken(Instrument):
        def store_call_ends(self, call):
            raise RuntimeError("no")

    app = add_views(make_app())
    app.extensions["idempotence"].engine.store_calls.instruments += (Broken(),)
    assert app.test_client().post("/orders/well").status_code == 200
    assert "An instrument failed" in caplog.text


def test_the_alerts_are_about_figures_that_exist():
    [text] = re.findall(r"(?ms)^```yaml\n(.*?)^```$", text_of(PAGE))
    [group] = yaml.safe_load(text)["groups"]
    registry = CollectorRegistry()
    Metrics(registry=registry)
    known = set()
    for metric in registry.collect():
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}
        known |= {metric.name + end for end in ends[metric.type]}
    assert len(group["rules"]) >= 6
    for rule in group["rules"]:
        assert {"alert", "expr", "labels", "annotations"} <= set(rule)
        assert set(rule["annotations"]) == {"summary", "action"}
        named = set(re.findall(r"idempotence_\w+", rule["expr"]))
        assert named
        assert named <= known
    described = set(re.findall(r"(?m)^\| `(idempotence_\w+)`", text_of(PAGE)))
    assert {metric.removesuffix("_bucket") for metric in known} >= described
    assert len(described) == 9
