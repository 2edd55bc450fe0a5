"""Log records that say which guarded request they belong to."""

import io
import logging
import logging.handlers

import pytest
from helpers.apps import Site, make_app

from flask_idempotence import current_guard, idempotent, no_repeat_submit
from flask_idempotence.logs import LogFilter

business = logging.getLogger("tested.business")


@pytest.fixture
def written():
    """What is logged, with the filter on the handler as an application would have it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(LogFilter())
    handler.setFormatter(logging.Formatter("%(idempotence_mode)s %(idempotence_key)s %(message)s"))
    shop, before = logging.getLogger("tested"), logging.getLogger("tested").level
    shop.addHandler(handler)
    shop.setLevel(logging.INFO)
    yield lambda: stream.getvalue().splitlines()
    shop.removeHandler(handler)
    shop.setLevel(before)


def test_what_a_guarded_view_logs_bears_its_key(written):
    """So does what is logged by functions that it calls, and by hooks after it."""
    app, keys = make_app(), []

    @app.post("/payments")
    @idempotent
    def pay():
        keys.append(current_guard.key)
        logging.getLogger("tested.business.bank").info("sent")
        raise ValueError("the bank is closed")

    @app.errorhandler(ValueError)
    def explain(error):
        business.info("explained")
        return "closed", 503

    @app.after_request
    def look(response):
        business.info("looked")
        return response

    app.test_client().post("/payments", headers={"Idempotency-Key": "1"})
    assert written() == [f"key {keys[0]} {text}" for text in ("sent", "explained", "looked")]
    assert len(keys[0]) == 12


def test_the_exception_that_nobody_handles_bears_the_key(caplog):
    app = make_app(TESTING=False, PROPAGATE_EXCEPTIONS=False)
    caplog.handler.addFilter(filter_ := LogFilter())

    @app.post("/")
    @no_repeat_submit
    def view():
        raise ValueError

    assert app.test_client().post("/").status_code == 500
    caplog.handler.removeFilter(filter_)
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.idempotence_mode == "lock"
    assert len(record.idempotence_key) == 12


def test_outside_a_guarded_view_there_is_a_dash(written):
    app = make_app()

    @app.post("/")
    def view():
        business.info("unguarded")
        return "done"

    business.info("outside")
    app.test_client().post("/")
    with app.app_context():
        business.info("in a command")
    assert written() == [f"- - {text}" for text in ("outside", "unguarded", "in a command")]


def test_it_filters_nothing_out_and_its_default_may_be_another_one():
    record = logging.makeLogRecord({"name": "shop"})
    assert LogFilter("another", default="").filter(record)
    assert (record.idempotence_key, record.idempotence_mode) == ("", "")


def test_behind_a_queue_the_marks_of_the_request_stay():
    record = logging.makeLogRecord({})
    Site(lambda: str(LogFilter().filter(record)), "lock").submit()
    LogFilter().filter(record)  # by the handler in the queue's thread
    assert record.idempotence_mode == "lock"
