"""The application behind nginx, for `gunicorn --config gunicorn.conf.py wsgi:app`."""

from shop import app  # your application with its guards; or: app = create_app()
from werkzeug.middleware.proxy_fix import ProxyFix

# The guest's address and scheme, from the headers that nginx.conf replaces.
app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1, x_proto=1)

# An application that has no guards yet gets them here: docs/how-to/existing-application.md.
