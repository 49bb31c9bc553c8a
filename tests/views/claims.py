"""Collect the numbers that a medium shows, each with its meaning, by the structure of the medium.

A claim is a subject and a quantity (the share of a wall, the bound of a fix) with the text that a medium
shows for it. Cells of tables are found by the headings of their row and column, other numbers by the label
that stands before them. Texts of two media agree if some value rounds to both.
"""

import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser

from rich.console import Console

from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.enums import Wall
from wallscope.render.data import pack_brief, write_json
from wallscope.views.analysis import render_analysis, write_analysis_card, write_analysis_markdown
from wallscope.views.brief import brief_analysis, brief_breakdown, brief_comparison
from wallscope.views.comparison import render_comparison, write_comparison_markdown

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
    found = NUMBER.fullmatch(text.strip())
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
        return value, size * 100
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
            self.tables[-1].rows[-1].append(attributes.get("data-full") or text)
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
    (r"best fix", "best fix"),
    (r"base(?: \((?:ms|µs)\))?", "base"),
    (r"head(?: \((?:ms|µs)\))?", "head"),
    (r"change(?: \((?:ms|µs)\))?", "change"),
)
_HEAD_UNIT = re.compile(r"\((ms|µs|%)\)$")


def _read_cells(medium: str, table: Table, find_subject: Callable[[str], str | None]) -> Iterator[Claim]:
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


class Answered:
    """An answer about a capture, and what it calls walls, causes and fixes."""

    def __init__(self, analysis, page: str = "") -> None:
        self.analysis = analysis
        self.page = page
        rank = analysis.ranks[analysis.diagnosis.rank_index]
        words: dict[str, list[str]] = defaultdict(list)
        for one in rank.causes:
            words[describe_cause(one.cause)].append(one.cause)
        self.causes = {name: own[0] for name, own in words.items() if len(own) == 1}
        self.causes |= {one.cause: one.cause for one in rank.causes}
        self.named = {re.split(r", (?=incl)", name)[0]: cause for name, cause in self.causes.items()}
        self.fixes = {" ".join(fix.title.split()): f"fix {fix.id}" for fix in analysis.fixes or ()}

    def find_cause(self, text: str) -> str | None:
        """The cause that a row is about, by its identifier or its words."""
        name = text.removeprefix("other ")
        return f"cause {self.causes[name]}" if name in self.causes else None

    def main_cause(self, medium: str, text: str) -> Iterator[Claim]:
        """The cause that the first sentences name, with its time."""
        found = re.search(rf"(?:Main cause|Largest part): (.*?), ({_DURATION})(?: of |\.)", text)
        if found is not None and found[1] in self.named:
            yield Claim(medium, f"cause {self.named[found[1]]}", "time", found[2])

    def tables(self, medium: str, tables: Iterable[Table]) -> Iterator[Claim]:
        """Claims of the tables about walls and causes of the typical step."""
        for table in tables:
            if table.title.startswith("Time breakdown of the"):
                yield from _read_cells(medium, table, find_wall)
                yield from read_labels(medium, table.title, _IN_TITLES)
            elif table.title.startswith(("Causes of", "Largest losses In the typical")):
                yield from _read_cells(medium, table, self.find_cause)


_DURATION = r"[\d,]+(?:\.\d+)? (?:ns|µs|ms|s|min|h|d)"
_SHARE = r"[<>]?[\d.]+ %"
_UNIT = r"(?:step|window|layer|microbatch)"
Labels = tuple[tuple[str, str, str], ...]
_IN_TITLES: Labels = (
    (
        rf"Time breakdown of the (?:typical {_UNIT}|capture|selected time) \(({_DURATION})\)",
        "step",
        "typical length",
    ),
)
_IN_TEXT: Labels = (
    (rf"([\d,]+) of [\d,]+ {_UNIT}s? steady", "steps", "steady"),
    (rf"([\d,]+) steady {_UNIT}s? of [\d,]+", "steps", "steady"),
    (rf"[\d,]+ of ([\d,]+) {_UNIT}s? steady", "steps", "found"),
    (rf"[\d,]+ steady {_UNIT}s? of ([\d,]+)", "steps", "found"),
    (rf"typical \(mean(?: of the middle half)?\) ({_DURATION})", "step", "typical length"),
    (rf"typical step ({_DURATION});", "step", "typical length"),
    (rf"of the typical ({_DURATION}) {_UNIT}\b(?! on)", "step", "typical length"),
    (
        rf"(?:loss:|takes) {_SHARE} of the ({_DURATION}) (?:capture|selected time)[.,;(]",
        "step",
        "typical length",
    ),
    (rf"slowest: {_UNIT} [\d,]+, ({_DURATION})", "step", "slowest"),
    (rf"[Rr]eplay error:? ({_SHARE})", "replay", "error"),
    (rf"\(median of ([\d,]+) steady {_UNIT}s\)", "steps", "steady"),
    (r"(?:^|\n)[Cc]onfidence:? +(high|medium|low)\b", "verdict", "confidence"),
    (r"\bconfidence (high|medium|low):", "verdict", "confidence"),
    (r"\b(High|Medium|Low) confidence\b", "verdict", "confidence"),
    (r"[Mm]emory pressure:? (high|near the limit|none|unknown)", "memory", "pressure"),
    (r"GPU memory +pressure (high|near the limit|none|unknown)", "memory", "pressure"),
)
_LARGEST_LOSS = re.compile(
    r"(Communication|Waiting for peers|Memory time|Host time|Memory|Host)(?: \([^)]*\))?"
    rf" is the largest loss: ({_SHARE})|(Compute) takes ({_SHARE}) of"
)
_HEADLINE = re.compile(r"[A-Z]+-BOUND|NO SINGLE WALL|WALL UNKNOWN")
_LOSSES = {"Waiting for peers": "communication", "Memory time": "memory", "Host time": "host"}


def read_labels(medium: str, text: str, labels: Labels) -> Iterator[Claim]:
    """Yield what stands after a label, wherever it stands."""
    for form, subject, quantity in labels:
        for found in re.finditer(form, text):
            yield Claim(medium, subject, quantity, found[1])


def read_lead(medium: str, text: str) -> Iterator[Claim]:
    """Yield the share of the headline, of the first sentence that explains it."""
    found = _LARGEST_LOSS.search(text)
    if found is not None:
        name, share = (found[1], found[2]) if found[1] else (found[3], found[4])
        yield Claim(medium, f"wall {_LOSSES.get(name, name.lower())}", "headline share", share)


def read_headline(medium: str, text: str) -> Claim:
    """The headline; its case is one of style."""
    return Claim(medium, "verdict", "headline", " ".join(text.lower().split()))


def print_terminal(analysis, columns: int, *, is_full: bool) -> list[str]:
    """What a terminal shows of a capture."""
    return _print(render_analysis(analysis, "run.sqlite", is_full=is_full), columns)


def print_comparison(comparison, columns: int, *, is_full: bool) -> list[str]:
    """What a terminal shows of a comparison."""
    return _print(render_comparison(comparison, full=is_full), columns)


def _print(shown, columns: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=columns, markup=False, highlight=False, emoji=False)
    console.print(shown)
    return [line.rstrip() for line in out.getvalue().split("\n")]


def _join(lines: Iterable[str]) -> str:
    """Text without the line breaks that the width makes; sections keep theirs."""
    text = "\n".join(lines)
    return re.sub(r"(?<=\S)\n +(?=\S)", " ", text)


def read_terminal(answered: Answered, lines: list[str], medium: str = "terminal") -> Iterator[Claim]:
    """Claims of the first screen or the full output of a terminal."""
    text = _join(lines)
    place = next(number for number, line in enumerate(lines) if _HEADLINE.match(line))
    yield read_headline(medium, lines[place])
    verdict = _join(lines[place:]).partition("\n\n")[0]
    if "of the whole capture:" not in verdict:
        yield from read_lead(medium, verdict)
        yield from answered.main_cause(medium, verdict)
    is_full = any(line.startswith("Time breakdown of the") for line in lines)
    yield from read_labels(medium, text, _IN_TEXT)
    if is_full:
        yield from answered.tables(medium, list_terminal_tables(lines))
    else:
        yield from _read_bars(medium, lines[place:])
    yield from _read_listed_fixes(medium, lines, answered)


def _read_bars(medium: str, lines: list[str]) -> Iterator[Claim]:
    has_median = any("median share" in line for line in lines)
    for line in lines:
        found = re.match(rf" *([A-Z][a-z]+(?: overhead)?) .*?({_SHARE}) +({_DURATION})(?:  ◀)?$", line)
        subject = None if found is None else find_wall(found[1])
        if found is not None and subject is not None:
            yield Claim(medium, subject, "headline share", found[2])
            yield Claim(medium, subject, "time" if has_median else "headline time", found[3])


def _read_listed_fixes(medium: str, lines: list[str], answered: Answered) -> Iterator[Claim]:
    """The bound at the right edge of the line of a fix, whose title may go on below."""
    block = "\n".join(lines).partition("\nRecommendations")[2].partition("\n\n")[0].split("\n")[1:]
    rows = [re.match(r"  (?:(\d+|-) +)(.*?)(?: {2,}(?:up to )?([\d.]+x))?$", line) for line in block]
    for place, row in enumerate(rows):
        if row is None or row[3] is None:
            continue
        title = row[2].removeprefix("Held back: ")
        for line in block[place + 1 :]:
            if title in answered.fixes or not line.startswith("     "[:4]):
                break
            title = f"{title} {line.strip()}"
        title = re.sub(r" \([a-z0-9-]+\)$", "", title)
        if title in answered.fixes:
            yield Claim(medium, answered.fixes[title], "bound", row[3])


def read_page_claims(answered: Answered) -> Iterator[Claim]:
    """Claims of the page."""
    medium, page = "page", read_page(answered.page)
    elements = page.elements
    (headline,) = (text for name, _, text in elements if name == "h1")
    yield read_headline(medium, headline)
    yield from answered.tables(medium, page.tables)
    yield from _read_pairs(medium, answered)
    for name, attributes, text in elements:
        kind = attributes.get("class") or ""
        if kind == "losses":
            pass
        elif (
            (name == "dl" and kind == "answers")
            or (name == "div" and kind in {"ok", "warn", "info"})
            or (name == "p" and kind.startswith(("callout", "note")))
        ):
            yield from read_labels(medium, text, _IN_TEXT)
    for one in re.findall(r'<li class="card.*?</li>', answered.page, re.DOTALL):
        title = re.search(r"<h3>(.*?)</h3>", one, re.DOTALL)
        bound = re.search(r'<span class="up"[^>]*>up to ([\d.]+x)', one)
        if title and bound:
            name = re.sub(r"^\d+", "", strip_tags(title[1])).strip()
            if name in answered.fixes:
                yield Claim(medium, answered.fixes[name], "bound", bound[1])
    large = re.search(
        r'<div class="big"><strong><span>(.*?)</span></strong><span>(typical \w+)', answered.page
    )
    if large:
        yield Claim(medium, "step", "typical length", strip_tags(large[1]))


def strip_tags(text: str) -> str:
    """Text of a piece of a page."""
    return " ".join(unescape(re.sub(r"<[^>]+>", "", text)).split())


def _read_pairs(medium: str, answered: Answered) -> Iterator[Claim]:
    """The legend of the bar, and the five answers."""
    legend = answered.page.partition('<dl class="legend">')[2].partition("</dl>")[0]
    is_median = "Shares are medians of" in answered.page
    for name, value in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", legend):
        subject = find_wall(strip_tags(name).partition(" ◀")[0])
        found = re.match(rf"({_SHARE}) (.*?)(?: p10|$)", strip_tags(value))
        if subject and found:
            yield Claim(medium, subject, "headline share", found[1])
            yield Claim(medium, subject, "time" if is_median else "headline time", found[2])
    for label, value in re.findall(r"<dt>([A-Z][\w ]+)</dt><dd>(.*?)</dd>", answered.page):
        text = strip_tags(value)
        if label == "Wall" and (found := re.match(rf"(\w+) ({_SHARE})", text)):
            yield Claim(medium, f"wall {found[1].lower()}", "headline share", found[2])
        if label == "How sure" and (sure := re.match(r"(High|Medium|Low) confidence", text)):
            yield Claim(medium, "verdict", "confidence", sure[1])


def read_markdown(answered: Answered, text: str, medium: str = "markdown") -> Iterator[Claim]:
    """Claims of the comment on a pull request."""
    head = re.match(r"### wallscope: (.*)", text)
    assert head is not None
    yield read_headline(medium, head[1])
    lead = re.search(r"^\*\*(.*)\*\*$", text, re.MULTILINE)
    if lead is not None:
        yield from read_lead(medium, lead[1])
        yield from answered.main_cause(medium, lead[1])
    yield from read_labels(medium, text, _IN_TEXT)
    yield from answered.tables(medium, list_markdown_tables(text))
    for title, bound in re.findall(r"^\d+\. \*\*(.*?)\*\* \(\w+; up to ([\d.]+x)", text, re.MULTILINE):
        name = title.replace("\\", "")
        if name in answered.fixes:
            yield Claim(medium, answered.fixes[name], "bound", bound)


def read_brief(packed: dict, medium: str = "brief") -> Iterator[Claim]:
    """Claims of a brief answer, as it is published; each number has its place in the JSON as a name."""
    yield read_headline(medium, re.split(r"\. |\.$|…", packed["verdict"])[0])
    if "confidence" in packed:
        yield Claim(medium, "verdict", "confidence", packed["confidence"].partition(":")[0])
    yield from read_labels(medium, packed["subject"], _IN_TEXT)
    for pointer, value in packed.get("numbers", {}).items():
        *above, name = pointer.split("/")
        if name in {"share", "mean_share"}:
            yield Claim(medium, f"wall {above[-1]}", "headline share", f"{100 * value:.5g} %")
        elif pointer.endswith("/typical/step_ns"):
            yield Claim(medium, "step", "typical length", f"{value:.0f} ns")
        elif "/typical/walls/" in pointer:
            yield Claim(medium, f"wall {name}", "time", f"{value:.0f} ns")
    for one in packed.get("recommendations", ()):
        if "speedup_ceiling" in one:
            yield Claim(medium, f"fix {one['id']}", "bound", f"{one['speedup_ceiling']:.5g}x")
    for one in packed.get("causes", ()):
        yield Claim(medium, f"cause {one['cause']}", "time", f"{one['typical_ns']} ns")
        yield Claim(medium, f"cause {one['cause']}", "share", f"{100 * one['share']:.5g} %")


def read_json(text: str) -> Iterator[Claim]:
    """Claims of the answer as JSON."""
    answer = json.loads(text)
    diagnosis = answer["diagnosis"]
    rank = answer["ranks"][diagnosis["rank_index"]]
    pressure = diagnosis["memory_pressure"]["level"]
    told = [("memory", "pressure", "near the limit" if pressure == "near" else pressure)]
    if diagnosis["confidence"] is not None:
        told.append(("verdict", "confidence", diagnosis["confidence"]["level"]))
    if answer["anchor"]["kind"] != "whole-trace":
        told.append(("steps", "steady", f"{sum(step['steady'] for step in rank['steps'])}"))
        told.append(("steps", "found", f"{len(rank['steps'])}"))
        lengths_ns = [step["end_ns"] - step["start_ns"] for step in rank["steps"] if step["steady"]]
        told += [("step", "slowest", f"{max(lengths_ns)} ns")] if lengths_ns else []
    check = (answer["replay"] or {}).get("check")
    if check is not None and check["error_median"] is not None:
        told.append(("replay", "error", write_share(check["error_median"])))
    told += _list_bounds(answer)
    told += _list_wall_claims(answer, rank)
    for one in rank["causes"]:
        told.append((f"cause {one['cause']}", "time", f"{one['typical_ns']} ns"))
        told.append((f"cause {one['cause']}", "share", write_share(one["share"])))
    yield from (Claim("json", *one) for one in told)


def write_share(share: float) -> str:
    """A share with more digits than any medium shows."""
    return f"{100 * share:.9f} %"


def _list_bounds(answer: dict) -> Iterator[tuple[str, str, str]]:
    for one in answer["opportunities"]:
        yield f"cause {one['cause']}", "bound", f"{one['speedup_ceiling']:.6f}x"
    for one in answer["fixes"] or ():
        if one["speedup_ceiling"] is not None:
            yield f"fix {one['id']}", "bound", f"{one['speedup_ceiling']:.6f}x"


def _list_wall_claims(answer: dict, rank: dict) -> Iterator[tuple[str, str, str]]:
    step_ns, shares = rank["typical"]["step_ns"], answer["diagnosis"]["walls"]
    yield "step", "typical length", f"{step_ns} ns"
    is_many = sum(step["steady"] for step in rank["steps"]) > 1
    for wall, time_ns in rank["typical"]["walls"].items():
        yield f"wall {wall}", "time", f"{time_ns} ns"
        if step_ns:
            yield f"wall {wall}", "share", write_share(time_ns / step_ns)
        if shares is not None and is_many:
            yield f"wall {wall}", "median share", write_share(shares[wall]["share"])
    job = answer["job"]
    is_matched = job is not None and job["collectives"]["matched"]
    time = "job" if is_matched else answer["scope"]["time"]
    of_time = {"job": job and job["walls"], "start-up": rank["whole_walls"], "steps": {}}
    walls = of_time.get(time, rank["typical"]["walls"])
    for wall, time_ns in walls.items():
        yield f"wall {wall}", "headline time", f"{time_ns} ns"
        yield f"wall {wall}", "headline share", write_share(time_ns / max(sum(walls.values()), 1))


def collect_analysis(analysis, page: str = "") -> list[Claim]:
    """All claims of all media about a capture."""
    answered = Answered(analysis, page)
    claims: list[Claim] = []
    for columns in (80, 140):
        for is_full in (False, True):
            claims += read_terminal(answered, print_terminal(analysis, columns, is_full=is_full))
    claims += read_markdown(answered, write_analysis_markdown(analysis))
    for brief in (
        brief_analysis(analysis, ("a",), 20, has_details=True),
        brief_breakdown(analysis, ("a",), 50),
    ):
        claims += read_brief(pack_brief(brief))
    claims += read_json(write_json(analysis))
    card = re.search(r"<div><b>(.*?)\.</b>", write_analysis_card(analysis))
    assert card is not None
    claims.append(read_headline("card", card[1]))
    if page:
        claims += read_page_claims(answered)
    return claims


_SIGNED = r"[-+]?[\d.]+ %"
_WORDS = {
    "regression": "slower",
    "improvement": "faster",
    "no-change": "no change",
    "inconclusive": "inconclusive",
    "incomparable": "not comparable",
}
_OF_CHANGE: Labels = (
    (rf": ({_SIGNED})(?: \(95 % CI| \(no confidence|[,.])", "step", "ratio"),
    (r"slow steps: ([\d,]+) of [\d,]+ →", "base", "slow steps"),
    (r"slow steps: [\d,]+ of [\d,]+ → ([\d,]+) of", "head", "slow steps"),
    (r"over 1.25 times the median: ([\d,]+) of [\d,]+ in base", "base", "slow steps"),
    (r"in base, ([\d,]+) of [\d,]+ in head", "head", "slow steps"),
)
_STEP = re.compile(rf"([\d,.]+(?: \S+)?) → ({_DURATION}): [-+\d]")
_ENDS = re.compile(r"\(95 % CI ([-+]?[\d.]+) … ([-+]?[\d.]+ %)\)")


def find_row(text: str) -> str | None:
    """The wall or the step that a row of a comparison is about."""
    name = re.split(r" [│█]", text)[0].strip("* ")
    return "step" if name in {"step", "window", "typical"} else find_wall(name)


def find_listed_cause(text: str) -> str | None:
    """The cause that a row is about, by its identifier."""
    return f"cause {text}" if text.partition("/")[0] in set(map(str, Wall)) and "/" in text else None


def read_change(medium: str, text: str) -> Iterator[Claim]:
    """Claims of the sentence that says how the step changed."""
    first = re.split(r"(?<=[.]) (?=[A-Z])", text)[0]
    if found := _STEP.search(text):
        unit = found[2].rpartition(" ")[2]
        before = found[1] if " " in found[1] else f"{found[1]} {unit}"
        yield Claim(medium, "step", "base", before)
        yield Claim(medium, "step", "head", found[2])
        yield from read_labels(medium, text, _OF_CHANGE[:1]) if first else ()
    if found and (ends := _ENDS.search(text)):
        yield Claim(medium, "step", "ratio low", f"{ends[1]} %")
        yield Claim(medium, "step", "ratio high", ends[2])
    if cause := re.search(r"(?<= )(Cause: |Largest change (?:\(uncertain\)|between))", text):
        certainty = "certain" if cause[1] == "Cause: " else "uncertain"
        yield Claim(medium, "cause of the change", "certainty", certainty)
    yield from read_labels(medium, text, _OF_CHANGE[1:])


def read_change_tables(medium: str, tables: Iterable[Table]) -> Iterator[Claim]:
    """Claims of the tables about walls, causes and the step."""
    for table in tables:
        columns = [column.partition(" (")[0] for column in table.columns]
        if {"base", "head", "change"} <= set(columns) or {"cause", "change"} <= set(columns):
            yield from _read_cells(medium, table, lambda text: find_row(text) or find_listed_cause(text))
        elif "base → head" in columns:
            unit = table.columns[0]
            for row in table.rows:
                subject = find_row(row[0])
                if subject is not None:
                    for name, value in zip(("base", "head"), row[1].split(" → "), strict=True):
                        yield Claim(medium, subject, name, f"{value} {unit}")
                    yield Claim(medium, subject, "change", f"{row[2]} {unit}")


def collect_comparison(comparison, page: str) -> list[Claim]:
    """All claims of all media about a comparison."""
    claims: list[Claim] = []
    for columns in (80, 140):
        for is_full in (False, True):
            claims += read_terminal_change(print_comparison(comparison, columns, is_full=is_full))
    claims += read_markdown_change(write_comparison_markdown(comparison))
    claims += read_brief_change(pack_brief(brief_comparison(comparison, ("a", "b"), 50)))
    claims += read_json_change(write_json(comparison))
    return [*claims, *read_page_change(page)]


def read_terminal_change(lines: list[str]) -> Iterator[Claim]:
    """Claims of a comparison on a terminal."""
    medium = "terminal"
    words = "|".join(word.upper() for word in _WORDS.values())
    text = "\n".join(lines)
    found = re.search(rf"^({words})  (.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    yield Claim(medium, "verdict", "word", found[1])
    yield from read_change(medium, " ".join(found[2].split()))
    yield from read_change_tables(medium, list_terminal_tables(lines))


def read_markdown_change(text: str) -> Iterator[Claim]:
    """Claims of the comment on a pull request."""
    medium = "markdown"
    head, change = re.match(r"### wallscope: (.*)", text), re.search(r"^\*\*(.*?)\*\*  $", text, re.MULTILINE)
    assert head is not None
    assert change is not None
    yield Claim(medium, "verdict", "word", head[1])
    yield from read_change(medium, change[1])
    yield from read_change_tables(medium, list_markdown_tables(text))


def read_brief_change(packed: dict) -> Iterator[Claim]:
    """Claims of the brief answer."""
    medium = "brief"
    word, _, rest = packed["verdict"].partition(": ")
    yield Claim(medium, "verdict", "word", _WORDS[word])
    yield from read_change(medium, rest)
    for pointer, value in packed["numbers"].items():
        name = pointer.rpartition("/")[2]
        if name.endswith("_ns"):
            yield Claim(medium, "step", name.partition("_")[0], f"{value} ns")
        else:
            yield Claim(medium, "step", name.replace("_", " "), write_ratio(value, 3))
    for one in packed.get("changes", ()):
        for side in ("base", "head"):
            yield Claim(medium, f"cause {one['cause']}", side, f"{one[f'{side}_ns']} ns")
        yield Claim(medium, f"cause {one['cause']}", "change", f"{one['delta_ns']} ns")


def write_ratio(ratio: float, digits: int) -> str:
    """A ratio as the change that media show."""
    return f"{100 * (ratio - 1):.{digits - 1}f} %"


def read_json_change(text: str) -> Iterator[Claim]:
    """Claims of the answer as JSON."""
    medium, answer = "json", json.loads(text)
    step = answer["step"]
    yield Claim(medium, "verdict", "word", _WORDS[answer["verdict"]])
    for side in ("base", "head"):
        yield Claim(medium, "step", side, f"{step[f'{side}_typical_ns']} ns")
        yield Claim(medium, side, "slow steps", f"{step[f'{side}_slow_steps']}")
    yield Claim(medium, "step", "change", f"{step['head_typical_ns'] - step['base_typical_ns']} ns")
    for name in ("ratio", "ratio_low", "ratio_high"):
        if step[name] is not None:
            yield Claim(medium, "step", name.replace("_", " "), write_ratio(step[name], 9))
    for kind, name in (("walls", "wall"), ("causes", "cause")):
        for row in answer["deltas"][kind]:
            for quantity in ("base", "head", "delta"):
                shown = "change" if quantity == "delta" else quantity
                yield Claim(medium, f"{name} {row[name]}", shown, f"{row[f'{quantity}_ns']} ns")


def read_page_change(text: str) -> Iterator[Claim]:
    """Claims of the page of a comparison."""
    medium, page = "page", read_page(text)
    (word,) = (shown for name, _, shown in page.elements if name == "h1")
    yield Claim(medium, "verdict", "word", word)
    change = next(
        shown for name, kinds, shown in page.elements if name == "p" and kinds.get("class") == "sub"
    )
    yield from read_change(medium, change)
    if "remove its cause" in text:
        yield Claim(medium, "cause of the change", "certainty", "certain")
    if "None is certain" in text and "Cause: " in change:
        yield Claim(medium, "cause of the change", "certainty", "uncertain")
    for name, kinds, shown in page.elements:
        if name == "p" and kinds.get("class") == "answer":
            yield from read_labels(medium, shown, _OF_CHANGE[1:])
        if name == "div" and kinds.get("class") == "side":
            sides = re.match(rf"(base|head) ({_DURATION})", shown)
            if sides is not None:
                yield Claim(medium, "step", sides[1], sides[2])
    yield from read_change_tables(medium, page.tables)


_COMMIT = r"[0-9a-f]{12}"


def read_history(text: str, medium: str = "history") -> Iterator[Claim]:
    """Claims of the history of a metric on a terminal."""
    for row in re.finditer(rf"^({_COMMIT[:-4]}{{10,12}})…? .*?({_DURATION})", text, re.MULTILINE):
        yield Claim(medium, f"commit {row[1][:10]}", "time", row[2])
    words = " ".join(text.split())
    if found := re.search(rf"(rose|fell) by .*?\(({_DURATION})\) at ({_COMMIT})", words):
        yield Claim(medium, "change", "direction", found[1])
        yield Claim(medium, "change", "size", found[2])
        yield Claim(medium, "change", "commit", found[3])


def read_history_rows(rows: list[dict], medium: str = "history rows") -> Iterator[Claim]:
    """Claims of the rows that programs read."""
    for row in rows:
        yield Claim(medium, f"commit {row['commit'][:10]}", "time", f"{row['median_ns']} ns")
        if row.get("changed_ns") is not None:
            yield Claim(medium, "change", "direction", "rose" if row["changed_ns"] > 0 else "fell")
            yield Claim(medium, "change", "size", f"{abs(row['changed_ns'])} ns")
            yield Claim(medium, "change", "commit", row["commit"][:12])


def read_bisection(text: str, medium: str = "bisection") -> Iterator[Claim]:
    """Claims of a bisection on a terminal."""
    words = " ".join(text.split())
    if found := re.search(rf"Change: ([-+])({_DURATION})", words):
        yield Claim(medium, "change", "direction", "rose" if found[1] == "+" else "fell")
    if found := re.search(rf"First commit with the change: ({_COMMIT})", words):
        yield Claim(medium, "change", "commit", found[1])
    if found := _STEP_BETWEEN.search(words):
        unit = found[2].rpartition(" ")[2]
        before = found[1] if " " in found[1] else f"{found[1]} {unit}"
        yield Claim(medium, f"commit {found[3][:10]}", "time", before)
        yield Claim(medium, f"commit {found[4][:10]}", "time", found[2])


_STEP_BETWEEN = re.compile(rf"([\d,.]+(?: \S+)?) → ({_DURATION}) from ({_COMMIT}) to ({_COMMIT})")


def read_commits(answer: dict, base: str, head: str, medium: str = "diff") -> Iterator[Claim]:
    """Claims of a comparison of two commits, as JSON."""
    step = answer["step"]
    for side, commit in (("base", base), ("head", head)):
        yield Claim(medium, f"commit {commit[:10]}", "time", f"{step[f'{side}_typical_ns']} ns")
    word = {"regression": "rose", "improvement": "fell"}.get(answer["verdict"], answer["verdict"])
    yield Claim(medium, "change", "direction", word)
