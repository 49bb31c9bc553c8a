"""Collect what media claim about a capture: terminal, page, Markdown, brief answer, JSON, notebook."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from html import unescape
from itertools import takewhile

from tests.views.shown import (
    DURATION,
    SHARE,
    UNIT,
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
from wallscope.model.cause_catalogue import describe_cause
from wallscope.render.data import pack_brief, write_json
from wallscope.views.analysis import render_analysis, write_analysis_card, write_analysis_markdown
from wallscope.views.brief import brief_analysis, brief_breakdown


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

    def opening(self, medium: str, text: str) -> Iterator[Claim]:
        """The cause that the sentence of the verdict names, with its time."""
        found = re.search(rf": ({DURATION}) of the [^:]*? goes to (.*)\.$", text)
        if found is not None and found[2] in self.named:
            yield Claim(medium, f"cause {self.named[found[2]]}", "time", found[1])

    def tables(self, medium: str, tables: Iterable[Table]) -> Iterator[Claim]:
        """Claims of the tables about walls and causes of the typical step."""
        for table in tables:
            if table.title.startswith("Time breakdown of the"):
                yield from read_cells(medium, table, find_wall)
                yield from read_labels(medium, table.title, _IN_TITLES)
            elif table.title.startswith(("Causes of", "Largest losses In the typical")):
                yield from read_cells(medium, table, self.find_cause)
            elif table.title.startswith("Compute kernels by category"):
                yield from read_cells(medium, table, lambda text: f"kernels {text}")
            elif table.title.startswith("Time breakdown of each"):
                yield from read_cells(medium, table, lambda text: f"step {text}" if text.isdigit() else None)


_IN_TITLES: Labels = (
    (
        rf"Time breakdown of the (?:typical {UNIT}|capture|selected time) \(({DURATION})\)",
        "step",
        "typical length",
    ),
)
_BOUNDS = {"up to": "bound", "about": "bound", "at most": "largest speedup"}
_WORTH = r"(up to|about|at most) ([\d.]+x)"
_IN_TEXT: Labels = (
    (rf"([\d,]+) of [\d,]+ {UNIT}s? steady", "steps", "steady"),
    (rf"([\d,]+) of the [\d,]+ {UNIT}s? (?:marked|found|ended) by", "steps", "steady"),
    (rf"All ([\d,]+) {UNIT}s? (?:marked|found|ended) by", "steps", "steady"),
    (rf"([\d,]+) steady {UNIT}s? of [\d,]+", "steps", "steady"),
    (rf"[\d,]+ of ([\d,]+) {UNIT}s? steady", "steps", "found"),
    (rf"(?:of the|All) ([\d,]+) {UNIT}s? (?:marked|found|ended) by", "steps", "found"),
    (rf"[\d,]+ steady {UNIT}s? of ([\d,]+)", "steps", "found"),
    (rf"[Tt]he typical {UNIT} takes ({DURATION})", "step", "typical length"),
    (rf"typical step ({DURATION});", "step", "typical length"),
    (rf"of the typical ({DURATION}) {UNIT}\b(?! on)", "step", "typical length"),
    (
        rf"(?:loss:|takes) {SHARE} of the ({DURATION}) (?:capture|selected time)[.,;(]",
        "step",
        "typical length",
    ),
    (rf"the slowest takes ({DURATION})", "step", "slowest"),
    (rf"[Rr]eplay error(?::| is)? ({SHARE})", "replay", "error"),
    (rf"simulates\s+{UNIT}\s+times\s+with\s+an\s+error\s+of\s+({SHARE})", "replay", "error"),
    (rf"\(median of ([\d,]+) steady {UNIT}s\)", "steps", "steady"),
    (r"\bconfidence (high|medium|low):", "verdict", "confidence"),
    (r"\b(High|Medium|Low) confidence\b", "verdict", "confidence"),
    (r"[Mm]emory pressure(?::| is)? (high|near the limit|none|unknown)", "memory", "pressure"),
)
_LARGEST_LOSS = re.compile(
    r"(Communication|Waiting for peers|Memory time|Host time|Memory|Host)(?: \([^)]*\))?"
    rf" is the largest loss: ({SHARE})|(Compute) takes ({SHARE}) of"
)
_HEADLINE = re.compile(r"[A-Z]+-BOUND|NO SINGLE WALL|WALL UNKNOWN")
_LOSSES = {"Waiting for peers": "communication", "Memory time": "memory", "Host time": "host"}


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
    return print_shown(render_analysis(analysis, "run.sqlite", is_full=is_full), columns)


def _join(lines: Iterable[str]) -> str:
    """Text without the line breaks that the width makes; sections keep theirs."""
    text = "\n".join(lines)
    return re.sub(r"(?<=\S)\n +(?=\S)", " ", text)


def read_terminal(answered: Answered, lines: list[str], medium: str = "terminal") -> Iterator[Claim]:
    """Claims of the first screen or the full output of a terminal."""
    text = _join(lines)
    place = next(number for number, line in enumerate(lines) if _HEADLINE.match(line))
    opening = [*takewhile(lambda line: line.strip() and line[0] != " ", lines[place:])]
    yield read_headline(medium, " ".join(opening).partition(": ")[0])
    yield from answered.opening(medium, " ".join(opening))
    verdict = _join(lines[place + len(opening) :]).partition("\n\n")[0]
    if "of the whole capture:" not in verdict:
        yield from read_lead(medium, verdict)
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
        found = re.match(rf" *([A-Z][a-z]+(?: overhead)?) .*?({SHARE}) +({DURATION})(?:  ◀)?$", line)
        subject = None if found is None else find_wall(found[1])
        if found is not None and subject is not None:
            yield Claim(medium, subject, "headline share", found[2])
            yield Claim(medium, subject, "time" if has_median else "headline time", found[3])


def _read_listed_fixes(medium: str, lines: list[str], answered: Answered) -> Iterator[Claim]:
    """The bound at the right edge of the line of a fix, whose title may go on below."""
    block = "\n".join(lines).partition("\nRecommendations")[2].partition("\n\n")[0].split("\n")[1:]
    rows = [re.match(rf"  (?:(\d+|-) +)(.*?)(?: {{2,}}{_WORTH})?$", line) for line in block]
    for place, row in enumerate(rows):
        if row is None or row[4] is None:
            continue
        title = row[2].removeprefix("Held back: ")
        for line in block[place + 1 :]:
            if title in answered.fixes or not line.startswith("     "[:4]):
                break
            title = f"{title} {line.strip()}"
        title = re.sub(r" \([a-z0-9-]+\)$", "", title)
        if title in answered.fixes:
            yield Claim(medium, answered.fixes[title], _BOUNDS[row[3]], row[4])


def read_page_claims(answered: Answered) -> Iterator[Claim]:
    """Claims of the page."""
    medium, page = "page", read_page(answered.page)
    elements = page.elements
    (headline,) = (text for name, _, text in elements if name == "h1")
    yield read_headline(medium, headline.partition(": ")[0])
    yield from answered.tables(medium, page.tables)
    yield from answered.opening(medium, headline)
    yield from _read_pairs(medium, answered)
    for name, attributes, text in elements:
        kind = attributes.get("class") or ""
        if (
            name == "h1"
            or (name == "div" and kind in {"sure", "likely", "unknown", "bad"})
            or (name == "p" and kind.startswith(("answer", "note", "lead")))
        ):
            yield from read_labels(medium, text, _IN_TEXT)
    for one in re.findall(r'<li class="rec.*?<details', answered.page, re.DOTALL):
        title = re.search(r"<h3>(.*?)</h3>", one, re.DOTALL)
        bound = re.search(rf'<span class="up"[^>]*>{_WORTH}', one)
        if title and bound:
            name = re.sub(r"^\d+", "", strip_tags(title[1])).strip()
            if name in answered.fixes:
                yield Claim(medium, answered.fixes[name], _BOUNDS[bound[1]], bound[2])


def strip_tags(text: str) -> str:
    """Text of a piece of a page."""
    return " ".join(unescape(re.sub(r"<[^>]+>", "", text)).split())


def _read_pairs(medium: str, answered: Answered) -> Iterator[Claim]:
    """The legend of the bar."""
    legend = answered.page.partition('<dl class="legend">')[2].partition("</dl>")[0]
    is_median = "Shares are medians of" in answered.page
    for name, value in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", legend):
        subject = find_wall(strip_tags(name).partition(" ◀")[0])
        found = re.match(rf"({SHARE}) (.*?)(?: p10|$)", strip_tags(value))
        if subject and found:
            yield Claim(medium, subject, "headline share", found[1])
            yield Claim(medium, subject, "time" if is_median else "headline time", found[2])


def read_markdown(answered: Answered, text: str, medium: str = "markdown") -> Iterator[Claim]:
    """Claims of the comment on a pull request."""
    head = re.match(r"### wallscope: (.*)\n\n(.*)", text)
    assert head is not None
    opening = head[1].replace("\\", "")
    yield read_headline(medium, opening.partition(": ")[0])
    yield from answered.opening(medium, opening)
    yield from read_lead(medium, head[2])
    yield from read_labels(medium, text, _IN_TEXT)
    yield from answered.tables(medium, list_markdown_tables(text))
    for title, kind, bound in re.findall(rf"^\d+\. \*\*(.*?)\*\* \(\w+; {_WORTH}", text, re.MULTILINE):
        name = title.replace("\\", "")
        if name in answered.fixes:
            yield Claim(medium, answered.fixes[name], _BOUNDS[kind], bound)


def read_brief(packed: dict, medium: str = "brief") -> Iterator[Claim]:
    """Claims of a brief answer, as it is published; each number has its place in the JSON as a name."""
    yield read_headline(medium, packed["verdict"].partition(": ")[0])
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
        if "most_speedup" in one:
            yield Claim(medium, f"fix {one['id']}", "largest speedup", f"{one['most_speedup']:.5g}x")
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
    for one in rank["compute"]:
        told.append((f"kernels {one['category']}", "work", f"{one['work_ns']} ns"))
        told.append((f"kernels {one['category']}", "work share", write_share(one["share"])))
    for step in rank["steps"]:
        told.append((f"step {step['index']}", "length", f"{step['end_ns'] - step['start_ns']} ns"))
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
        if one["most_speedup"] is not None:
            yield f"fix {one['id']}", "largest speedup", f"{one['most_speedup']:.6f}x"


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
    card = re.search(r"<div><b>(.*?): .*?\.</b>", write_analysis_card(analysis))
    assert card is not None
    claims.append(read_headline("card", card[1]))
    if page:
        claims += read_page_claims(answered)
    return claims
