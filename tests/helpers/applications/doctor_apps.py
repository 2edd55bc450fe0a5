"""Applications for the doctor."""

import dataclasses

from flask_idempotence.cli.doctor import collect, examine
from helpers.apps import make_app

GOOD = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"


def production_app(**settings):
    """Return an application that is neither debugged nor tested."""
    return make_app(**{"SECRET_KEY": GOOD, "TESTING": False, **settings})


def names_of(groups):
    return [check.__name__.replace("_", " ") for _, checks in groups for check in checks]


def found_by(name, app, *, workers=None, **facts):
    """Return what one check finds; facts replace what the servers say."""
    context = collect(app, workers=workers)
    if facts:
        servers = [dataclasses.replace(each, **facts) for each in context.servers]
        context = dataclasses.replace(context, servers=servers)
    [finding] = [each for each in examine(context) if each.check == name]
    if finding.severity != "ok":
        assert finding.reason
        assert finding.remedy
    return finding


def severity(name, app, **more):
    return found_by(name, app, **more).severity
