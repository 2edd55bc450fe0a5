"""A cooperative worker that is stopped; `test_wsgi_servers.py` has the others, under load.

Needs gevent: `uv run --group gevent pytest -m gevent`.
"""

import pytest
from proofs.lifecycle.test_process_exit import writes_what_is_pending

from flask_idempotence.stores import open_store

pytestmark = [pytest.mark.gevent, pytest.mark.gunicorn]


def test_a_gevent_worker_that_is_stopped_writes_what_is_pending(tmp_path, proxy, redis_url):
    writes_what_is_pending(tmp_path, proxy, open_store(redis_url, {}), worker_class="gevent")
