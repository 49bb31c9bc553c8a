"""What a medium shows, as a reader sees it: tables with headings, labeled numbers; and claims about it.

A claim is a subject and a quantity (the share of a wall, the bound of a fix) with the text that a medium
shows for it. Cells of tables are found by the headings of their row and column, other numbers by the label
that stands before them. Texts of two media agree if some value rounds to both.
"""

import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser

from rich.console import Console

from wallscope.model.enums import Wall

UNITS = {
    "ns": 1,
    "µs": 1e3,
    "ms": 1e6,
    "s": 1e9,
    "min": 6e10,
    "h": 3.6e12,
    "d": 8.64e13,
    "%": 0.01,
    "x": 1,
    "": 1,
}
NUMBER = re.compile(r"([<>]?)([-+]?)([\d,]+(?:\.\d+)?(?:e[-+]\d+)?)\s?(ns|µs|ms|s|min|h|d|%|x)?(?![\w.])")
WITH_UNIT = re.compile(r"[<>]?[\d,]+(?:\.\d+)?(?:x| (?:ns|µs|ms|s|min|h|d|%))(?![\w.])")
WALL_NAMES = {
    **{str(wall): str(wall) for wall in Wall},
    **{wall.capitalize(): str(wall) for wall in Wall},
    "Host overhead": "host",
}


@dataclass(frozen=True)
class Claim:
    """What a medium shows for a quantity of a subject; a unit in the heading of a column is part of it."""

    medium: str
    subject: str
    quantity: str
    text: str


@dataclass
class Table:
    """A table as a reader sees it: its title, the headings of its columns, the texts of its rows."""

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)


def read_interval(text: str) -> tuple[float, float] | None:
    """Return between which values a number lies that is written like this; `None` for words."""
    found = NUMBER.fullmatch(text.strip().replace("more than ", ">"))
    if found is None:
        return None
    bound, sign, digits, unit = found.groups()
    size = UNITS[unit or ""]
    value = float(digits.replace(",", "")) * size
    mantissa, _, exponent = digits.partition("e")
    half = size * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) / 2
    if bound == "<":
        return 0.0, value
    if bound == ">":
        return value, 1e8 if unit == "x" else size * 100
    half = half if "." in digits or unit else 0.0
    low, high = sorted((value - half, value + half))
    return (-high, -low) if sign == "-" else (low, high)


def agree(one: str, other: str) -> bool:
    """Return whether a value may be written in both ways."""
    first, second = read_interval(one), read_interval(other)
    if first is None or second is None:
        return one.strip().lower() == other.strip().lower()
    slack = 1e-9 * max(map(abs, (*first, *second)))
    return first[0] <= second[1] + slack and second[0] <= first[1] + slack


def find_contradictions(claims: Iterable[Claim]) -> list[tuple[Claim, Claim]]:
    """Return pairs of claims about one quantity that no value fits."""
    by_meaning: dict[tuple[str, str], list[Claim]] = defaultdict(list)
    for one in claims:
        by_meaning[one.subject, one.quantity].append(one)
    return [
        (one, other)
        for same in by_meaning.values()
        for place, one in enumerate(same)
        for other in same[place + 1 :]
        if not agree(one.text, other.text)
    ]


def read_full(attributes: Mapping[str, str | None]) -> str | None:
    """The whole text of a cell that was cut, which its tooltip may hold; `None` of one that was not."""
    return (attributes["data-full"] or attributes.get("title")) if "data-full" in attributes else None


class _Page(HTMLParser):
    """Tables, definition lists and headings of a page, and what stands in elements of a class."""

    VOID = frozenset({"br", "img", "input", "link", "meta", "wbr", "hr", "col"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.elements: list[tuple[str, dict[str, str | None], str]] = []
        self.tables: list[Table] = []
        self.caption = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append(Table(self.caption, []))
        if tag == "tr" and self.tables:
            self.tables[-1].rows.append([])
        if tag not in self.VOID:
            self.open.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        while self.open:
            name, attributes, parts = self.open.pop()
            text = " ".join("".join(parts).split())
            self.elements.append((name, attributes, text))
            if self.open and name not in {"script", "style"}:
                self.open[-1][2].append(f" {text} " if name in {"p", "div", "li", "dd", "dt", "tr"} else text)
            self._keep(name, attributes, text)
            if name == tag:
                return

    def _keep(self, name: str, attributes: dict[str, str | None], text: str) -> None:
        if name in {"figcaption", "h2"}:
            self.caption = text.removesuffix("CopyCSV").strip()
        if name in {"td", "th"} and self.tables and self.tables[-1].rows:
            self.tables[-1].rows[-1].append(read_full(attributes) or text)
        if name == "thead" and self.tables[-1].rows:
            self.tables[-1].columns = self.tables[-1].rows.pop()

    def handle_data(self, data: str) -> None:
        if self.open:
            self.open[-1][2].append(data)


def read_page(page: str) -> _Page:
    """Read a page."""
    found = _Page()
    found.feed(page)
    return found


def list_markdown_tables(text: str) -> Iterator[Table]:
    """Yield the tables of a text in Markdown, each with the heading before it."""
    title, lines = "", text.split("\n")
    table: Table | None = None
    for line in lines:
        if line.startswith("#") or (line.startswith("**") and line.endswith("**")):
            title = line.strip("#* ")
        if line.startswith("| "):
            cells = [cell.strip("* ") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
            cells = [cell.strip("`* ").replace("\\", "") for cell in cells]
            if table is None:
                table = Table(title, cells)
            elif not re.fullmatch(r"[-: ]*", "".join(cells)):
                table.rows.append(cells)
        elif table is not None:
            yield table
            table = None
    if table is not None:
        yield table


def list_terminal_tables(lines: list[str]) -> Iterator[Table]:
    """Yield each indented block under a title as a table: its first line heads the columns of the others."""
    block: list[str] = []
    title = ""
    for line in [*lines, ""]:
        if line.startswith("  ") and title:
            block.append(line)
            continue
        if len(block) > 1:
            yield _split_columns(title, block)
        title, block = line.strip(), []


def _split_columns(title: str, block: list[str]) -> Table:
    """Assign each cell of a line to the heading that it stands under."""
    heads = [(found.start(), found.end(), found[0]) for found in re.finditer(r"\S+(?: \S+)*", block[0])]
    table = Table(title, ["", *(head for *_, head in heads)])
    for line in block[1:]:
        cells = [""] * len(table.columns)
        for found in re.finditer(r"\S+(?: \S+)*", line):
            under = [
                place
                for place, (start, end, _) in enumerate(heads, start=1)
                if start < found.end() and found.start() < end
            ]
            place = under[0] if under else 0
            cells[place] = f"{cells[place]} {found[0]}".strip()
        if heads and heads[0][0] == 2:  # the first column has a heading
            cells = cells[1:]
        table.rows.append(cells)
    table.columns = table.columns[1:] if heads and heads[0][0] == 2 else table.columns
    return table


_OF_COLUMNS = (
    (r"time(?: \((?:ms|µs)\))?", "time"),
    (r"typical (?:step|window|layer|microbatch)", "time"),
    (r"share(?: \(%\))?|share of the .*", "share"),
    (r"median share.*|median of .*", "median share"),
    (r"bound|upper bound", "bound"),
    (r"work(?: \((?:ms|µs)\))?", "work"),
    (r"share of work(?: \(%\))?", "work share"),
    (r"length(?: \((?:ms|µs)\))?", "length"),
    (r"best fix", "best fix"),
    (r"base(?: \((?:ms|µs)\))?", "base"),
    (r"head(?: \((?:ms|µs)\))?", "head"),
    (r"change(?: \((?:ms|µs)\))?", "change"),
)
_HEAD_UNIT = re.compile(r"\((ms|µs|%)\)$")


def read_cells(medium: str, table: Table, find_subject: Callable[[str], str | None]) -> Iterator[Claim]:
    """Yield the cells of rows with a subject, under headings that are known."""
    for row in table.rows:
        subject = find_subject(row[0]) if row else None
        if subject is None:
            continue
        for column, cell in zip(table.columns, row, strict=False):
            unit = _HEAD_UNIT.search(column)
            quantity = next((name for form, name in _OF_COLUMNS if re.fullmatch(form, column)), None)
            if quantity is None or cell in {"", "\N{EN DASH}"}:
                continue
            has_unit = unit is not None and re.fullmatch(r"[<>]?[-+\d.,]+", cell)
            yield Claim(medium, subject, quantity, f"{cell} {unit[1]}" if unit and has_unit else cell)


def find_wall(text: str) -> str | None:
    """The wall that a row is about."""
    name = re.split(r" [▏▎▍▌▋▊▉█◀]", text)[0].strip()
    return f"wall {WALL_NAMES[name]}" if name in WALL_NAMES else None


DURATION = r"[\d,]+(?:\.\d+)? (?:ns|µs|ms|s|min|h|d)"
SHARE = r"[<>]?[\d.]+ %"
UNIT = r"(?:step|window|layer|microbatch)"
Labels = tuple[tuple[str, str, str], ...]


def read_labels(medium: str, text: str, labels: Labels) -> Iterator[Claim]:
    """Yield what stands after a label, wherever it stands."""
    for form, subject, quantity in labels:
        for found in re.finditer(form, text):
            yield Claim(medium, subject, quantity, found[1])


def print_shown(shown, columns: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=columns, markup=False, highlight=False, emoji=False)
    console.print(shown)
    return [line.rstrip() for line in out.getvalue().split("\n")]
