"""A cooperative worker that is stopped; `test_wsgi_servers.py` has the others, under load.

Needs gevent, which is in the dependency group of that name; without it the test is left out.
"""

import pytest
from proofs.lifecycle.test_process_exit import writes_what_is_pending

from flask_idempotence.stores import open_store


@pytest.mark.gunicorn
def test_a_gevent_worker_that_is_stopped_writes_what_is_pending(tmp_path, proxy, redis_url):
    writes_what_is_pending(tmp_path, proxy, open_store(redis_url, {}), worker_class="gevent")
