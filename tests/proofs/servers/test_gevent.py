"""Cooperative workers: a keeper that is a greenlet, locks that were made before the patch.

Needs gevent, which is in the dependency group of that name; without it the tests are left out.
"""

import pytest
from helpers.servers.faults import Proxy
from helpers.servers.processes import all_at_once
from proofs.lifecycle.test_process_exit import writes_what_is_pending
from proofs.servers.test_processes import Service

from flask_idempotence.stores import open_store

pytestmark = pytest.mark.gunicorn


@pytest.mark.parametrize("extra", [("--preload",), ()], ids=["preloaded", "patched first"])
def test_gevent_workers_run_a_request_once_and_keep_its_lease(tmp_path, redis_server, extra):
    with Service(
        tmp_path, redis_server, worker_class="gevent", extra=extra, INTERVAL="2.5"
    ) as service:
        codes = all_at_once([lambda: service.post("/lock?sleep=0.5")] * 32)
        assert (codes.count(200), codes.count(409)) == (1, 31)
        assert service.count("lock") == 1
        different = [lambda number=number: service.post("/lock", {"a": number}) for number in "ab"]
        # Longer than the interval: what turns the late ones away is a lease that was renewed.
        slow = [lambda: service.post("/lock?sleep=4", {"a": "slow"})] * 8
        codes = all_at_once([*different, *slow])
        assert codes[:2] == [200, 200]
        assert (codes[2:].count(200), codes[2:].count(409)) == (1, 7)


def test_a_gevent_worker_that_is_stopped_writes_what_is_pending(tmp_path, redis_server, redis_url):
    with Proxy(redis_server) as proxy:
        writes_what_is_pending(tmp_path, proxy, open_store(redis_url, {}), "gevent")
