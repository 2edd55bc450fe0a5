"""An environment for each peer, made with uv and kept for the next time."""

import json
import subprocess
import sys
from pathlib import Path

from .catalogue import Peer

SERVICES = Path(__file__).parent / "services"


class Environments:
    def __init__(self, directory: Path):
        self._directory = directory

    def of(self, peer: Peer) -> Path:
        """Return the interpreter of a peer's environment, which is made if need be."""
        where = self._directory / peer.environment
        python, stamp = where / "bin" / "python", where / "requirements.json"
        wanted = json.dumps([sys.version, *peer.requirements])
        if not stamp.exists() or stamp.read_text() != wanted:
            print(f"... installing {', '.join(peer.requirements)}", file=sys.stderr, flush=True)
            _uv("venv", "--clear", "--python", sys.executable, str(where))
            arguments = [part for one in peer.requirements for part in one.split(" ", 1)]
            _uv("pip", "install", "--python", str(python), *arguments)
            stamp.write_text(wanted)
        return python

    def versions(self, peer: Peer) -> dict[str, str]:
        """Return the versions of the distributions that a peer is measured with."""
        listed = _uv("pip", "list", "--format", "json", "--python", str(self.of(peer)))
        found = {row["name"].lower(): row["version"] for row in json.loads(listed)}
        return {name: found[name] for name in (peer.package, *peer.told)}


def _uv(*arguments: str) -> str:
    command = ["uv", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stderr}")
    return done.stdout
