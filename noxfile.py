"""The distributions, on every CPython at hand: `uvx nox`. What `.ci/run` does on one."""

import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = False

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
BESIDE = ["tests", "example_app", "docs", "benchmarks", "pyproject.toml"]
"""What the tests need besides the package, whose source must not be found."""


@nox.session(python=PYTHONS)
@nox.parametrize("kind", ["wheel", "sdist"])
def suite(session: nox.Session, kind: str) -> None:
    """Run the tests against a built distribution."""
    place = Path(session.create_tmp()) / kind
    shutil.rmtree(place, ignore_errors=True)
    session.run("uv", "build", f"--{kind}", "--quiet", "--out-dir", str(place), external=True)
    [built] = [file for file in place.iterdir() if file.suffix in {".whl", ".gz"}]
    session.run("uv", "pip", "install", "--quiet", str(built), "--group", "dev", external=True)
    for name in BESIDE:
        copy = shutil.copytree if Path(name).is_dir() else shutil.copy
        copy(name, place / name)
    for page in Path().glob("*.md"):
        shutil.copy(page, place / page.name)
    with session.chdir(place):
        session.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *session.posargs)
