"""Which operation a call means: by its place, and by what is open around it."""

import asyncio
import contextvars

import pytest
from flask import (
    Response,
    after_this_request,
    copy_current_request_context,
    request,
    request_finished,
    stream_with_context,
)
from helpers.apps import make_app
from helpers.once_operations import elsewhere

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    Running,
    current_guard,
    idempotent,
    no_repeat_submit,
    one_time_token,
)

# In each table, `-` is for no operation, and `!` for a ConfigurationError. "once > request" is a
# request sent from within a block of `once`, "key > once" such a block in the view of a key.

INNERMOST = """
place               lock   key    token  once   step   lock>key  once>request  key>once
view                lock   key    token  once   step   key       -             once
nested view         lock   lock   lock   lock   lock   lock      lock          lock
error handler       lock   key    token  -      key    key       -             key
after_this_request  lock   key    token  -      key    key       -             key
after_request       lock   key    token  -      key    key       -             key
request_finished    lock   key    token  -      key    key       -             key
streamed body       lock   key    token  -      key    key       -             key
copied request      lock   key    token  -      key    key       -             key
copied context      lock   key    token  once   step   key       -             once
to_thread           lock   key    token  once   step   key       -             once
task                lock   key    token  once   step   key       -             once
test client         -      -      -      -      -      -         -             -
pushed context      -      -      -      once   step   -         -             once
"""
"""For `mode`, `key`, `lost`, `keep()` and `release()`."""

HELD = """
place               lock   key    token  once   step      lock>key  once>request  key>once
view                lock   key    -      once   key,step  lock,key  -             key,once
nested view         +lock  +lock  lock   +lock  +lock     +lock     lock          +lock
error handler       lock   key    -      -      key       lock,key  -             key
after_this_request  lock   key    -      -      key       lock,key  -             key
after_request       lock   key    -      -      key       lock,key  -             key
request_finished    lock   key    -      -      key       lock,key  -             key
streamed body       lock   key    -      -      key       lock,key  -             key
copied request      lock   key    -      -      key       lock,key  -             key
copied context      lock   key    -      once   key,step  lock,key  -             key,once
to_thread           lock   key    -      once   key,step  lock,key  -             key,once
task                lock   key    -      once   key,step  lock,key  -             key,once
test client         -      -      -      -      -         -         -             -
pushed context      -      -      -      once   step      -         -             once
"""
"""The claims that `ensure_held()` renews; `+lock`: those of the view, and the nested lock."""

STEPS = """
place               lock   key    token  once   step   lock>key  once>request  key>once
view                !      key    !      once   key    key       !             key
nested view         !      key    !      once   key    key       !             key
error handler       !      !      !      !      !      !         !             !
after_this_request  !      !      !      !      !      !         !             !
after_request       !      !      !      !      !      !         !             !
request_finished    !      !      !      !      !      !         !             !
streamed body       !      !      !      !      !      !         !             !
copied request      !      key    !      !      key    key       !             key
copied context      !      key    !      once   key    key       !             key
to_thread           !      key    !      once   key    key       !             key
task                !      key    !      once   key    key       !             key
test client         !      !      !      !      !      !         !             !
pushed context      !      !      !      once   key    !         !             once
"""
"""The operation of a step."""

ONCE = """
place               lock   key    token  once     step   lock>key  once>request  key>once
view                new    new    new    part     new    new       running       part
nested view         new    new    new    part     new    new       running       part
error handler       new    new    new    done     new    new       running       done
after_this_request  new    new    new    done     new    new       running       done
after_request       new    new    new    done     new    new       running       done
request_finished    new    new    new    done     new    new       running       done
streamed body       new    new    new    done     new    new       running       done
copied request      new    new    new    running  new    new       running       running
copied context      new    new    new    running  new    new       running       running
to_thread           new    new    new    running  new    new       running       running
task                new    new    new    running  new    new       running       running
test client         new    new    new    running  new    new       running       running
pushed context      new    new    new    part     new    new       running       part
"""
"""`once` with the id of the block that is open, if one is."""

OPEN = {
    "lock": [no_repeat_submit(60)],
    "key": [idempotent()],
    "token": [one_time_token()],
    "once": [],
    "step": [idempotent()],
    "lock>key": [idempotent(), no_repeat_submit(60)],
    "once>request": [],
    "key>once": [idempotent()],
}


def cells(table):
    """Return the cells of a table: place, what is open, and what is expected."""
    found = []
    heading, *lines = table.strip().splitlines()
    columns = heading.split()[1:]
    for line in lines:
        place, expected = line[:20].strip(), line[20:].split()
        for what, operation in zip(columns, expected, strict=True):
            found.append(pytest.param(place, what, operation, id=f"{place}-{what}"))
    return found


class Stage:
    """An application that runs a call at a place, while something is open."""

    def __init__(self, what):
        self.what = what
        self.idempotence = Idempotence()
        self.app = make_app(idempotence=self.idempotence)
        self.engine = self.app.extensions["idempotence"].engine
        self._note_claims()
        view = self.view
        for guard in OPEN[what]:
            view = guard(view)
        self.app.add_url_rule("/", "view", view, methods=["POST"])
        self.nested = no_repeat_submit(60, key=lambda: "nested")(self.run)
        self.app.post("/within", endpoint="within")(self.run)
        self.app.errorhandler(LookupError)(lambda _: self.at("error handler") or ("no", 500))
        self.app.after_request(lambda response: self.at("after_request") or response)
        request_finished.connect(self.finished, self.app)

    def begin(self, place, call):
        self.place, self.call = place, call
        self.outcomes, self.claims, self.renewed = [], [], []
        self.engine.store.clear("")
        return self

    def _note_claims(self):
        enter = self.engine.enter

        def noted(claim, *more):
            self.claims.append(claim)
            return enter(claim, *more)

        self.engine.enter = noted
        self.engine.keeper.ensure_held = lambda claim: self.renewed.append(claim.guard.mode)

    def run(self):
        try:
            self.renewed.clear()
            self.outcomes.append(self.call(self))
        except ConfigurationError as error:
            self.outcomes.append("!")
            self.error = error
        return "done"

    def at(self, place):
        if place == self.place and request.path == "/" and not self.outcomes:
            self.run()

    def finished(self, _, **__):
        self.at("request_finished")

    def view(self):
        if self.what in ("once", "key>once"):
            with self.idempotence.once("job", 1):
                self.in_view()
        elif self.what == "step":
            with self.idempotence.step("outer"):
                self.in_view()
        else:
            self.in_view()
        if self.place == "error handler":
            raise LookupError
        if self.place == "after_this_request":
            after_this_request(lambda response: self.at(self.place) or response)
        if self.place == "streamed body":
            return Response(stream_with_context(self.run() for _ in "1"))
        return "done"

    def in_view(self):
        if self.place == "view":
            self.run()
        elif self.place == "nested view":
            self.nested()
        elif self.place == "copied request":
            elsewhere(copy_current_request_context(self.run))
        elif self.place == "copied context":
            context = contextvars.copy_context()
            elsewhere(lambda: context.run(self.run))
        elif self.place == "to_thread":
            asyncio.run(asyncio.to_thread(self.run))
        elif self.place == "task":
            asyncio.run(self.in_task())
        elif self.place == "test client":
            self.app.test_client().post("/within")
        elif self.place == "pushed context":
            with self.app.test_request_context("/"):
                self.run()

    async def in_task(self):
        async def task():
            self.run()

        await asyncio.create_task(task())

    def send(self):
        """Send the request; return what the call has returned."""
        token = self.app.test_client().get("/token").json["token"]
        headers = {"Idempotency-Key": "k", "Idempotence-Token": token}
        self.claims.clear()
        if self.what == "once>request":
            with self.app.app_context(), self.idempotence.once("job", 1):
                self.app.test_client().post("/", headers=headers, buffered=True)
        else:
            self.app.test_client().post("/", headers=headers, buffered=True)
        [outcome] = self.outcomes
        return outcome


STAGES = {what: Stage(what) for what in OPEN}


def decided(stage):
    return ",".join(each.guard.mode for each in stage.claims if each.by_hand is not None) or "-"


@pytest.mark.parametrize(("place", "what", "meant"), cells(INNERMOST))
def test_the_current_guard_is_the_innermost_of_the_request_or_of_the_blocks(place, what, meant):
    assert STAGES[what].begin(place, lambda _: current_guard.mode or "-").send() == meant


@pytest.mark.parametrize(("place", "what", "meant"), cells(INNERMOST))
def test_a_decision_is_about_the_current_guard_or_comes_too_late(place, what, meant):
    decide = current_guard.release if what == "lock>key" else current_guard.keep
    stage = STAGES[what].begin(place, lambda _: decide())
    outcome = stage.send()
    if place == "request_finished" and outcome == "!":
        assert "too late" in str(stage.error)
    else:
        assert (outcome, decided(stage)) == (None, meant)


@pytest.mark.parametrize(("place", "what", "held"), cells(HELD))
def test_ensure_held_is_about_every_claim_around(place, what, held):
    if held == "+lock":
        held = next(each.values[2] for each in cells(HELD) if each.values[1] == what) + ",lock"
    stage = STAGES[what].begin(place, lambda _: current_guard.ensure_held())
    assert stage.send() is None
    assert (",".join(stage.renewed) or "-") == held


def operation_of_a_step(stage):
    with stage.idempotence.step("inner"):
        claim = stage.claims[-1]
        return next(each.guard.mode for each in stage.claims if each.key == claim.operation.below)


@pytest.mark.parametrize(("place", "what", "operation"), cells(STEPS))
def test_a_step_belongs_to_the_outermost_operation_of_its_request_or_of_the_blocks(
    place, what, operation
):
    stage = STAGES[what].begin(place, operation_of_a_step)
    assert stage.send() == operation
    if operation == "!":
        has_key = "key" in OPEN_MODES[what]
        text = "streamed" if place == "streamed body" and has_key else "operation around it"
        assert text in str(stage.error)


OPEN_MODES = {what: [guard.guard.mode for guard in guards] for what, guards in OPEN.items()}


def once_again(stage):
    before = len(stage.claims)
    try:
        with stage.idempotence.once("job", 1) as job:
            if not job.first:
                return "done"
            [claim] = stage.claims[before:]
            return "new" if claim.is_granted else "part"
    except Running:
        return "running"


@pytest.mark.parametrize(("place", "what", "comes"), cells(ONCE))
def test_once_within_its_block_is_a_part_of_it_and_everywhere_else_another_caller(
    place, what, comes
):
    assert STAGES[what].begin(place, once_again).send() == comes


@pytest.mark.parametrize("place", [place.values[0] for place in cells(INNERMOST)][::8])
def test_a_named_lock_is_taken_anywhere(place):
    def take(stage):
        with stage.idempotence.lock("name"):
            return current_guard.mode

    assert STAGES["key>once"].begin(place, take).send() == "mutex"
