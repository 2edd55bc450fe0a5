"""HTTP as the pages show it: requests to the application of the page, and what it answers.

A page shows a request in one `http` block and the answer in the next. The application is the one
that the `python` blocks before them have made. The request is written by hand, the answer by it:

    TRANSCRIPTS=write uv run pytest -n 0 tests/docs/test_http_transcripts.py

What is random in an answer, a token, is shown as `<token>`, and stands for itself in the requests
after it. Headers that say nothing (the length, `Date`, `Server`) are left out, and JSON is set to
be read.
"""

import json
import os
import re
import sys
from dataclasses import dataclass, field
from types import ModuleType

from helpers.repository import ROOT, text_of

WRITE = os.environ.get("TRANSCRIPTS") == "write"

FORM_PAGE = ROOT / "docs" / "how-to" / "protect-a-form.md"
GRAPHQL_PAGE = ROOT / "docs" / "how-to" / "graphql.md"
PAYMENTS_PAGE = ROOT / "docs" / "how-to" / "payments-api.md"

CONTINUES = "<!-- continues -->"
BLOCK = re.compile(rf"(?m)^({CONTINUES}\n+)?```(python|http)\n(.*?)^```$", re.DOTALL)
UNSAID = {"content-length", "date", "server"}
LONGEST_LINE = 88


@dataclass(frozen=True)
class Block:
    """A block of `python` or `http`, and where its text begins in the page's."""

    language: str
    text: str
    start: int

    @property
    def is_answer(self):
        return self.language == "http" and self.text.startswith("HTTP/")


@dataclass
class TranscriptClient:
    """One client of an application, and the names that stand for what is random."""

    app: object
    names: dict = field(default_factory=dict)

    def __post_init__(self):
        self.client = self.app.test_client()

    def exchange(self, request):
        """Send a request that is written out, and return the answer, written out."""
        for name, value in self.names.items():
            request = request.replace(name, value)
        head, _, body = request.partition("\n\n")
        line, *lines = head.splitlines()
        method, path, _ = line.split(" ")
        headers = [tuple(line.split(": ", 1)) for line in lines]
        sent = {"method": method, "headers": headers, "data": body.rstrip("\n")}
        answer = self.client.open(path, buffered=True, **sent)
        token = answer.is_json and answer.get_json().get("token")
        if token:
            self.names["<token>"] = token
        text = written(answer)
        return text.replace(token, "<token>") if token else text


def written(answer):
    lines = [f"HTTP/1.1 {answer.status.upper()}"]  # Werkzeug 3.2 has a title's letters
    said = [(name, value) for name, value in answer.headers if name.lower() not in UNSAID]
    lines += [f"{name}: {_of_a_quick_machine(name, value)}" for name, value in said]
    if answer.data:
        lines += ["", formatted_body(answer)]
    return "\n".join(lines) + "\n"


def _of_a_quick_machine(name, value):
    """Return the seconds that are left of a record as if no whole one had passed."""
    if name == "Idempotent-Expires-In" and int(value) % 60:
        return str(int(value) // 60 * 60 + 59)
    return value


def formatted_body(answer):
    if not answer.is_json:
        return answer.get_data(as_text=True).strip()
    line = json.dumps(answer.json)
    return line if len(line) <= LONGEST_LINE else json.dumps(answer.json, indent=2)


def blocks(text):
    """Return a page's blocks of both languages, as chains: what continues nothing begins one."""
    found = []
    for match in BLOCK.finditer(text):
        if match[2] == "python" and not match[1]:
            found.append([])
        found[-1].append(Block(match[2], match[3], match.start(3)))
    return found


def chains(text):
    """Return those chains in which HTTP is shown, up to the last of it."""
    shown = []
    for chain in blocks(text):
        while chain and chain[-1].language == "python":
            chain.pop()
        if chain:
            shown.append(chain)
    return shown


def run_chain(chain, *, app=None, names=()):
    """Go through a chain, and return its answers with what they should say.

    By default, the `app` of its code is asked. The names say what stands for what in requests.
    """
    namespace, answers = {"__name__": "example", "app": app}, []
    client = said = None
    for block in chain:
        if block.language == "python":
            exec(block.text, namespace)
        elif block.is_answer:
            assert said is not None, f"nobody asked for this:\n{block.text}"
            answers.append((block, said))
            said = None
        else:
            assert said is None, f"an answer is missing before this:\n{block.text}"
            if client is None or client.app is not namespace["app"]:
                client = TranscriptClient(namespace["app"], dict(names))
            said = client.exchange(block.text)
    assert said is None, "the last request has no answer"
    return answers


def rewritten(text, answers):
    for block, said in sorted(answers, key=lambda answer: -answer[0].start):
        text = text[: block.start] + said + text[block.start + len(block.text) :]
    return text


def namespace():
    """Return the names of a new module, which libraries find by its name as they find others."""
    sys.modules["example"] = module = ModuleType("example")
    return vars(module)


def run_blocks(page, count, replaced=()):
    names = namespace()
    for block in blocks(text_of(page))[0][:count]:
        code = block.text
        for text, other in dict(replaced).items():
            assert text in text_of(page)
            code = code.replace(text, other)
        exec(compile(code, str(page), "exec"), names)
    return names
