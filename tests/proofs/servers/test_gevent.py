"""A cooperative worker that is stopped; `test_wsgi_servers.py` has the others, under load.

Needs gevent: `uv run --group gevent pytest -m gevent`.
"""

import itertools
import sys

import pytest
from helpers import ROOT
from helpers.servers.processes import all_at_once, environment, run_to_end
from helpers.servers.workers import Operation, Service
from proofs.lifecycle.test_process_exit import writes_what_is_pending

from flask_idempotence.stores import open_store

pytestmark = pytest.mark.gevent


def test_a_gevent_worker_that_is_stopped_writes_what_is_pending(tmp_path, proxy, redis_url):
    writes_what_is_pending(tmp_path, proxy, open_store(redis_url, {}), worker_class="gevent")


REPEATS = 16


@pytest.mark.parametrize("patched", ["before", "after"])
def test_repeats_that_wait_in_a_gevent_worker_outlive_leases_and_run_once(redis_server, patched):
    """Gunicorn patches its workers after the application is loaded, if it preloads that."""
    extra = ["--preload"] if patched == "after" else []
    options = {"extra": extra, "worker_class": "gevent", "workers": 1}
    with Service(redis_server, lease=1, **options) as service:
        operation = Operation(service, patched, "/patient", ["3"])
        answers = all_at_once([operation.post] * REPEATS)
        assert [answer.status for answer in answers] == [201] * REPEATS
        assert operation.runs == 1
        assert sum(answer.replayed for answer in answers) == REPEATS - 1
        assert not service.effects.exists("lost")


@pytest.mark.parametrize(
    ("driver", "patched"),
    [
        *itertools.product(["redis", "pg8000", "pymysql"], ["before", "after"]),
        ("psycopg", "before"),  # patched later, its waits stop the worker
    ],
)
def test_a_wait_for_the_store_lets_other_greenlets_run_as_the_page_says(driver, patched):
    command = [sys.executable, "-m", "proofs.servers.ticks", patched, driver]
    ended = run_to_end(command, env=environment())
    assert ended.returncode == 0, ended.stderr
    took, ran = map(float, ended.stdout.split())
    assert took > 1
    assert ran > took / 2


UNDER_GEVENT = """
import gevent.monkey
gevent.monkey.patch_all()
import sys
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.timed
def test_every_wait_for_redis_ends_under_gevent_as_well():
    """The same tests as of threads, in a process that was patched before they were loaded."""
    module = ROOT / "tests" / "proofs" / "topologies" / "test_every_wait_ends.py"
    options = ["-q", "-n", "0", "-m", "topology", "-p", "no:cacheprovider", str(module)]
    command = [sys.executable, "-c", UNDER_GEVENT, *options]
    ended = run_to_end(command, env=environment(), cwd=ROOT, timeout=600)
    assert ended.returncode == 0, ended.stdout
    assert " passed" in ended.stdout
