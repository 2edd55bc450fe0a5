"""The rules of the model against every store: what they predict is what it answers and holds.

Any owner may send anything at any time, again and again. That is all that a crash, a freeze, a
lost answer and a late message are to a store.
"""

from contextlib import contextmanager
from functools import partial
from itertools import product

import pytest
from helpers.every_store import EVERY_STORE, storage_uri
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from model.callers import AtLeastOnce, AtMostOnce, Lock
from model.protocol import Claim, Record, Rules
from model.search import Search
from model.test_model_search import BROKEN_RULES

from flask_idempotence import MemoryStore
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import Done, Renewal, Running
from flask_idempotence.testing import FakeClock

TICK = 100.0
"""Seconds: so many that what a test takes by a real clock does not count."""

A_LONG_TIME = 1000
"""Ticks: what stands for ever in the model, where a store wants a number."""

KEYS = ("k", "l")
OWNERS = st.sampled_from([0, 0, 0, 0, 1, 2])
ASKS = st.integers(0, 1)


@contextmanager
def opened(kind, request):
    """Give an empty store, and a function that lets ticks pass for it."""
    if kind == "memory":
        clock = FakeClock()
        yield MemoryStore(clock=clock), lambda ticks: clock.advance(ticks * TICK)
        return
    url = storage_uri(kind, request)
    store = open_store(url, {})
    if kind == "redis":
        yield store, partial(let_pass_on_redis, request.getfixturevalue("redis_server").client())
    else:
        yield store, partial(let_pass_in_a_table, url)
        store.close()


def let_pass_on_redis(behind, ticks):
    """A server's clock cannot be set. Yet all it counts is a key's time to live, which can."""
    for key in behind.scan_iter():
        left = round(behind.pttl(key) / 1000 / TICK) - ticks
        behind.pexpire(key, round(left * TICK * 1000))  # 0 or less removes it


def let_pass_in_a_table(url, ticks):
    """A database's clock cannot be set. Yet all times in the table can be moved to the past."""
    from sqlalchemy import create_engine, update  # noqa: PLC0415 - an extra

    from flask_idempotence.stores.sql import table  # noqa: PLC0415 - the same

    times, passed = (table.c.lease_ends, table.c.expires), round(ticks * TICK * 1000)
    behind = create_engine(url)
    with behind.begin() as connection:
        connection.execute(update(table).values({time: time - passed for time in times}))
    behind.dispose()


def seconds(ticks):
    return min(ticks, A_LONG_TIME) * TICK


def bytes_of(number):
    return bytes([number]) * 16


def send(store, key, operation, owner, *arguments):
    """Have a store carry out what the model calls by numbers and ticks."""
    if operation == "claim":
        asks, lease, hold = arguments
        return store.claim(key, bytes_of(owner), bytes_of(asks), seconds(lease), seconds(hold))
    if operation == "renew":
        return store.renew([Renewal(key, bytes_of(owner), seconds(*arguments))])[0]
    if operation == "complete":
        asks, response, ttl = arguments
        record = bytes_of(response)
        return store.complete(key, bytes_of(owner), bytes_of(asks), record, seconds(ttl))
    return store.release(key, bytes_of(owner))


def agrees(answer, predicted):
    if isinstance(predicted, Running):
        near = pytest.approx(seconds(predicted.remaining), abs=TICK / 4)
        return isinstance(answer, Running) and (answer.matches, answer.remaining) == (
            predicted.matches,
            near,
        )
    if isinstance(predicted, Done):
        predicted = Done(predicted.matches, bytes_of(predicted.record))
    return answer == predicted


def holds(store, key, slot):
    """Whether a key holds what the model says, for as long as it says, and for whom it says."""
    entry = store.peek(key)
    if slot is None or entry is None:
        return entry is slot
    if isinstance(slot, Claim):
        lease, life = seconds(slot.lease), seconds(slot.lease) + seconds(slot.hold)
        lasts = entry.lease == pytest.approx(lease, abs=TICK / 4)
    else:
        life, lasts = seconds(slot.left), entry.lease is None
    lasts = lasts and entry.expires_in == pytest.approx(life, abs=TICK / 4)
    return entry.kind == slot.kind and lasts and bytes_of(slot.owner) in entry.mark


class StoreMachine(RuleBasedStateMachine):
    """Does the same to a store and to the model."""

    store = let_pass_for_store = None
    model = Rules()

    def _both(self, key, copies, operation, *arguments):
        for _ in range(copies):  # the answer to the last is the one that is heard
            self.slots[key], predicted = getattr(self.model, operation)(
                self.slots[key], *arguments
            )
            answer = send(self.store, key, operation, *arguments)
        assert agrees(answer, predicted), (operation, arguments, answer, predicted)

    key = st.sampled_from("kkkl")
    copies = st.sampled_from([1, 1, 2])
    lease = st.integers(1, 4)
    hold = st.sampled_from([0, 0, 3])

    @initialize(lease=lease, hold=hold)
    def begin(self, lease, hold):
        self.store.clear("")
        self.slots = dict.fromkeys(KEYS)
        self._both("k", 1, "claim", 0, 0, lease, hold)

    @rule(key=key, copies=copies, owner=OWNERS, asks=ASKS, lease=lease, hold=hold)
    def claims(self, key, copies, owner, asks, lease, hold):
        self._both(key, copies, "claim", owner, asks, lease, hold)

    @rule(key=key, copies=copies, owner=OWNERS, asks=ASKS, ttl=lease)
    def completes(self, key, copies, owner, asks, ttl):
        self._both(key, copies, "complete", owner, asks, owner, ttl)

    @rule(key=key, copies=copies, owner=OWNERS)
    def releases(self, key, copies, owner):
        self._both(key, copies, "release", owner)

    @rule(batch=st.lists(st.tuples(key, OWNERS, lease), min_size=1, max_size=4))
    def renews(self, batch):
        predicted = []
        for key, owner, lease in batch:
            self.slots[key], outcome = self.model.renew(self.slots[key], owner, lease)
            predicted.append(outcome)
        renewals = [Renewal(key, bytes_of(owner), seconds(n)) for key, owner, n in batch]
        assert self.store.renew(renewals) == predicted

    @rule(ticks=st.integers(1, 3))
    def time_passes(self, ticks):
        self.let_pass_for_store(ticks)
        for key, slot in self.slots.items():
            self.slots[key] = self.model.let_pass(slot, ticks)

    @invariant()
    def the_keys_hold_what_they_should(self):
        for key, slot in getattr(self, "slots", {}).items():
            assert holds(self.store, key, slot), (key, slot, self.store.peek(key))


def drive(kind, request, **options):
    with opened(kind, request) as (store, let_pass):
        of_store = {"store": store, "let_pass_for_store": staticmethod(let_pass)}
        options |= {"deadline": None, "database": None, "report_multiple_bugs": False}
        run_state_machine_as_test(
            type("Machine", (StoreMachine,), of_store),
            settings=settings(suppress_health_check=list(HealthCheck), **options),
        )


@pytest.mark.parametrize("kind", EVERY_STORE)
def test_a_store_does_what_the_model_does(kind, request):
    drive(kind, request, max_examples=15, stateful_step_count=20, derandomize=True)


@pytest.mark.deep
@pytest.mark.parametrize("kind", EVERY_STORE)
def test_a_store_does_what_the_model_does_for_a_long_time(kind, request):
    examples = 500 if kind in {"memory", "redis"} else 50
    drive(kind, request, max_examples=examples, stateful_step_count=50)


@pytest.fixture(scope="module")
def steps():
    """Every operation that the searches know, on everything that a key holds in them."""
    slots, messages = {}, {}
    for guarantee in (AtLeastOnce, AtMostOnce, Lock):
        known = Search(guarantee(), [], [], delays=0).run().known
        for (before, message), (after, _) in known.items():
            slots |= dict.fromkeys((before, after))
            messages[message] = None
    return list(product(slots, messages))


@pytest.mark.parametrize("kind", EVERY_STORE)
def test_a_store_does_what_the_searches_say_to_all_that_a_key_may_hold(kind, request, steps):
    with opened(kind, request) as (store, let_pass):
        assert disagreements(store, let_pass, steps, Rules()) == []
    assert len(steps) == 182


@pytest.mark.parametrize("broken", BROKEN_RULES)
def test_a_store_that_goes_by_broken_rules_would_be_found(broken, request, steps):
    with opened("memory", request) as (store, let_pass):
        assert disagreements(store, let_pass, steps, broken())


def disagreements(store, let_pass, steps, rules):
    """Have a store carry out what the searches did; return where it differs from the rules."""
    found = []
    for before, message in steps:
        after, predicted = getattr(rules, message.operation)(
            before, message.owner, *message.arguments
        )
        store.clear("")
        put(store, let_pass, before)
        assert holds(store, "k", before)
        answer = send(store, "k", message.operation, message.owner, *message.arguments)
        if not agrees(answer, predicted) or not holds(store, "k", after):
            found.append((before, message))
    return found


def put(store, let_pass, slot):
    if isinstance(slot, Record):
        send(store, "k", "complete", slot.owner, slot.asks, slot.response, slot.left)
    elif isinstance(slot, Claim):
        send(store, "k", "claim", slot.owner, slot.asks, slot.lease or 1, slot.hold)
        if not slot.lease:
            let_pass(1)
