"""Applications for the doctor."""

import dataclasses

from flask_idempotence.cli.doctor import CHECKS, admit
from flask_idempotence.cli.findings import Severity
from helpers.apps import make_app

GOOD = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"


def production_app(**settings):
    """Return an application that is neither debugged nor tested."""
    return make_app(**{"SECRET_KEY": GOOD, "TESTING": False, **settings})


def severity(name, app, *, workers=None, **facts):
    """Return the severity of what one check finds; facts replace what the servers say."""
    patient = admit(app, workers=workers)
    if facts:
        servers = [dataclasses.replace(each, **facts) for each in patient.servers]
        patient = dataclasses.replace(patient, servers=servers)
    [finding] = CHECKS[name](patient)
    if finding.severity is not Severity.OK:
        assert finding.reason
        assert finding.remedy
    return finding.severity.name.lower()
