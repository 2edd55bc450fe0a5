"""Gunicorn for an application with guards: `gunicorn --config gunicorn.conf.py wsgi:app`."""

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
