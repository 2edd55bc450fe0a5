"""The tables of benchmarks on a page of the documentation."""

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reports" / "aims.md"


def write_part(command: str, part: str) -> None:
    """Replace the part of the page that a benchmark writes."""
    PAGE.write_text(with_part(PAGE.read_text(encoding="utf-8"), command, part), encoding="utf-8")


def with_part(text: str, command: str, part: str) -> str:
    """Return a text with the part of a benchmark between its marks.

    Raises:
        ValueError: the text has no such marks.
    """
    begin, end = f"<!-- begin: {command} --docs -->\n", f"<!-- end: {command} -->\n"
    before, mark, rest = text.partition(begin)
    if not mark or end not in rest:
        raise ValueError(f"{PAGE.name} has no marks for {command}")
    return f"{before}{begin}\n{part}\n{end}{rest.partition(end)[2]}"
