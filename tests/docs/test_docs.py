"""The documentation: its code runs, and its reference says what the package says."""

import ast
import dataclasses
import json
import logging
import os
import re
import sys

import pytest
from blinker import NamedSignal
from helpers.apps import make_app
from helpers.http_transcripts import CONTINUES, blocks, namespace
from helpers.public_api import FILE as PUBLIC_API
from helpers.repository import (
    CHINESE,
    PAGES,
    REFERENCE,
    REFUSALS,
    ROOT,
    headings,
    section,
    text_of,
)
from helpers.servers.processes import run_to_end

import flask_idempotence
from flask_idempotence import (
    Idempotence,
    Running,
    client,
    no_repeat_submit,
    one_time_token,
    testing,
)
from flask_idempotence.config.settings import DUPLICATES, SETTINGS
from flask_idempotence.testing import token_for


def examples():
    return [
        pytest.param(page, chain, id=f"{page.relative_to(ROOT)}:{line_of(page, chain[0])}")
        for page in PAGES
        for chain in (
            [block for block in chain if block.language == "python"]
            for chain in blocks(text_of(page))
        )
    ]


def line_of(page, block):
    return text_of(page)[: block.start].count("\n")


FILE = re.compile(r"# (\w+\.py)\n")


def is_of_files(chain):
    """Whether the blocks are files for pytest: each begins with its name."""
    return all(FILE.match(block.text) for block in chain)


def is_chinese(page):
    """Whether its code is that of an English page, but for texts: see test_chinese_pages."""
    return page == CHINESE or page.parent.name == "zh"


@pytest.mark.parametrize(
    "chain",
    [
        pytest.param(example.values[1], id=example.id)
        for example in examples()
        if is_of_files(example.values[1]) and not is_chinese(example.values[0])
    ],
)
def test_the_files_of_a_page_pass_as_tests(chain, tmp_path, redis_url):
    for block in chain:
        (tmp_path / FILE.match(block.text)[1]).write_text(block.text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-W", "error", "--strict-markers"]
    command += ["-p", "no:cacheprovider"]
    done = run_to_end(command, cwd=tmp_path, env={**os.environ, "TEST_REDIS_URL": redis_url})
    tests = sum(block.text.count("def test_") for block in chain)
    assert f" {tests} passed in " in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("page", "chain"), [example for example in examples() if not is_of_files(example.values[1])]
)
def test_every_example_runs(monkeypatch, page, chain):
    # Pytest's handlers would keep log lines from where a reader's run writes them: to stderr.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    names = namespace()
    for block in chain:
        lines_before = "\n" * line_of(page, block)
        compiled = compile(lines_before + block.text, str(page), "exec")
        if not is_chinese(page):
            exec(compiled, names)


def test_there_are_examples_and_none_is_overlooked():
    fences = sum(len(re.findall(r"(?m)^\s*(?:`{3,}|~{3,})\s*py", text_of(page))) for page in PAGES)
    assert sum(len(example.values[1]) for example in examples()) == fences > 20
    marks = sum(len(re.findall(rf"(?m)^{CONTINUES}$", text_of(page))) for page in PAGES)
    chained = sum(len(example.values[1]) - 1 for example in examples())
    explained = text_of(ROOT / "docs" / "reports" / "test-the-package.md").count(CONTINUES)
    assert marks - explained == chained


def test_the_settings_and_their_page_agree():
    page = ROOT / "docs" / "settings.md"
    written = re.findall(r"(?m)^### (\w+)\n\nDefault: `(.+)`$", text_of(page))
    documented = {name: repr(ast.literal_eval(default)) for name, default in written}
    assert len(documented) == len(written)
    assert headings(page, 3) == [name for name, _ in written]
    assert documented == {
        name: repr(
            field.default
            if field.default_factory is dataclasses.MISSING
            else field.default_factory()
        )
        for name, field in SETTINGS.items()
    }


def test_no_page_names_a_setting_that_does_not_exist():
    named = {name for page in PAGES for name in re.findall(r"IDEMPOTENCE_[A-Z_]+", text_of(page))}
    misspelt_on_purpose = {"IDEMPOTENCE_LOCK_INTERVALL", "IDEMPOTENCE_REDIS_URL"}
    servers = {
        f"IDEMPOTENCE_TEST_{name}"
        for name in ("REDIS", "PGBOUNCER", "POSTGRES", "MARIADB", "SOAK")
    }
    assert named - misspelt_on_purpose - servers == set(SETTINGS)


@pytest.mark.parametrize("error", REFUSALS.values(), ids=REFUSALS)
def test_every_refusal_is_documented(error):
    page = REFERENCE / "errors.md"
    start = f'`{error.__name__}`, {error.code}, "{error.title}"'
    assert section(page, error.slug).lstrip().startswith(start)
    assert f"| [`{error.slug}`](#{error.slug}) | `{error.__name__}` | {error.code} |" in text_of(
        page
    )
    replaced = "`IDEMPOTENCE_DUPLICATE_STATUS` replaces the status." in section(page, error.slug)
    assert replaced == (error.slug in DUPLICATES)
    if error().retry_after is not None:
        assert f"`Retry-After: {error().retry_after}`" in section(page, error.slug)


def test_the_page_of_errors_names_no_other_and_every_exception():
    page = REFERENCE / "errors.md"
    assert headings(page, 2)[-len(REFUSALS) - 1 :] == [*REFUSALS, "Other exceptions"]
    running = f'`Running`, {Running.code}, "{Running.title}"'
    assert running in section(page, Running.slug)
    for name in flask_idempotence.__all__:
        exported = getattr(flask_idempotence, name)
        if isinstance(exported, type) and issubclass(exported, Exception):
            assert f"`{name}`" in text_of(page)


def test_every_signal_and_its_arguments_are_documented():
    sent = json.loads(text_of(PUBLIC_API))["signals"]
    page = REFERENCE / "api.md"
    about_all = section(page, "Signals")
    named = set(re.findall(r"(?m)^### (.+)$", about_all)) - {"Log lines"}
    exported = vars(flask_idempotence).items()
    assert named == {name for name, value in exported if isinstance(value, NamedSignal)}
    assert named == set(sent)
    common = about_all.partition("Every signal carries")[2].partition("\n### ")[0]
    for name, arguments in sent.items():
        for argument in arguments.split():
            assert f"`{argument}`" in section(page, name) + common, (name, argument)


def test_every_public_name_is_described():
    reference = text_of(REFERENCE / "api.md") + text_of(REFERENCE / "errors.md")
    for name in flask_idempotence.__all__:
        mentions = rf"(?m)\bflask_idempotence\.{name}$|^###? {name}$|`{name}`"
        assert re.search(mentions, reference), name
    for name in testing.__all__:
        assert f"`{name}" in text_of(ROOT / "docs" / "how-to" / "test-your-application.md")
    for name in client.__all__:
        assert f"flask_idempotence.client.{name}\n" in reference


def test_the_changelog_begins_with_this_version():
    assert headings(ROOT / "CHANGELOG.md", 2)[0].split()[0] == flask_idempotence.__version__


def test_redis_holds_what_the_page_of_the_keyspace_says(redis_url, redis_server):
    settings = {"IDEMPOTENCE_STORAGE_URI": redis_url, "IDEMPOTENCE_PREFIX": "shop"}
    app = make_app(idempotence=(idempotence := Idempotence()), **settings)

    @app.post("/orders")
    @no_repeat_submit(60)
    def order():
        return "ordered"

    @app.post("/checkout")
    @one_time_token(restore_on_failure=True)
    def checkout():
        return "sold out", 409

    def stored(place):
        [key] = server.keys()
        assert re.fullmatch(f"shop:2:{place}:[0-9a-f]{{32}}", key.decode())
        value, left = server.get(key), server.pttl(key) / 1000
        server.flushdb()
        return value, pytest.approx(left, abs=10)

    server, client = redis_server.client(), app.test_client()
    client.post("/orders")
    claim, left = stored("lock:order")
    assert (claim[:1], len(claim[1:17]), claim[17:], 60) == (b"C", 16, bytes(16) + b"0", left)

    with client.session_transaction() as session:
        session["user_id"] = "1"
    client.get("/token?purpose=pay")
    token, left = stored("token:pay")
    assert (token[:1], len(token[1:]), 300) == (b"T", 16, left)

    with app.app_context(), idempotence.once("mail", 7, ttl=100) as job:
        job.result = [1]
    record, left = stored("once:mail")
    assert (record[:1], len(record[1:17]), record[17:33], 100) == (b"D", 16, bytes(16), left)
    assert re.fullmatch(rb"2 [0-9a-f]{8} result \[1\]", record[33:])

    headers = {"Idempotence-Token": token_for(app.test_client())}
    app.test_client().post("/checkout", headers=headers)
    assert stored("token:-") == (b"T", 300)
