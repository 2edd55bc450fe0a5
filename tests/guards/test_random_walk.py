"""A random walk: programs of guards, blocks and steps, which fail, are killed and come again.

An operation is a tree of nodes, the same in each attempt; its failures are drawn for each attempt.
The model is `Model`: every finished step has run once, every acknowledged operation has its
effects, and no code is under another operation's claim.
"""

import contextvars
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from helpers.apps import make_app
from helpers.every_store import storage_settings
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    Running,
    current_guard,
    idempotent,
    no_repeat_submit,
)

LEAVES = st.sampled_from([("step",), ("step",), ("step",), ("point",), ("keep",), ("release",)])
PROGRAMS = st.lists(
    st.recursive(
        LEAVES,
        lambda inner: st.tuples(
            st.sampled_from(["once", "lock", "pushed", "thread", "sent"]),
            st.lists(inner, max_size=3),
        ),
        max_leaves=6,
    ),
    min_size=1,
    max_size=3,
)
FATES = st.lists(st.sampled_from(["", "", "", "", "raise", "kill"]), max_size=12)
ROUTES = ["plain", "locked", "retried"]
_walks = itertools.count()


class Model:
    """What has finished, what was acknowledged, and the key of each step."""

    def __init__(self):
        self.finished, self.acknowledged, self.keys = set(), {}, {}

    @staticmethod
    def is_done(decision, has_failed):
        """Whether an operation is done: as it was decided by hand, else by its result."""
        return decision == "keep" or (not has_failed and decision != "release")

    def begin_step(self, operation, name, step):
        assert step.first == ((operation, name) not in self.finished)
        assert self.keys.setdefault((operation, name), step.key) == step.key
        assert len(set(self.keys.values())) == len(self.keys)

    def end_step(self, operation, name):
        self.finished.add((operation, name))

    def acknowledge(self, operation, steps, status=None):
        self.acknowledged.setdefault(operation, status)
        assert steps <= self.finished


class Program:
    """One attempt at an operation: it knows what is around each of its nodes."""

    def __init__(self, walk, operation, fates):
        self.walk, self.operation, self.fates, self.steps = walk, operation, fates, set()
        self.decisions = {}  # by the operation that is meant

    def run(self, nodes, around, path=""):
        """Run nodes; `around` are the kind and the operation of each claim, outermost first."""
        for number, (kind, *inner) in enumerate(nodes):
            self.check(around)
            getattr(self, kind)(around, f"{path}{number}.", *inner)
            self.check(around)

    def check(self, around):
        assert current_guard.mode == (around[-1][0] if around else None)

    def point(self, _around, _path):
        match self.fates.pop() if self.fates else "":
            case "raise":
                raise LookupError
            case "kill":
                raise SystemExit

    def keep(self, around, _path, call="keep"):
        """Decide by hand about the innermost claim; a named lock is released anyway."""
        getattr(current_guard, call)()
        if meant := [operation for kind, operation in around if kind != "mutex"]:
            self.decisions[meant[-1]] = call

    def release(self, around, path):
        self.keep(around, path, "release")

    def step(self, around, path):
        model, step = self.walk.model, self.walk.idempotence.step("step", path)
        operation = next((name for kind, name in around if kind in ("key", "once")), None)
        if operation is None:
            with pytest.raises(ConfigurationError, match="operation around it"), step:
                pass
            return
        with step:
            model.begin_step(operation, path, step)
            self.check([*around, ("step", operation)] if step.first else around)
            self.point(around, path)
        model.end_step(operation, path)
        self.steps.add((operation, path))

    def once(self, around, path, nodes):
        name = f"{self.operation}/{path}"
        with self.walk.idempotence.once("job", name) as job:
            if job.first:
                with self.walk.idempotence.once("job", name) as again:
                    assert again.first
                self.run(nodes, [*around, ("once", name)], path)

    def lock(self, around, path, nodes):
        with self.walk.idempotence.lock(f"{self.operation}/{path}"):
            self.run(nodes, [*around, ("mutex", "")], path)

    def pushed(self, around, path, nodes):
        blocks = [each for each in around if each[0] not in ("key", "lock")]
        with self.walk.app.test_request_context("/"):
            self.run(nodes, blocks, path)

    def thread(self, around, path, nodes):
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as threads:
            threads.submit(context.run, self.run, nodes, around, path).result()

    def sent(self, _around, path, nodes):
        inner = Program(self.walk, f"{self.operation}/{path}", self.fates)
        self.walk.send("plain", inner, nodes)


class Walk(RuleBasedStateMachine):
    """Operations of one application: requests under a key, and jobs outside of any request."""

    stored = None  # settings of the store

    def __init__(self):
        super().__init__()
        self.idempotence, self.model, self.operations = Idempotence(), Model(), []
        prefix = f"walk{os.getpid()}-{next(_walks)}"
        self.app = make_app(idempotence=self.idempotence, **self.stored, IDEMPOTENCE_PREFIX=prefix)
        self.app.testing = False  # errors are answers
        self.app.logger.disabled = True
        self.store, self.running = self.app.extensions["idempotence"].store, []
        self.faults, self.jobs = [], {}
        view = idempotent()(self.view)
        guarded = no_repeat_submit(0, key=lambda: self.running[-1][0].operation)(view)
        for name, each in (("plain", view), ("locked", guarded), ("retried", self.retried(view))):
            self.app.add_url_rule(f"/{name}", name, each, methods=["POST"])

    @staticmethod
    def retried(view):
        def again():
            try:
                return view()
            except LookupError:
                return view()

        return again

    def view(self):
        program, nodes, around = self.running[-1]
        program.steps = set()
        if program.decisions.get(program.operation) == "release":
            del program.decisions[program.operation]  # the view runs again under its claim
        try:
            program.run(nodes, [*around, ("key", program.operation)])
        except (
            AssertionError,
            ConfigurationError,
        ) as fault:  # else it would be a 500 among others
            self.faults.append(fault)
            raise
        return "done"

    def send(self, route, program, nodes):
        """Send the request of a program, and compare its answer with the model."""
        self.running.append((program, nodes, [("lock", "")] if route == "locked" else []))
        try:
            headers = {"Idempotency-Key": program.operation}
            answer = self.app.test_client().post(f"/{route}", headers=headers)
        finally:
            self.running.pop()
            if self.faults:
                raise AssertionError(self.faults)
        operation, status = program.operation, answer.status_code
        known = operation in self.model.acknowledged
        assert ("Idempotent-Replayed" in answer.headers) == known
        if not known and self.model.is_done(program.decisions.get(operation), status != 200):
            self.model.acknowledge(operation, program.steps, status)
        assert status in ([self.model.acknowledged[operation]] if known else (200, 500, 409))

    @rule(nodes=PROGRAMS, route=st.sampled_from(ROUTES), fates=FATES)
    def begin(self, nodes, route, fates):
        operation = f"operation {len(self.operations)}"
        self.operations.append((operation, route, nodes))
        self.attempt(len(self.operations) - 1, fates)

    @precondition(lambda self: self.operations)
    @rule(index=st.integers(0, 100), fates=FATES)
    def repeat(self, index, fates):
        self.attempt(index % len(self.operations), fates)

    def attempt(self, index, fates):
        operation, route, nodes = self.operations[index]
        with suppress(SystemExit):
            self.send(route, Program(self, operation, list(fates)), nodes)

    @rule(nodes=PROGRAMS, number=st.integers(0, 2), fates=FATES)
    def job(self, nodes, number, fates):
        """A message, whose program is that of its first delivery."""
        name = f"message {number}"
        nodes = self.jobs.setdefault(name, nodes)
        program, has_failed = Program(self, name, list(fates)), True
        with suppress(SystemExit), self.app.app_context():
            try:
                with self.idempotence.once("message", name) as job:
                    assert job.first != (name in self.model.acknowledged)
                    if job.first:
                        program.run(nodes, [("once", name)])
                has_failed = False
            except LookupError:
                pass
            except Running:
                """It was killed before, or a part of it."""
            if self.model.is_done(program.decisions.get(name), has_failed):
                self.model.acknowledge(name, program.steps)

    @rule()
    def leases_of_the_killed_end(self):
        keys = list(self.store.scan(self.store_prefix()))
        for key, entry in zip(keys, self.store.peek_all(keys), strict=True):
            if entry is not None and entry.kind == "claim":
                self.store.remove(key)

    def store_prefix(self):
        return self.app.config["IDEMPOTENCE_PREFIX"]


def walk(kind, request, **more):
    Walk.stored = storage_settings(kind, request)
    # Without shrinking, which takes a hundred times as long: a failure prints its whole program.
    given = settings(deadline=None, database=None, phases=[Phase.generate], **more)
    run_state_machine_as_test(Walk, settings=given)


@pytest.mark.parametrize("kind", ["memory", "redis", "sqlite"])
def test_a_short_walk(kind, request):
    walk(kind, request, max_examples=15, stateful_step_count=15, derandomize=True)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["memory", "redis", "sqlite"])
def test_a_long_walk(kind, request):
    """WALKS=5000 takes about an hour on three stores."""
    walk(kind, request, max_examples=int(os.environ.get("WALKS", "300")), stateful_step_count=40)
