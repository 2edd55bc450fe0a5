"""Reports with local variables, as Sentry and structlog make them, show nothing of a request."""

import logging
import sys
import traceback
from pathlib import Path

import pytest
from flask import got_request_exception, jsonify, request
from helpers.apps import bare_app
from helpers.wings import PACKAGE
from sqlalchemy import create_engine, text

from flask_idempotence import (
    Idempotence,
    MemoryStore,
    Refusal,
    SqlStore,
    StoreError,
    current_guard,
    idempotent,
    no_repeat_submit,
    one_time_token,
    store_failed,
)
from flask_idempotence.stores.sql import metadata

SECRETS = [
    "5ecret-body",
    "5ecret-credential",
    "5ecret-key-of-ann",
    "5ecret-answer",
    "203.0.113.77",
]
HEADERS = {"X-Api-Key": "5ecret-credential", "Idempotency-Key": "5ecret-key-of-ann"}


class FailingStore(MemoryStore):
    """A store whose operations fail, in a frame that has their arguments in several forms."""

    failing: frozenset[str] = frozenset()

    def _send(self, name, arguments):
        packed = b"".join(part for part in arguments if isinstance(part, bytes))
        try:
            if packed is not None:
                raise ConnectionResetError
        except OSError as error:
            raise StoreError(f"{name} got no answer", sent=True) from error


def _failing(name):
    def operation(self, *arguments, **named):
        if name in self.failing:
            self._send(name, arguments)
        return getattr(MemoryStore, name)(self, *arguments, **named)

    return operation


for name in ("claim", "renew", "complete", "release", "put_token", "take_token"):
    setattr(FailingStore, name, _failing(name))


class Reports(logging.Handler):
    """Everything that a library for error reports can see, with its local variables."""

    def __init__(self, app):
        super().__init__()
        self.texts, self.operations = [], []
        store_failed.connect(self._failed, app)
        got_request_exception.connect(self._raised, app)
        app.register_error_handler(Refusal, self._refused)

    def add(self, error):
        report = traceback.TracebackException(
            type(error), error, error.__traceback__, capture_locals=True
        )
        self.texts += list(report.format())
        here = (
            (frame, line)
            for frame, line in traceback.walk_stack(sys._getframe())
            if Path(frame.f_code.co_filename).is_relative_to(PACKAGE)
        )
        self.texts += traceback.StackSummary.extract(here, capture_locals=True).format()

    def emit(self, record):
        self.texts.append(record.getMessage())
        if record.exc_info:
            self.add(record.exc_info[1])

    def _failed(self, _, error, operation, **__):
        self.operations.append(operation)
        self.add(error)

    def _raised(self, _, exception):
        self.add(exception)

    def _refused(self, error):
        self.add(error)
        return error.get_response()

    @property
    def text(self):
        return "".join(self.texts)

    def showing(self, *secrets):
        """Return the lines that show a secret."""
        return [line for line in self.text.splitlines() if any(map(line.__contains__, secrets))]


@pytest.fixture
def report():
    """A function that begins the reports of an application."""
    logger, begun = logging.getLogger("flask_idempotence"), []

    def report(app):
        begun.append(Reports(app))
        logger.addHandler(begun[-1])
        return begun[-1]

    yield report
    for reports in begun:
        logger.removeHandler(reports)


def guarded_app(report, **settings):
    app, store, idempotence = bare_app(TESTING=False, **settings), FailingStore(), Idempotence()
    idempotence.init_app(app, store=store)
    reports = report(app)

    def add(url, guard, then=lambda: None):
        def view():
            store.failing = frozenset(request.args.getlist("then"))
            then()
            return jsonify(said="5ecret-answer"), int(request.args.get("status", 200))

        app.add_url_rule(url, url, guard(view), methods=["POST"])

    def once():
        with idempotence.once("mail", request.headers["Idempotency-Key"]) as operation:
            operation.result = ["5ecret-answer"]

    add("/lock", no_repeat_submit(60))
    add("/key", idempotent)
    add("/held", idempotent, current_guard.ensure_held)
    add("/token", one_time_token(restore_on_failure=True))
    add("/once", lambda view: view, once)
    app.add_url_rule("/form", "form", idempotence.issue_token)
    return app, store, reports


FAILURES = [
    ("/lock", "claim", "", 200, 503),
    ("/lock", "", "renew", 200, 200),
    ("/lock", "", "release", 422, 422),
    ("/key", "claim", "", 200, 503),
    ("/key", "", "complete", 200, 200),
    ("/key", "", "release", 503, 503),
    ("/held", "", "renew", 200, 503),
    ("/token", "take_token", "", 200, 503),
    ("/token", "", "put_token", 422, 422),
    ("/once", "", "claim", 200, 503),
    ("/once", "", "complete", 200, 200),
]
"""The operation that fails before a view or then, what the view answers, and what is sent."""


@pytest.mark.parametrize("policy", ["reject", "allow"])
@pytest.mark.parametrize("debug", [False, True], ids=["production", "debug"])
@pytest.mark.parametrize(("path", "before", "then", "says", "status"), FAILURES)
def test_no_report_of_a_failing_store_shows_a_secret(
    report, path, before, then, says, status, debug, policy
):
    app, store, reports = guarded_app(report, IDEMPOTENCE_ON_STORE_ERROR=policy)
    app.debug = debug
    client = app.test_client()
    token = client.get("/form").text
    store.failing = frozenset([before])
    answer = client.post(
        f"{path}?then={then}&status={says}",
        json={"card": "5ecret-body"},
        headers={**HEADERS, "Idempotence-Token": token},
        environ_overrides={"REMOTE_ADDR": "203.0.113.77"},
    )
    store.failing = frozenset()
    is_allowed = policy == "allow" and status == 503 and (before or path in {"/held", "/once"})
    assert answer.status_code == (200 if is_allowed else status)
    assert reports.operations[:1] == [before or then]
    assert "got no answer" in reports.text
    assert reports.showing(*SECRETS, token) == []


def test_no_report_of_a_token_that_cannot_be_issued_shows_it(report):
    app, store, reports = guarded_app(report)
    store.failing = frozenset(["put_token"])
    assert app.test_client().get("/form").status_code == 503
    assert "got no answer" in reports.text
    assert "text='" not in reports.text


def test_no_report_of_a_failing_database_shows_a_record(report, tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/store.db")
    metadata.create_all(engine)
    store = SqlStore(engine)
    app = bare_app(TESTING=False)
    Idempotence(app, store=store)
    reports = report(app)

    def view():
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE flask_idempotence"))
        return jsonify(said="5ecret-answer")

    app.add_url_rule("/key", "key", idempotent(view), methods=["POST"])
    answer = app.test_client().post("/key", json={"card": "5ecret-body"}, headers=HEADERS)
    assert answer.headers["Idempotent-Stored"] == "false"
    assert "no such table" in reports.text
    assert reports.showing(*SECRETS) == []
