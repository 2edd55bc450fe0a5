"""Cooperative workers: a keeper that is a greenlet, locks that were made before the patch.

Needs gevent, which is in the dependency group of that name; without it the tests are left out.
"""

from collections import Counter

import pytest
from helpers.servers.faults import Proxy
from helpers.servers.processes import all_at_once
from helpers.servers.workers import Operation, Service
from proofs.lifecycle.test_process_exit import writes_what_is_pending

from flask_idempotence.stores import open_store

pytestmark = pytest.mark.gunicorn


@pytest.mark.parametrize("extra", [("--preload",), ()], ids=["preloaded", "patched first"])
def test_gevent_workers_run_a_request_once_and_keep_its_lease(redis_server, extra):
    options = {"worker_class": "gevent", "extra": extra}
    with Service(redis_server, lease=2.5, **options) as service:
        operation = Operation(service, "lock", "/lock", plans=["0.5"])
        answers = all_at_once([operation.post] * 32)
        assert Counter(answer.status for answer in answers) == {201: 1, 409: 31}
        assert operation.runs == 1
        different = [Operation(service, name, "/lock").post for name in "ab"]
        # Longer than the lease: what turns the late ones away is one that was renewed.
        slow = Operation(service, "slow", "/lock", plans=["4"])
        answers = all_at_once([*different, *[slow.post] * 8])
        assert [answer.status for answer in answers[:2]] == [201, 201]
        assert Counter(answer.status for answer in answers[2:]) == {201: 1, 409: 7}


def test_a_gevent_worker_that_is_stopped_writes_what_is_pending(tmp_path, redis_server, redis_url):
    with Proxy(redis_server) as proxy:
        writes_what_is_pending(tmp_path, proxy, open_store(redis_url, {}), worker_class="gevent")
