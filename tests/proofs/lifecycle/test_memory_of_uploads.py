"""An upload takes no memory for its guard, measured in processes of their own."""

import sys

import pytest
from helpers.request_bodies import BYTES, FORM, JSON, PARTS
from helpers.servers.processes import environment, run_to_end

pytestmark = pytest.mark.lifecycle

UPLOAD = """
import itertools, sys
from pathlib import Path
from flask import request
from helpers.request_bodies import GUARDS, app_with

guard, content_type, read = sys.argv[1:]
SIZE, COUNT = 200_000_000, 400
X = b"x" * (SIZE // COUNT - 20_000)
PART = b'--x\\r\\nContent-Disposition: form-data; name="f'
PIECES = [X] * COUNT
if read == "file":
    PIECES = [PART + b'"; filename="f"\\r\\n\\r\\n', *PIECES, b"\\r\\n--x--\\r\\n"]
elif "multipart" in content_type:
    parts = ([PART, b'%d"\\r\\n\\r\\n' % n, X, b"\\r\\n"] for n in range(COUNT))
    PIECES = [*itertools.chain(*parts), b"--x--\\r\\n"]

class Input:
    pieces, piece = iter(PIECES), memoryview(b"")

    def read(self, size):
        if not self.piece:
            self.piece = memoryview(next(self.pieces, b""))
        piece, self.piece = self.piece[:size], self.piece[size:]
        return bytes(piece)

def view():
    if read == "form":
        return {"size": sum(map(len, request.form.values()))}
    stream, size = request.files["f"] if read == "file" else request.stream, 0
    while piece := stream.read(1 << 16):
        size += len(piece)
    return {"size": size}

app = app_with(view, GUARDS.get(guard))
headers = {"Idempotency-Key": "k"}
length = sum(map(len, PIECES))
environ = {"CONTENT_TYPE": content_type, "CONTENT_LENGTH": str(length), "wsgi.input": Input()}
answer = app.test_client().post("/", environ_overrides=environ, headers=headers)
if guard == "token":  # which is not in the form, as far as it is read
    assert answer.status_code == 413, answer.data
else:
    assert answer.json == {"size": length if read == "stream" else len(X) * COUNT}, answer.data
# Not ru_maxrss, in which the parent's memory counts, too.
status = Path("/proc/self/status").read_text()
print(status.split("VmHWM:")[1].split()[0])
"""


def peak(*arguments):
    command = [sys.executable, "-c", UPLOAD, *arguments]
    done = run_to_end(command, env=environment())
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize(
    ("guard", "content_type", "read"),
    [
        ("lock", BYTES, "stream"),
        ("key", JSON, "stream"),
        ("key", PARTS, "file"),
        ("lock", FORM, "stream"),
        ("key", FORM, "stream"),
        ("token", FORM, "stream"),
        ("lock", PARTS, "stream"),
        ("key", PARTS, "form"),
        ("token", PARTS, "stream"),
    ],
)
def test_an_upload_takes_hardly_more_than_without_a_guard(guard, content_type, read):
    without = peak("none", content_type, read)
    assert peak(guard, content_type, read) <= 1.3 * without
