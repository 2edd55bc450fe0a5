"""A release: which event publishes, with which rights; and what a reporter is asked for."""

import json
import re
import runpy
import shlex
import shutil
import subprocess

import pytest
import yaml
from helpers.apps import make_app
from helpers.cli_shell import invoke
from helpers.repository import ROOT, text_of

from flask_idempotence import __version__

REPOSITORY = "flask-idempotence/flask-idempotence"
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"


class Loader(yaml.SafeLoader):
    """YAML 1.2, as GitHub reads it: `on` is a name and no boolean."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(path):
    return yaml.load(text_of(path), Loader)


WORKFLOWS = {path.stem: read(path) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
RELEASE = WORKFLOWS["release"]["jobs"]
JOBS = [
    pytest.param(job, id=f"{name}-{title}")
    for name, workflow in WORKFLOWS.items()
    for title, job in workflow["jobs"].items()
]


def steps():
    return [step for job in JOBS for step in job.values[0].get("steps", [])]


def runs(command):
    return [step["run"] for step in RELEASE["build"]["steps"] if command in step.get("run", "")]


def needed(title):
    direct = RELEASE[title].get("needs", [])
    direct = [direct] if isinstance(direct, str) else direct
    return {*direct, *(each for name in direct for each in needed(name))}


def test_only_a_tag_of_a_version_begins_a_release():
    assert WORKFLOWS["release"]["on"] == {"push": {"tags": ["v*"]}}
    assert RELEASE["publish"]["if"].split(" && ") == [
        "github.event_name == 'push'",
        "github.ref_type == 'tag'",
        f"github.repository == '{REPOSITORY}'",
    ]


def test_the_gate_and_all_proofs_come_before_the_publication():
    assert needed("publish") == {"tests", "proofs", "build"}
    assert needed("build") == {"tests", "proofs"}
    for name in ("tests", "proofs"):
        assert RELEASE[name]["uses"] == f"./.github/workflows/{name}.yml"
        assert "workflow_call" in WORKFLOWS[name]["on"]


def test_one_job_may_publish_and_it_runs_nothing_of_the_repository():
    publishing = [job.values[0] for job in JOBS if "id-token" in job.values[0]["permissions"]]
    assert publishing == [RELEASE["publish"]]
    [job] = publishing
    assert job["environment"]["name"] == "release"
    assert job["permissions"] == {"id-token": "write", "attestations": "write"}
    assert [step["uses"].partition("@")[0] for step in job["steps"]] == [
        "actions/download-artifact",
        "actions/attest-build-provenance",
        "pypa/gh-action-pypi-publish",
    ]
    download, attest, publish = (step["with"] for step in job["steps"])
    [upload] = [each for each in RELEASE["build"]["steps"] if "upload" in each.get("uses", "")]
    assert upload["with"]["name"] == download["name"]
    assert upload["with"]["path"] == download["path"] == "dist/"
    assert attest == {"subject-path": "dist/*"}
    assert publish == {"attestations": "true"}  # no user, no password, no other index


@pytest.mark.parametrize("job", JOBS)
def test_every_other_job_reads_and_keeps_no_credential(job):
    if job is not RELEASE["publish"]:
        assert job["permissions"] == {"contents": "read"}
        assert "environment" not in job
    for step in job.get("steps", []):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] == "false"


def test_no_workflow_has_rights_of_its_own_a_secret_or_an_event_of_a_fork_with_rights():
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {}, name
        assert not {"pull_request_target", "workflow_run"} & set(workflow["on"]), name
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = text_of(path)
        assert "secrets." not in text
        for uses in re.findall(r"uses: (?!\./)(.+)", text):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", uses), uses


def test_no_name_of_a_branch_or_a_tag_gets_into_a_script():
    for step in steps():
        assert "${{" not in step.get("run", ""), step


@pytest.mark.parametrize(
    ("tag", "heading", "error"),
    [
        ("v{}", "{} (2026-11-28)", ""),
        ("{}", "{} (2026-11-28)", "the tag"),
        ("v{}.1", "{} (2026-11-28)", "the tag"),
        ("v{}rc1", "{} (2026-11-28)", "the tag"),
        ("v{}", "{} (unreleased)", "the changelog"),
        ("v{}", "{}.1 (2026-11-28)", "the changelog"),
    ],
)
def test_the_tag_is_the_version_and_the_changelog_dates_it(tag, heading, error, tmp_path):
    names = [
        step["run"] for step in RELEASE["build"]["steps"] if ".ci/release" in step.get("run", "")
    ]
    assert names == ['.ci/release "$GITHUB_REF_NAME"']
    for name in (".ci/release", "flask_idempotence/__init__.py"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading.format(__version__)}\n")
    command = [tmp_path / ".ci" / "release", tag.format(__version__)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[: len(error)]) == (1 if error else 0, error)


def test_both_distributions_are_checked_and_installed_into_empty_environments():
    gate, proofs = (text_of(ROOT / ".ci" / name) for name in ("run", "proofs"))
    script = text_of(ROOT / ".ci" / "empty")
    assert all("twine check --strict" in text for text in (gate, script))
    assert re.search(r"(?m)^proof empty .*'\.ci/empty'$", proofs)
    [build] = [
        step["run"] for step in RELEASE["build"]["steps"] if "uv build" in step.get("run", "")
    ]
    assert build.endswith("uvx twine check --strict dist/*")


@pytest.mark.parametrize("path", sorted(FORMS.glob("[!c]*.yml")), ids=lambda path: path.stem)
def test_a_form_asks_for_the_output_of_a_command_that_exists(path):
    form = read(path)
    assert {"name", "description", "body"} <= set(form)
    fields = [each for each in form["body"] if each["type"] != "markdown"]
    assert len({each["id"] for each in fields}) == len(fields)
    asked = re.findall("`(flask idempotence [^`]*)`", text_of(path))
    assert "flask idempotence doctor --json" in asked
    for command in asked:
        json.loads(invoke(make_app(), *shlex.split(command)[2:]).stdout)


def test_a_report_of_a_bug_needs_the_doctor_and_a_vulnerability_goes_elsewhere():
    [doctor] = [each for each in read(FORMS / "bug.yml")["body"] if each.get("id") == "doctor"]
    assert doctor["validations"]["required"] == "true"
    config = read(FORMS / "config.yml")
    assert config["blank_issues_enabled"] == "false"
    private = f"https://github.com/{REPOSITORY}/security/advisories/new"
    assert private in [each["url"] for each in config["contact_links"]]


def conf(monkeypatch, **environment):
    for name in ("VERSION_TYPE", "VERSION_NAME", "GIT_IDENTIFIER", "CANONICAL_URL"):
        monkeypatch.delenv(f"READTHEDOCS_{name}", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(f"READTHEDOCS_{name}", value)
    return runpy.run_path(str(ROOT / "docs" / "conf.py"))


@pytest.mark.parametrize(
    ("kind", "name", "identifier", "title", "branch"),
    [
        ("tag", "stable", "v0.1.0", __version__, "v0.1.0"),
        ("branch", "latest", "main", f"{__version__}, latest", "main"),
        ("external", "12", "9a3f", f"{__version__}, 12", "9a3f"),
    ],
)
def test_the_site_shows_its_version_and_links_to_its_files(
    monkeypatch, kind, name, identifier, title, branch
):
    environment = {"VERSION_TYPE": kind, "VERSION_NAME": name, "GIT_IDENTIFIER": identifier}
    site = conf(monkeypatch, **environment, CANONICAL_URL=f"https://docs.test/en/{name}/")
    assert site["html_title"] == f"Flask-Idempotence {title}"
    assert site["html_theme_options"]["source_branch"] == branch
    assert site["SOURCES"].endswith(f"/blob/{branch}/docs/")
    assert f"](https://docs.test/en/{name}/settings.html)" in site["llms"]()
    assert conf(monkeypatch)["html_title"] == f"Flask-Idempotence {__version__}"


def test_the_list_of_pages_for_language_models_has_every_page_and_a_sentence_of_it(monkeypatch):
    site = conf(monkeypatch)
    head, *parts = site["llms"]().split("\n\n## ")
    assert re.fullmatch(r"# Flask-Idempotence .+\n\n> .+", head)
    lines = [line for part in parts for line in part.strip().split("\n")[2:]]
    listed = [re.fullmatch(r"- \[.+?\]\((.+)\.html\): (.+\.)", line) for line in lines]
    docs = ROOT / "docs"
    pages = {
        page.relative_to(docs).with_suffix("").as_posix()
        for page in docs.rglob("*.md")
        if page.relative_to(docs).parts[0] not in site["exclude_patterns"]
    }
    assert sorted(each[1] for each in listed) == sorted(pages - {"index"})
