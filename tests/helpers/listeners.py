"""Applications whose own listeners act at one event of SQLAlchemy, beside the guard's.

Each request is sent to a view that commits its own session as well: a guard changes nothing of
what a listener may do there.
"""

import gc
from contextlib import contextmanager, suppress

from flask import abort, got_request_exception, request
from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    func,
    insert,
    select,
    text,
)
from sqlalchemy import event as events
from sqlalchemy.orm import Session

from flask_idempotence import SqlStore, idempotent
from helpers.payment_database import Payment, PaymentApp, payments

SESSION = [
    *("before_commit", "after_commit", "after_rollback", "after_soft_rollback", "before_flush"),
    *("after_flush", "after_flush_postexec", "after_begin", "after_transaction_create"),
    *("after_transaction_end", "before_attach", "after_attach", "do_orm_execute"),
    *("transient_to_pending", "pending_to_persistent", "pending_to_transient"),
    *("persistent_to_detached", "persistent_to_transient", "loaded_as_persistent"),
]
ENGINE = [
    *("before_execute", "after_execute", "before_cursor_execute", "after_cursor_execute"),
    *("begin", "commit", "rollback", "savepoint", "rollback_savepoint", "release_savepoint"),
    *("engine_connect", "handle_error"),
]
POOL = ["connect", "first_connect", "checkout", "checkin", "reset", "invalidate", "close"]
EVENTS = [
    *(("session", each) for each in SESSION),
    *(("engine", each) for each in ENGINE),
    *(("pool", each) for each in POOL),
]
KINDS = ["key", "once", "step"]
"""What has the argument `within=`."""

audits = Table(
    "audits", MetaData(), Column("id", Integer, primary_key=True), Column("note", String(9))
)


class ListenerError(Exception):
    """The error that a listener of an application raises."""


class ListeningApp(PaymentApp):
    """Views that write a payment, of which one commits it without a guard."""

    def __init__(self, url, elsewhere, **engine):
        store = SqlStore(create_engine(url), deadline=1)
        super().__init__(url, store=store, engine=engine)
        self.elsewhere = create_engine(elsewhere)
        for engine in (self.engine, self.elsewhere, store.engine):
            if engine.dialect.name == "sqlite":  # a power cut is not among the events
                events.listen(engine, "connect", do_not_sync)
            audits.create(engine, checkfirst=True)
        self.app.config["PROPAGATE_EXCEPTIONS"] = False
        self.app.teardown_appcontext_funcs[:] = [lambda _: self.remove()]
        self.add_once()
        self.app.add_url_rule("/bare", "bare", self.commit, methods=["POST"])
        self.app.add_url_rule("/step", "step", idempotent()(self.take_step), methods=["POST"])
        self.reported = []
        got_request_exception.connect(self.report, self.app)

    def close(self):
        super().close()
        self.store.engine.dispose()
        self.elsewhere.dispose()

    def remove(self):
        with suppress(Exception):  # a listener's
            self.session.remove()
        self.session.registry.clear()

    def report(self, _, exception, **more):
        self.reported.append(type(exception))  # its frames have a connection

    def pay(self, session, amount=None, reference=None):
        session.scalars(select(Payment).limit(1)).all()
        session.add(Payment(amount=request.json["amount"]))
        return "paid", request.json["status"]

    def commit(self):
        answer = self.pay(self.session)
        if answer[1] == 201:
            self.session.commit()
        else:
            self.session.rollback()
        return answer

    def take_step(self):
        with self.idempotence.step("pay", within=self.session) as step:
            if step.first:
                answer = self.pay(self.session)
                if answer[1] != 201:
                    abort(answer[1])
        return "paid", 201

    def send(self, kind, amount, status=201):
        path = {"key": "/payments"}.get(kind, f"/{kind}")
        headers = {"Idempotency-Key": f"{kind}-{amount}"}
        body = {"amount": amount, "status": status}
        return self.app.test_client().post(path, json=body, headers=headers).status_code

    def clear(self):
        self.store.clear("")
        with self.engine.begin() as connection:
            connection.execute(delete(payments))

    def committed(self, amount):
        return sum(each == amount for each in self.amounts())

    def audited(self):
        counts = []
        for engine in (self.engine, self.elsewhere):
            with Session(engine) as session:
                counts.append(session.scalar(select(func.count()).select_from(audits)))
        return counts

    @contextmanager
    def listening(self, to, name, action):
        self.engine.dispose()  # and connect again
        targets = {"session": self.session.session_factory, "engine": self.engine}
        target = targets.get(to, self.engine.pool)
        acting = []

        def act(*arguments, **more):
            if not acting:
                acting.append(1)
                try:
                    ACTIONS[action](self, to, name, arguments)
                finally:
                    acting.clear()

        events.listen(target, name, act)
        try:
            yield
        finally:
            events.remove(target, name, act)
            self.remove()
            if self.engine.pool.checkedout():
                gc.collect()  # connections of a session that could not be closed
            self.engine.dispose()


def do_not_sync(connection, _):
    connection.execute("PRAGMA synchronous = OFF")


def execute(site, to, name, arguments, statement):
    first = arguments[0]
    if to == "pool":
        cursor = first.cursor()
        cursor.execute(statement)
        cursor.close()
        first.commit()
    elif to == "engine":
        connection = first.connection if name == "handle_error" else first
        connection.exec_driver_sql(statement)
    elif name == "after_begin":
        arguments[2].exec_driver_sql(statement)
    else:
        session = first if isinstance(first, Session) else first.session
        session.execute(text(statement))


def reads(site, *given):
    execute(site, *given, "SELECT 1")


def writes(site, *given):
    execute(site, *given, "INSERT INTO audits (note) VALUES ('x')")


def raises(*_):
    raise ListenerError


def commits_elsewhere(site, *_):
    with site.elsewhere.begin() as connection:
        connection.execute(insert(audits).values(note="x"))


def writes_to_another_bind(site, *_):
    statement = insert(audits).values(note="x")
    site.session().execute(statement, bind_arguments={"bind": site.elsewhere})


ACTIONS = {
    "reads": reads,
    "writes": writes,
    "raises": raises,
    "commits elsewhere": commits_elsewhere,
    "writes to another bind": writes_to_another_bind,
}

OF_GUARDS = {"savepoint", "rollback_savepoint", "release_savepoint"}
"""Events of the guard's own savepoint, which a view without one does not have."""


def faults_at(site, to, name, kind, status):
    """Return each action at an event that ends otherwise behind a guard than without one."""
    found = {}
    for number, action in enumerate(ACTIONS):
        # A write at the end of a transaction begins another one, which nothing ends.
        is_endless = name == "after_transaction_end" and "write" in action
        if not is_endless and (action != "writes to another bind" or to == "session"):
            fault = _fault(site, to, name, action, kind, status, 10 * (number + 1))
            if fault:
                found[action] = fault
    return found


def _sent(site, to, name, action, kind, status, amount):
    """Return the answer, the rows and the audits of a request, and whether its error was sent."""
    site.clear()
    before = site.audited()
    site.reported.clear()
    with site.listening(to, name, action):
        answer = site.send(kind, amount, status)
    made = [new - old for new, old in zip(site.audited(), before, strict=True)]
    is_reported = ListenerError in site.reported
    return answer, site.committed(amount), made, is_reported


def _fault(site, to, name, action, kind, status, amount):
    bare = _sent(site, to, name, action, "bare", status, amount)
    guarded = _sent(site, to, name, action, kind, status, amount + 1)
    answer, rows, made, is_reported = guarded
    then = site.send(kind, amount + 1, 201), site.committed(amount + 1)
    seen = f"{bare} without a guard, {guarded} with one, then {then}"
    is_success = answer == 201
    if is_success != (rows == 1) or (status != 201 and rows):
        return f"the answer lies: {seen}"
    if status == 201 and then != (201, 1):
        return f"the key is stuck: {seen}"
    if name in OF_GUARDS:
        return ""
    if action == "writes to another bind" and bare[2][1]:  # which cannot be one step
        return f"half is committed: {seen}" if is_success or any(made) else ""
    if bare[1] != rows:
        return f"the guard refuses: {seen}"
    if made[1] < min(1, bare[2][1]):
        return f"a write is lost: {seen}"
    if action == "raises" and is_success and bare[3] and not is_reported:
        return f"the error vanishes: {seen}"
    return ""
