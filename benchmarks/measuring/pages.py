"""Tables of benchmarks, and the parts of pages that they are written into."""


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines
    )


def replace_part(text: str, name: str, part: str) -> str:
    """Return a page with the text between two marks replaced.

    Raises:
        ValueError: the page has no such marks.
    """
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
    before, found, rest = text.partition(begin)
    _, also_found, after = rest.partition(end)
    if not (found and also_found):
        raise ValueError(f"no marks for {name!r}")
    return f"{before}{begin}\n{part}\n\n{end}{after}"
