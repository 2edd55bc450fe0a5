"""`lock`: one block of code at a time under a name, as a context manager and as a decorator."""

import asyncio
from contextlib import nullcontext
from datetime import timedelta
from uuid import UUID

import pytest
from helpers.once_operations import OnceApp, elsewhere

from flask_idempotence import LeaseLost, Running, current_guard
from flask_idempotence.testing import record_signals

ID = UUID("8e03978e-40d5-43e8-bc93-6894a57f9324")


@pytest.fixture
def site():
    return OnceApp()


def held_for(site, name="stock", **options):
    """Return for how long another caller finds the lock held; None where it is free."""

    def take():
        try:
            with site.app.app_context(), site.idempotence.lock(name, **options):
                return None
        except Running as met:
            return met.remaining

    return elsewhere(take)


ERRORS = [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError]


@pytest.mark.parametrize("error", [None, *ERRORS])
def test_however_the_block_ends_the_lock_is_free(site, error):
    expected = pytest.raises(error) if error else nullcontext()
    with site.app.app_context(), expected, site.idempotence.lock("stock"):
        current_guard.keep()  # nothing of it is remembered
        if error:
            raise error
    assert not list(site.store.scan(""))
    assert held_for(site) is None


def test_every_name_is_its_own_and_no_operation_of_once(site):
    names = [7, "7", ID, str(ID), (7,), ("7",), (7, "m"), ("m", 7), "stock", "stock "]
    with site.app.app_context():
        for number, name in enumerate(names):
            with site.idempotence.lock(name):
                held = [held_for(site, other) is not None for other in names]
                assert held == [number == other for other in range(len(names))]
        with site.idempotence.lock("1"):
            assert [site.word("1"), site.word("1", scope="-")] == ["first", "first"]


def test_it_is_reentrant_and_the_outermost_block_releases(site):
    lock = site.idempotence.lock
    with record_signals(site.app) as told, site.app.app_context():
        with lock("stock"):
            with lock("stock"), lock("stock", wait=5):
                assert held_for(site)
            assert held_for(site)
        assert held_for(site) is None
    assert told.names.count("claimed") == told.names.count("released") == 2


# As a decorator


def test_a_decorated_function_holds_it_while_it_runs(site):
    @site.idempotence.lock("report", lease=6)
    def report(day, *, to):
        """Send the report."""
        return day, to, held_for(site, "report")

    with site.app.app_context():
        assert [report("monday", to="all") for _ in range(2)] == [("monday", "all", 6)] * 2
    assert held_for(site, "report") is None
    assert (report.__name__, report.__doc__) == ("report", "Send the report.")


# Its lease


@pytest.mark.parametrize(("lease", "left"), [(None, 30), (6, 6), (timedelta(minutes=2), 100)])
def test_its_lease_is_its_own_or_the_setting_and_at_most_the_longest_hold(lease, left):
    site = OnceApp(IDEMPOTENCE_MAX_HOLD=100.0)
    with site.app.app_context(), site.idempotence.lock("stock", lease=lease):
        assert held_for(site) == left
        current_guard.ensure_held()
        assert held_for(site) == left
        site.clock.advance(left - 0.1)
        assert held_for(site)
        site.clock.advance(0.2)  # nobody has renewed it
        assert held_for(site) is None


def rival_key(site):
    return site.engine.services.keyring.store_key(site.app, "mutex", "-", b'["mutex","stock"]')


def test_who_is_not_its_owner_any_more_cannot_release_it(site):
    with record_signals(site.app) as told, site.app.app_context():
        with site.idempotence.lock("stock"):
            site.clock.advance(31)
            site.store.claim(rival_key(site), b"r" * 16, bytes(16), 60, 0)
            with pytest.raises(LeaseLost):
                current_guard.ensure_held()
            assert current_guard.lost
        assert held_for(site)
    assert "lease_lost" in told.names


def test_who_has_waited_long_enough_is_told(site):
    site.store.claim(rival_key(site), b"r" * 16, bytes(16), 20, 0)
    waits = []
    site.engine.sleep = lambda seconds: (waits.append(seconds), site.clock.advance(seconds))
    assert held_for(site, wait=timedelta(seconds=3)) == pytest.approx(17)
    assert sum(waits) == pytest.approx(3)


# The rest of the house


def test_it_has_a_mode_and_a_place_of_its_own(site):
    with record_signals(site.app) as told, site.app.app_context():
        with site.idempotence.lock(("order", 7)):
            [key] = site.store.scan("")
            assert key.startswith("idempotence:2:mutex:-:")
            assert current_guard.mode == "mutex"
            assert current_guard.key in key
            runner = site.app.test_cli_runner()
            counted = runner.invoke(args=["idempotence", "stats", "--mode", "mutex"])
            assert counted.stdout.splitlines()[0].split("\t")[:3] == ["mutex", "-", "1"]
        assert current_guard.mode is None
    assert [(name, told["mode"], told["endpoint"]) for name, told in told.events] == [
        ("claimed", "mutex", "-"),
        ("released", "mutex", "-"),
    ]


def test_running_that_nobody_catches_answers_a_request(site):
    site.app.add_url_rule("/", "view", site.idempotence.lock("stock")(lambda: "sold"))
    with site.app.app_context(), site.idempotence.lock("stock"):
        refused = site.app.test_client().get("/")
    assert (refused.status_code, refused.headers["Retry-After"]) == (409, "1")
    assert refused.json["type"] == "urn:flask-idempotence:key-in-progress"
    assert refused.json["detail"] == "This is locked by another. Try again soon."
    assert site.app.test_client().get("/").text == "sold"
