"""Suites of other projects, and what in them differs by their own doing."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    """Where a suite comes from, and how it runs."""

    needs: str = ""
    """What its tests need beside the project."""

    repository: str = ""
    """Its repository at GitHub, where the distribution on PyPI has no tests."""

    requirements: str = ""
    """A file of pinned requirements, of an application that is no package."""

    python: str = ""
    """The version of Python, if it is not that of the command."""

    tests: str = ""
    """What pytest is given; by default the directory of the tests."""

    variables: str = ""
    """Environment; `{url}`, `{host}`, `{port}`, `{database}` of PostgreSQL, `{redis_port}`."""

    files: tuple[tuple[str, str], ...] = ()
    """Files that the project's own build makes, and that its tests need: paths and texts."""


SECURITY = "flask-babel flask-mail flask-sqlalchemy flask-sqlalchemy-lite argon2-cffi authlib "
SECURITY += "bcrypt cbor2 cryptography freezegun humanize mongoengine mongomock nh3 peewee "
SECURITY += "phonenumberslite qrcode requests sqlalchemy-utils webauthn zxcvbn"
ADMIN = "sqlalchemy<2.1 wtforms<3.2 flask-sqlalchemy flask-sqlalchemy-lite sqlalchemy-utils "
ADMIN += "sqlalchemy-citext colour arrow "
ADMIN += "email-validator peewee wtf-peewee pillow tablib flask-babel asgiref beautifulsoup4"
API = "openapi-spec-validator asgiref pyyaml pydantic email-validator flask-marshmallow"
NOTIFY = {"requirements": "requirements_for_test.txt", "python": "3.13"}

SUITES = {
    "Flask": Suite("asgiref greenlet python-dotenv"),
    "Flask-HTTPAuth": Suite("asgiref"),
    "Flask-WTF": Suite("flask-babel email-validator"),
    "Flask-Login": Suite("asgiref blinker semantic_version"),
    "flask-smorest": Suite("PyYAML"),
    "Flask-JWT-Extended": Suite("cryptography python-dateutil"),
    "flask-classful": Suite("marshmallow", "pallets-eco/flask-classful"),
    "APIFlask": Suite(API),
    "Flask-Cors": Suite("packaging"),
    "flask-marshmallow": Suite("flask-sqlalchemy marshmallow-sqlalchemy"),
    "Flask-RESTX": Suite("Faker blinker tzlocal pytest-flask pytest-mock pytest-benchmark pytz"),
    "Flask-Security": Suite(
        SECURITY,
        "pallets-eco/flask-security",
        tests="tests/test_unified_signin.py tests/test_two_factor.py tests/test_recoverable.py "
        "tests/test_registerable.py tests/test_confirmable.py tests/test_changeable.py "
        "tests/test_csrf.py tests/test_recovery_codes.py tests/test_change_username.py",
    ),
    "Flask-AppBuilder": Suite(
        "parameterized Pillow authlib requests hiro",
        "dpgaspar/Flask-AppBuilder",
        variables="SQLALCHEMY_DATABASE_URI=sqlite:///application.db",
    ),
    "Flask-Admin": Suite(ADMIN, "pallets-eco/flask-admin"),
    "Flask-SeaSurf": Suite("mock", "maxcountryman/flask-seasurf", tests="test_seasurf.py"),
    "Flask-Limiter": Suite(
        "hiro pytest-mock pymemcache asgiref pytest-cov flask-restful flask-restx pymongo",
        "alisaifee/flask-limiter",
    ),
    "Flask-Caching": Suite("pytest-asyncio pytest-xprocess asgiref", "pallets-eco/flask-caching"),
    "flask-openapi3": Suite("pyyaml", "luolingchun/flask-openapi3"),
    "flask-restless-ng": Suite(
        "flask-sqlalchemy python-dateutil jsonschema pytest-cov", "mrevutskyi/flask-restless-ng"
    ),
    "authlib": Suite(
        "flask-sqlalchemy cachelib httpx requests joserfc pycryptodomex pytest-asyncio pytest-env",
        "authlib/authlib",
        tests="tests/flask",
    ),
    "httpbin": Suite("six", "psf/httpbin"),
    "ihatemoney": Suite("pytest-flask", "spiral-project/ihatemoney", tests="ihatemoney/tests"),
    "alerta": Suite(
        "psycopg2-binary requests_mock lxml pysaml2 python-dotenv",
        "alerta/alerta",
        "requirements.txt",
        variables="DATABASE_URL={url}",
    ),
    "zou": Suite(
        "fakeredis freezegun mixer prometheus-flask-exporter",
        "cgwire/zou",
        variables="DB_HOST={host} DB_PORT={port} DB_DATABASE={database} DB_USERNAME=postgres "
        "KV_PORT={redis_port}",
        tests="tests/blueprints",
    ),
    "iib": Suite(
        "",
        "release-engineering/iib",
        "requirements-test.txt",
        "3.12",
        tests="tests/test_web",
        variables="IIB_TESTING=true",
    ),
    "strawberry": Suite(
        "asgiref pytest-asyncio pytest-mock pytest-snapshot pytest-emoji pytest-codspeed "
        "inline-snapshot email-validator pydantic rich typer libcst pygments",
        "strawberry-graphql/strawberry",
        python="3.11",
        tests="tests/http tests/views -k Flask",
    ),
    "flask-parameter-validation": Suite(
        "", "Ge0rg3/flask-parameter-validation", tests="flask_parameter_validation/test"
    ),
    "flask-resty": Suite("pyjwt pytest-mock marshmallow<4", "4Catalyzer/flask-resty"),
    "spectree": Suite(
        "asgiref pydantic email-validator falcon starlette httpx syrupy pytest-asyncio",
        "0b01001001/spectree",
        tests="tests/test_plugin_flask.py tests/test_plugin_flask_blueprint.py "
        "tests/test_plugin_flask_view.py",
    ),
    "flask-rebar": Suite("parametrize pytest-order", "plangrid/flask-rebar"),
    "anitya": Suite(
        "mock vcrpy requests requests-oauthlib psycopg2-binary",
        "fedora-infra/anitya",
        tests=" ".join(
            f"anitya/tests/test_{name}.py"
            for name in ("flask", "flask_admin", "flask_api", "flask_api_v2", "authentication")
        ),
    ),
    "notifications-admin": Suite(
        "",
        "alphagov/notifications-admin",
        **NOTIFY,
        tests="-p no:warnings "
        + " ".join(
            f"tests/app/main/views/{name}"
            for name in (
                *("service_settings/test_service_settings.py", "organisations"),
                *("test_manage_users.py", "test_feedback.py"),
            )
        ),
        files=(("app/version.py", '__git_commit__ = __time__ = ""\n'),),
    ),
    "notifications-api": Suite(
        "",
        "alphagov/notifications-api",
        **NOTIFY,
        variables="SQLALCHEMY_DATABASE_URI={url}",
        tests=" ".join(
            f"tests/app/{name}"
            for name in (
                *("service/test_rest.py", "user", "organisation/test_rest.py"),
                *("template/test_rest.py", "job/test_rest.py", "email_branding"),
                *("template_folder", "v2/notifications/test_post_notifications.py"),
            )
        ),
    ),
}
"""By the name on PyPI, or that of the repository."""
CAUSES = {
    r"Flask, .*test_client_json_no_app_context": "it counts the contexts that were pushed",
    r"Flask, twice, replay.*test_session_accessed": "it looks into the session of the view's run",
    r"Flask, .*test_max_content_length .*no replay": "its body is refused as too long before the "
    "view, and an error handler makes a 200 of the 413",
    r"Flask, made, .*test_app_freed": "application and extension refer to each other",
    r"Flask, made, .*TestRoutes": "it lists all routes, and the extension adds one",
    r"Flask, made, .*test_templates_auto_reload": "it sets an option of Jinja after init_app",
    r"flask-classful, .*test_rule_options": "it records all rules, and the extension adds one",
    r"Flask-WTF, .*test_validate_error_logged": "it counts log lines of a check before the view",
    r"ihatemoney, .*/delete, no replay: 302, 303": "a url_value_preprocessor refuses the second: "
    "the first has deleted its project",
    r"notifications-admin, .*POST /verify, no replay": "its context has the user whom the first "
    "request signs in, in g",
    r"Flask-Security, .*/(change|reset/\S+), no replay": "a new password ends the session",
    r"Flask-Security, .*test_csrf::test_cp_": "it counts checks that come before the view",
    r"Flask-Security, .*test_replace_send_code": "a 500 frees the key, and the second run takes "
    "another element of a list of one",
    r"flask-resty, .*test_auth::test_error_": "a 403 frees the key, and it counts runs",
    r"anitya, .*Post\w+::test_project_\w+_error": "a 409 or 500 frees the key, and it counts runs",
    r"authlib, .*test_userinfo.py::test_post": "its context has the first request's token in g",
    r"alerta, .*differs: \['x-request-id'\]": "an after_request function gives each answer an ID",
    r"notifications.*differs: \[('content-security-policy', )?'x-b3-sp\w+', 'x-b3-tr\w+'\]": (
        "after_request functions give each answer a trace, and a nonce in its policy"
    ),
    r"Flask-WTF, .*x-csrf-token": "an after_request function signs the time into a header",
}
"""By patterns of suite, variant and test: why a result differs, outside of the extension."""
