"""Suites of other projects, and what in them differs by their own doing."""

SUITES = {
    "Flask": "asgiref greenlet python-dotenv",
    "Flask-HTTPAuth": "asgiref",
    "Flask-WTF": "flask-babel email-validator",
    "Flask-Login": "asgiref blinker semantic_version",
    "flask-smorest": "PyYAML",
    "Flask-JWT-Extended": "cryptography python-dateutil",
    "flask-classful": "marshmallow",
    "Flask-SeaSurf": "mock",
    "APIFlask": "openapi-spec-validator asgiref pyyaml pydantic email-validator flask-marshmallow",
    "Flask-Cors": "packaging",
    "Flask-RESTX": "Faker blinker tzlocal pytest-flask pytest-mock pytest-benchmark pytz",
    "Flask-Security": "flask-sqlalchemy flask-mailman argon2-cffi bcrypt qrcode zxcvbn babel "
    "flask-babel cryptography authlib requests webauthn phonenumberslite "
    "freezegun email-validator",
    "flask-marshmallow": "flask-sqlalchemy marshmallow-sqlalchemy",
    "Flask-Caching": "pytest-asyncio cachelib pytest-xprocess asgiref",
    "Flask-Limiter": "hiro pytest-mock pymemcache ordered-set rich",
    "Flask-SQLAlchemy": "",
    "webargs": "pytest-asyncio webtest",
    "Flask-Dance": "sqlalchemy flask-sqlalchemy flask-login flask-caching blinker betamax "
    "responses freezegun coverage pytest-mock betamax-matchers",
    "Flask-Admin": "flask-sqlalchemy flask-babel sqlalchemy-utils colour email-validator arrow",
}
"""By the name on PyPI: what else their tests need."""

REPOSITORIES = {
    "flask-classful": "pallets-eco/flask-classful",
    "Flask-SeaSurf": "maxcountryman/flask-seasurf",
    "Flask-Admin": "pallets-eco/flask-admin",
}
"""Those whose distribution has no tests: with a checkout in the directory, they run as well."""

CAUSES = {
    r"Flask, .*test_client_json_no_app_context": "it counts the contexts that were pushed",
    r"Flask, twice, replay.*test_session_accessed": "it looks into the session of the view's run",
    r"flask-classful, .*test_rule_options": "it records all rules, and the extension adds one",
    r"Flask-WTF, .*test_validate_error_logged": "it counts log lines of a check before the view",
    r"Flask-WTF, .*x-csrf-token": "an after_request function signs the time into a header",
}
"""By patterns of suite, variant and test: why a result differs, outside of the extension."""
