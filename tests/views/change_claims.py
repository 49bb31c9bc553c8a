"""Collect what media claim about a change: of two captures, or in the history of a store."""

import json
import re
from collections.abc import Iterable, Iterator

from tests.views.shown import (
    DURATION,
    Claim,
    Labels,
    Table,
    find_wall,
    list_markdown_tables,
    list_terminal_tables,
    print_shown,
    read_cells,
    read_labels,
    read_page,
)
from wallscope.model.enums import Wall
from wallscope.render.data import DIGITS_COUNT, pack_brief, write_json
from wallscope.views.brief import brief_comparison
from wallscope.views.comparison import render_comparison, write_comparison_markdown


def print_comparison(comparison, columns: int, *, is_full: bool) -> list[str]:
    """What a terminal shows of a comparison."""
    return print_shown(render_comparison(comparison, full=is_full), columns)


_SIGNED = r"[-+]?[\d.]+ %"
_WORDS = {
    "regression": "slower",
    "improvement": "faster",
    "no-change": "no change",
    "inconclusive": "inconclusive",
    "incomparable": "not comparable",
}
_CAUSES = {"Cause": "sure", "Likely cause": "likely", "Possible cause": "possible"}
_OF_CHANGE: Labels = (
    (rf"\(({_SIGNED})\)", "step", "ratio"),
    (rf"changed by ([-+]{DURATION}) \(", "step", "change"),
    (rf"changed by [-+]{DURATION} \(({_SIGNED})", "step", "ratio"),
    (r"(the (?:mean|typical)) [\w ]+ (?:rose|fell|went) from", "step", "compared"),
    (r"over 1.25 times the median: ([\d,]+) of [\d,]+ in base", "base", "slow steps"),
    (r"in base, ([\d,]+) of [\d,]+ in head", "head", "slow steps"),
)
_STEP = re.compile(rf"from ([\d,.]+(?: \S+)?) to ({DURATION}) \(")
_ENDS = re.compile(rf"{_SIGNED}, 95 % CI ([-+]?[\d.]+) … ([-+]?[\d.]+ %)\)")


_INTERVALS = frozenset({"95 % CI", "95 % interval"})
_OF_INTERVAL = re.compile(
    r"(?P<low>[-+]?[\d,.]+(?: (?:ns|µs|ms|s))?) … (?P<high>[-+]?[\d,.]+(?: (?:ns|µs|ms|s))?)"
    r"(?:, (?P<grade>likely|possible|not significant.*))?"
)


def read_interval_cell(medium: str, subject: str, text: str, unit: str = "") -> Iterator[Claim]:
    """Claims of a cell with both ends of an interval, in the unit of the second one or of the table."""
    found = _OF_INTERVAL.fullmatch(text)
    if found is None:
        return
    unit = found["high"].partition(" ")[2] or unit
    for end in ("low", "high"):
        number, _, own = found[end].partition(" ")
        yield Claim(medium, subject, end, f"{number} {own or unit}")
    if found["grade"] in {"likely", "possible"}:
        yield Claim(medium, subject, "grade", found["grade"])


def find_row(text: str) -> str | None:
    """The wall or the step that a row of a comparison is about."""
    name = re.split(r" [│█]", text)[0].strip("* ")
    return "step" if name in {"step", "window", "typical"} else find_wall(name)


def find_listed_cause(text: str) -> str | None:
    """The cause that a row is about, by its identifier."""
    return f"cause {text}" if text.partition("/")[0] in set(map(str, Wall)) and "/" in text else None


def read_change(medium: str, text: str) -> Iterator[Claim]:
    """Claims of the sentence that says how the step changed."""
    if found := _STEP.search(text):
        unit = found[2].rpartition(" ")[2]
        before = found[1] if " " in found[1] else f"{found[1]} {unit}"
        yield Claim(medium, "step", "base", before)
        yield Claim(medium, "step", "head", found[2])
        yield from read_labels(medium, text, _OF_CHANGE[:4])
    if found and (ends := _ENDS.search(text)):
        yield Claim(medium, "step", "ratio low", f"{ends[1]} %")
        yield Claim(medium, "step", "ratio high", ends[2])
    for cause in re.findall(rf"(?<= )({'|'.join(_CAUSES)}): ", text, re.IGNORECASE):
        yield Claim(medium, "cause of the change", "certainty", _CAUSES[cause.capitalize()])
        yield Claim(medium, "cause of the change", "named", "yes")
    if re.search(r"(?<= )The largest change(?:, although uncertain,| between)|no cause is certain", text):
        yield Claim(medium, "cause of the change", "named", "no")
    yield from read_labels(medium, text, _OF_CHANGE[4:])


def read_change_tables(medium: str, tables: Iterable[Table]) -> Iterator[Claim]:
    """Claims of the tables about walls, causes and the step."""
    for table in tables:
        columns = [column.partition(" (")[0] for column in table.columns]
        if {"base", "head", "change"} <= set(columns) or {"cause", "change"} <= set(columns):
            yield from read_cells(medium, table, lambda text: find_row(text) or find_listed_cause(text))
            place = next((place for place, name in enumerate(columns) if name in _INTERVALS), None)
            for row in table.rows:
                subject = find_row(row[0]) or find_listed_cause(row[0])
                if subject is not None and place is not None and place < len(row):
                    yield from read_interval_cell(medium, subject, row[place])
        elif "base → head" in columns:
            unit = table.columns[0]
            for row in table.rows:
                subject = find_row(row[0])
                if subject is not None:
                    for name, value in zip(("base", "head"), row[1].split(" → "), strict=True):
                        yield Claim(medium, subject, name, f"{value} {unit}")
                    yield Claim(medium, subject, "change", f"{row[2]} {unit}")
                    if "95 % CI" in columns:
                        yield from read_interval_cell(medium, subject, row[3], unit)


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
    found = re.search(rf"^({words}): (.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    yield Claim(medium, "verdict", "word", found[1])
    yield from read_change(medium, " ".join(found[2].split()))
    yield from read_change_tables(medium, list_terminal_tables(lines))


def read_markdown_change(text: str) -> Iterator[Claim]:
    """Claims of the comment on a pull request."""
    medium = "markdown"
    head = re.match(r"### wallscope: (.*)", text)
    change = re.search(r"^\*\*(.*?)\*\*\n\n(.*)$", text, re.MULTILINE)
    assert head is not None
    assert change is not None
    yield Claim(medium, "verdict", "word", head[1])
    yield from read_change(medium, f"{change[1]} {change[2]}")
    yield from read_change_tables(medium, list_markdown_tables(text))


def read_brief_change(packed: dict) -> Iterator[Claim]:
    """Claims of the brief answer."""
    medium = "brief"
    word, _, rest = packed["verdict"].partition(": ")
    yield Claim(medium, "verdict", "word", word)
    yield from read_change(medium, rest)
    for pointer, value in packed["numbers"].items():
        name = pointer.rpartition("/")[2]
        if name.endswith("_ns"):
            yield Claim(medium, "step", name.partition("_")[0], f"{value} ns")
        else:
            quantity = name.removeprefix("mean_").replace("_", " ")
            yield Claim(medium, "step", quantity, write_ratio(value, DIGITS_COUNT))
    for one in packed.get("changes", ()):
        for side in ("base", "head"):
            yield Claim(medium, f"cause {one['cause']}", side, f"{one[f'{side}_ns']} ns")
        yield Claim(medium, f"cause {one['cause']}", "change", f"{one['delta_ns']} ns")


def write_ratio(ratio: float, digits: int) -> str:
    """A ratio that is rounded to some digits, as the change that media show."""
    return f"{100 * (ratio - 1):.{max(digits - len(str(int(ratio))) - 2, 0)}f} %"


def read_json_change(text: str) -> Iterator[Claim]:
    """Claims of the answer as JSON."""
    medium, answer = "json", json.loads(text)
    step = answer["step"]
    yield Claim(medium, "verdict", "word", _WORDS[answer["verdict"]])
    compared, prefix = step["compared"], "mean_" if step["compared"] == "mean" else ""
    base_ns, head_ns = (step[f"{side}_{compared}_ns"] for side in ("base", "head"))
    yield Claim(medium, "step", "compared", f"the {compared}")
    for side in ("base", "head"):
        yield Claim(medium, "step", side, f"{step[f'{side}_{compared}_ns']} ns")
        yield Claim(medium, side, "slow steps", f"{step[f'{side}_slow_steps']}")
    yield Claim(medium, "step", "change", f"{head_ns - base_ns} ns")
    ratio = head_ns / base_ns if prefix else step["ratio"]
    yield Claim(medium, "step", "ratio", write_ratio(ratio, 11))
    for end in ("low", "high"):
        if (bound := step[f"{prefix}ratio_{end}"]) is not None:
            yield Claim(medium, "step", f"ratio {end}", write_ratio(bound, 11))
            if step["replication"] != "same":
                yield Claim(medium, "step", end, f"{(bound - 1) * base_ns:.1f} ns")
    yield from read_change(medium, answer["opening"].partition(": ")[2])
    for kind, name in (("walls", "wall"), ("causes", "cause")):
        yield from _read_json_rows(medium, name, answer["deltas"][kind])


def _read_json_rows(medium: str, name: str, rows: list[dict]) -> Iterator[Claim]:
    """Claims of the changes of walls or causes in the JSON."""
    for row in rows:
        subject = f"{name} {row[name]}"
        for quantity in ("base", "head", "delta"):
            shown = "change" if quantity == "delta" else quantity
            yield Claim(medium, subject, shown, f"{row[f'{quantity}_ns']} ns")
        for end in ("low", "high"):
            if row[f"{end}_ns"] is not None:
                yield Claim(medium, subject, end, f"{row[f'{end}_ns']} ns")
        if row["grade"] is not None:
            yield Claim(medium, subject, "grade", row["grade"])


def read_page_change(text: str) -> Iterator[Claim]:
    """Claims of the page of a comparison."""
    medium, page = "page", read_page(text)
    (opening,) = (shown for name, _, shown in page.elements if name == "h1")
    yield Claim(medium, "verdict", "word", opening.partition(": ")[0])
    change = next(
        shown for name, kinds, shown in page.elements if name == "p" and kinds.get("class") == "lead"
    )
    yield from read_change(medium, f"{opening.partition(': ')[2]} {change}")
    if "remove its cause" in text:
        yield Claim(medium, "cause of the change", "named", "yes")
    if "None is certain" in text:
        yield Claim(medium, "cause of the change", "named", "no")
    for name, kinds, shown in page.elements:
        if name == "p" and kinds.get("class") == "answer":
            yield from read_labels(medium, shown, _OF_CHANGE[4:])
        if name == "div" and kinds.get("class") == "side":
            sides = re.match(rf"(base|head) ({DURATION})", shown)
            if sides is not None:
                yield Claim(medium, "step", sides[1], sides[2])
    yield from read_change_tables(medium, page.tables)


_COMMIT = r"[0-9a-f]{12}"


def read_history(text: str, medium: str = "history") -> Iterator[Claim]:
    """Claims of the history of a metric on a terminal."""
    for row in re.finditer(rf"^({_COMMIT[:-4]}{{10,12}})…? .*?({DURATION})", text, re.MULTILINE):
        yield Claim(medium, f"commit {row[1][:10]}", "time", row[2])
    words = " ".join(text.split())
    if found := re.search(rf"(rose|fell) by .*?\(({DURATION})\) at ({_COMMIT})", words):
        yield Claim(medium, "change", "direction", found[1])
        yield Claim(medium, "change", "size", found[2])
        yield Claim(medium, "change", "commit", found[3])
    if found := re.search(rf"(?:rose|fell) by ([\d.]+ %) \({DURATION}\) at", words):
        yield Claim(medium, "change", "share", found[1])


def read_history_rows(rows: list[dict], medium: str = "history rows") -> Iterator[Claim]:
    """Claims of the rows that programs read."""
    for row in rows:
        yield Claim(medium, f"commit {row['commit'][:10]}", "time", f"{row['median_ns']} ns")
        if row.get("changed_ns") is not None:
            yield Claim(medium, "change", "direction", "rose" if row["changed_ns"] > 0 else "fell")
            yield Claim(medium, "change", "size", f"{abs(row['changed_ns'])} ns")
            yield Claim(medium, "change", "commit", row["commit"][:12])
            yield Claim(medium, "change", "share", f"{100 * abs(row['changed_ratio'] - 1):.6f} %")


_SAMPLE = re.compile(r'^wallscope_(\w+)\{.*commit="(\w+)".*\} (\S+) \S+$', re.MULTILINE)


def read_open_metrics(text: str, medium: str = "openmetrics") -> Iterator[Claim]:
    """Claims of the samples that a monitoring system scrapes."""
    for name, commit, value in _SAMPLE.findall(text):
        if name == "time_seconds":
            yield Claim(medium, f"commit {commit[:10]}", "time", f"{1e9 * float(value):.0f} ns")
        elif name == "change_ratio":
            yield Claim(medium, "change", "direction", "rose" if float(value) > 1 else "fell")
            yield Claim(medium, "change", "commit", commit[:12])
            yield Claim(medium, "change", "share", f"{100 * abs(float(value) - 1):.6f} %")


def read_bisection(text: str, medium: str = "bisection") -> Iterator[Claim]:
    """Claims of a bisection on a terminal."""
    words = " ".join(text.split())
    if found := re.search(rf"Change: ([-+])({DURATION})", words):
        yield Claim(medium, "change", "direction", "rose" if found[1] == "+" else "fell")
    if found := re.search(rf"First commit with the change: ({_COMMIT})", words):
        yield Claim(medium, "change", "commit", found[1])
    if found := _STEP_BETWEEN.search(words):
        unit = found[2].rpartition(" ")[2]
        before = found[1] if " " in found[1] else f"{found[1]} {unit}"
        yield Claim(medium, f"commit {found[3][:10]}", "time", before)
        yield Claim(medium, f"commit {found[4][:10]}", "time", found[2])


_STEP_BETWEEN = re.compile(rf"([\d,.]+(?: \S+)?) → ({DURATION}) from ({_COMMIT}) to ({_COMMIT})")


def read_commits(answer: dict, base: str, head: str, medium: str = "diff") -> Iterator[Claim]:
    """Claims of a comparison of two commits, as JSON."""
    step = answer["step"]
    for side, commit in (("base", base), ("head", head)):
        yield Claim(medium, f"commit {commit[:10]}", "time", f"{step[f'{side}_typical_ns']} ns")
    word = {"regression": "rose", "improvement": "fell"}.get(answer["verdict"], answer["verdict"])
    yield Claim(medium, "change", "direction", word)
