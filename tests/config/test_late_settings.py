"""Settings that are changed after `init_app`: at which guarded request each is reported."""

import pytest
from helpers.apps import make_app

from flask_idempotence import no_repeat_submit, one_time_token
from flask_idempotence.engine.engine import LATE_SETTINGS_EVERY


@pytest.fixture
def post():
    """Send so many requests, each to another path, and to a view without a guard as well."""
    app = make_app()
    app.add_url_rule("/raw/<int:n>", "raw", lambda n: "raw", methods=["POST"])
    app.add_url_rule(
        "/<int:n>", "guarded", no_repeat_submit(60)(lambda n: "done"), methods=["POST"]
    )
    client, numbers = app.test_client(), iter(range(1_000))

    def send(times):
        for _ in range(times):
            n = next(numbers)
            assert client.post(f"/raw/{n}").status_code == 200
            assert client.post(f"/{n}").status_code == 200

    send.app = app
    return send


def reports(caplog):
    return [each.getMessage() for each in caplog.records if "changed after" in each.getMessage()]


def test_a_change_before_the_first_request_is_reported_at_that_one(post, caplog):
    post.app.config["IDEMPOTENCE_LEASE"] = 5
    post(1)
    assert len(reports(caplog)) == 1
    post(2 * LATE_SETTINGS_EVERY)
    assert len(reports(caplog)) == 1


@pytest.mark.parametrize("seen", [1, 2, 40, 64])
def test_a_later_change_is_reported_once_within_64_guarded_requests(post, caplog, seen):
    assert LATE_SETTINGS_EVERY == 64
    post(seen)
    post.app.config["IDEMPOTENCE_LEASE"] = 5
    post(64 - seen)
    assert reports(caplog) == []
    post(1)
    (report,) = reports(caplog)
    assert "IDEMPOTENCE_LEASE" in report
    post(2 * 64)
    assert len(reports(caplog)) == 1


def test_each_later_change_has_a_report_of_its_own(post, caplog):
    post(1)
    for name in ("IDEMPOTENCE_LEASE", "IDEMPOTENCE_MAX_HOLD"):
        post.app.config[name] = 5
        post(64)
        assert name in reports(caplog)[-1]
    assert len(reports(caplog)) == 2


def test_guards_of_all_modes_count_together(post, caplog):
    view = one_time_token()(lambda: "done")
    post.app.add_url_rule("/token", "token", view, methods=["POST"])
    post(1)
    post.app.config["IDEMPOTENCE_LEASE"] = 5
    client = post.app.test_client()
    assert {client.post("/token").status_code for _ in range(63)} == {400}
    assert reports(caplog) == []
    post(1)
    assert len(reports(caplog)) == 1
