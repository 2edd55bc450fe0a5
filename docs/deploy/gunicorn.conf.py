"""Gunicorn for an application with guards: `gunicorn --config gunicorn.conf.py wsgi:app`."""

import os

bind = "127.0.0.1:8000"
workers = 2  # processes: they share their claims in the store
worker_class = "gthread"
threads = 16  # a repeat that waits (`wait=`) occupies one
timeout = 30  # ends a worker that hangs; above your slowest view if worker_class is "sync"
graceful_timeout = 60  # above your slowest view: a reload or a stop lets it finish
accesslog = "-"
logconfig_dict = {  # all lines through one handler, with time, process and level
    "disable_existing_loggers": False,
    "loggers": {name: {"propagate": True} for name in ("gunicorn.error", "gunicorn.access")},
}


def child_exit(server, worker):  # noqa: ARG001 - Gunicorn passes both
    """Let the metrics forget a worker that ended, with its pending settlements."""
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        from prometheus_client import multiprocess  # noqa: PLC0415 - of the extra `prometheus`

        multiprocess.mark_process_dead(worker.pid)
