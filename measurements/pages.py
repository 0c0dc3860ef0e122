"""What a page is made with: a file that is written whole or not at all, and a table in Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path


def write(path: Path, text: str) -> None:
    """The text as that file, under its name only when it is whole."""
    draft = path.with_name(f"{path.name}.draft")
    draft.write_text(text, encoding="utf-8", newline="")
    draft.replace(path)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[str]) -> str:
    """A table in Markdown; the columns of those titles are words, aligned left."""
    marks = ["---" if title in words else "--:" for title in titles]
    lines = [titles, marks, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """The rows as lines of a terminal, each column as wide as its widest cell and aligned right."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{text:>{n}}" for text, n in zip(row, widths, strict=True)) for row in rows]
