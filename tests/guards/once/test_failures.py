"""`once` when the store does not answer, and when the work takes long."""

import pytest
from helpers.apps import no_answer
from helpers.once_operations import OnceApp, elsewhere
from helpers.servers.faults import Proxy

from flask_idempotence import StoreUnavailable, current_guard
from flask_idempotence.testing import record_signals


def behind(proxy, **settings):
    return OnceApp(IDEMPOTENCE_STORAGE_URI=proxy.url, **settings)


def test_a_store_that_is_away_is_an_error_and_nothing_is_done(fresh_redis):
    with Proxy(fresh_redis) as proxy:
        once_app = behind(proxy)
        proxy.refuse()
        with record_signals(once_app.app) as told, pytest.raises(StoreUnavailable) as refused:
            once_app.work()
        assert (refused.value.retry_after, once_app.runs) == (1, 0)
        assert told.names == ["store_failed", "rejected"]
        proxy.accept()
        assert once_app.word() == "first"


def test_where_it_is_allowed_the_work_is_done_unguarded(fresh_redis):
    with Proxy(fresh_redis) as proxy:
        once_app = behind(proxy, IDEMPOTENCE_ON_STORE_ERROR="allow")
        proxy.refuse()
        with record_signals(once_app.app) as told:
            assert once_app.work(result={"unguarded": 1}) == (True, {"unguarded": 1})
        assert told.names == ["store_failed"]
        with once_app.app.app_context(), once_app.once():
            assert current_guard.mode is None
            current_guard.ensure_held()
        proxy.accept()
        assert [once_app.word(), once_app.word()] == ["first", "done"]


def test_until_it_is_finished_the_claim_lives_on():
    once_app = OnceApp()
    once_app.store.complete = no_answer
    assert once_app.work(result="paid") == (True, "paid")
    once_app.pass_time(120)
    assert once_app.word() == "running"
    del once_app.store.complete
    once_app.pass_time(10)
    assert once_app.work() == (False, "paid")


def test_work_that_outlasts_its_lease_is_renewed():
    once_app = OnceApp()
    with once_app.app.app_context(), once_app.once():
        once_app.pass_time(300)
        assert once_app.word() == "running"
    assert once_app.word() == "done"


def test_who_has_slept_past_the_lease_changes_nothing_of_its_successors():
    once_app = OnceApp()
    with record_signals(once_app.app) as told, once_app.app.app_context(), once_app.once() as late:
        once_app.clock.advance(31)
        assert elsewhere(once_app.work, result="of the second") == (True, "of the second")
        late.result = "of the first"
    assert told.names[-1] == "lease_lost"
    assert once_app.work() == (False, "of the second")
