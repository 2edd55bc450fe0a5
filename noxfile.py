"""The distributions, on every CPython at hand: `uvx nox`, or `uvx nox -s suite-3.12 -- tests/...`.

Everything begins with a clean clone of what is committed.
"""

import shutil
import tarfile
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = False

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
PACKAGE = "flask_idempotence"
IS_INSTALLED = f"""
import sysconfig, {PACKAGE}
assert {PACKAGE}.__file__.startswith(sysconfig.get_path("purelib")), {PACKAGE}.__file__
"""


@nox.session(python=PYTHONS)
@nox.parametrize("kind", ["wheel", "sdist"])
def suite(session: nox.Session, kind: str) -> None:
    """Run the tests against an installed wheel; or those of an sdist against what it makes."""
    place = Path(session.create_tmp()).resolve() / kind
    shutil.rmtree(place, ignore_errors=True)
    clone = place / "clone"
    session.run("git", "clone", "--quiet", ".", str(clone), external=True)
    session.run(
        *("uv", "build", f"--{kind}", "--quiet", "--out-dir", str(place / "dist"), str(clone)),
        external=True,
    )
    [built] = [file for file in (place / "dist").iterdir() if file.suffix in {".whl", ".gz"}]
    tree = clone if kind == "wheel" else unpack(built, place)
    shutil.rmtree(tree / PACKAGE)  # so that only what is installed can be what is tested
    with session.chdir(tree):
        session.run("uv", "pip", "install", "--quiet", str(built), "--group", "dev", external=True)
        session.run("python", "-c", IS_INSTALLED)
        session.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *session.posargs)


def unpack(sdist: Path, place: Path) -> Path:
    """Unpack a source distribution, and return its only directory."""
    with tarfile.open(sdist) as archive:
        archive.extractall(place, filter="data")
    return place / sdist.name.removesuffix(".tar.gz")
