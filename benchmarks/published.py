"""Whether what is written acts on whoever opens it, and whether a trace says what the answer says."""

import csv
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

_OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Categories of letters that a terminal or an editor obeys and does not show."""
_ACTING_TAGS = {"img", "iframe", "object", "embed", "base", "form", "video", "audio"}
_FORMULA = re.compile(r"[=+@\t\r-]")
_LONGEST_CELL = 16 << 20
_PARTED = re.compile("(?<=[@:$#-])\u200b")  # Markdown's own: nothing is mentioned, linked or run across it
_NOTHING_BUT_LETTERS = re.compile(r"`[^`\n]*`|\\.")
"""Code and letters behind a backslash: Markdown shows them as they are."""
_WRITTEN_OUT = re.compile(r"<\s*(script|img|iframe)|javascript:(?!\u200b)", re.IGNORECASE)


class HarmfulError(Exception):
    """Something written acts, or is not what it says it is."""


def check_text(text: str, where: str) -> None:
    """No letter is obeyed, but line breaks.

    Raises:
        HarmfulError: one is.
    """
    held = sorted({letter for letter in text if unicodedata.category(letter) in _OBEYED} - {"\n"})
    if held:
        raise HarmfulError(f"{where} holds {held}")


def check_markdown(path: Path) -> None:
    """No element that acts, no letter that is obeyed.

    Raises:
        HarmfulError: there is one.
    """
    text = path.read_text(encoding="utf-8")
    check_text(_PARTED.sub("", text), path.name)
    found = _WRITTEN_OUT.search(_NOTHING_BUT_LETTERS.sub("", text))
    if found:
        raise HarmfulError(f"{path.name} holds {found[0]}")


def check_page(path: Path) -> None:
    """No element or attribute that acts, and no script but those that the policy names.

    Raises:
        HarmfulError: there is one.
    """
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    if page.acting:
        raise HarmfulError(f"{path.name} holds {sorted(page.acting)}")
    if page.scripts > page.allowed:
        raise HarmfulError(f"{path.name} has {page.scripts} scripts, {page.allowed} are allowed")


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.acting: set[str] = set()
        self.scripts = self.allowed = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if tag in _ACTING_TAGS:
            self.acting.add(tag)
        self.acting |= {name for name in told if name.startswith("on")}
        target = str(told.get("href")).strip().lower()
        is_icon = tag == "link" and told.get("rel") == "icon" and target == "data:,"
        if tag == "link" and not is_icon:
            self.acting.add(tag)
        if target.startswith(("javascript:", "data:")) and not is_icon:
            self.acting.add("href")
        if tag == "meta" and told.get("http-equiv", "") == "Content-Security-Policy":
            self.allowed = str(told["content"]).count("'sha256-")
        self.scripts += tag == "script" and told.get("type") in (None, "", "module", "text/javascript")


def check_csv(folder: Path) -> None:
    """Each row has all cells, none is a formula or holds a letter that is obeyed.

    Raises:
        HarmfulError: it is not so.
    """
    csv.field_size_limit(_LONGEST_CELL)
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as stream:
            head, *rows = csv.reader(stream)
        for row in rows:
            if len(row) != len(head):
                raise HarmfulError(f"{path.name} has a row of {len(row)} cells, not {len(head)}")
            for cell in row:
                if _FORMULA.match(cell) and not _is_number(cell):
                    raise HarmfulError(f"{path.name} holds the formula {cell[:50]!r}")
        check_text("".join({cell for row in rows for cell in row}), path.name)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def check_trace(path: Path, answer: Mapping[str, Any]) -> None:
    """Perfetto's own classes read it, slices nest, names are harmless, and walls sum to the answer's.

    Raises:
        HarmfulError: it is not so.
    """
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos  # noqa: PLC0415  # slow to import

    trace = protos.Trace()
    trace.ParseFromString(path.read_bytes())
    texts: dict[int, str] = {}
    tracks: dict[int, str] = {}
    events: dict[int, list[tuple[int, Any]]] = defaultdict(list)
    notes = [entry.str.decode() for packet in trace.packet for entry in _noted(packet)]
    for packet in trace.packet:
        texts |= {entry.iid: entry.name for entry in packet.interned_data.event_names}
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
        if packet.HasField("track_event"):
            events[packet.track_event.track_uuid].append((packet.timestamp, packet.track_event))
    check_text("".join((*texts.values(), *tracks.values(), *notes)), path.name)
    if not events.keys() <= tracks.keys():
        raise HarmfulError(f"{path.name} has events on no track")
    slices = {number: _slices(path, own, texts) for number, own in events.items()}
    sums: Counter[str] = Counter()
    for name, length_ns in (one for number in slices if tracks[number] == "walls" for one in slices[number]):
        sums[name] += length_ns
    told: Counter[str] = Counter()
    for step in (step for rank in answer["ranks"] for step in rank["steps"]):
        told.update(step["walls"] or {})
    if +sums != +told:
        raise HarmfulError(f"walls of {path.name} are {+sums}, the answer's {+told}")


def _noted(packet: Any) -> Iterable[Any]:
    return packet.interned_data.debug_annotation_string_values  # type: ignore[no-any-return]  # no types


def _slices(path: Path, events: Iterable[tuple[int, Any]], texts: Mapping[int, str]) -> list[tuple[str, int]]:
    """Name and length of each slice of a track, whose ends must be those of what began last."""
    found, opened = [], []
    for at_ns, event in sorted(events, key=lambda one: one[0]):
        if event.type == event.TYPE_SLICE_BEGIN:
            opened.append((texts[event.name_iid], at_ns))
        elif event.type == event.TYPE_SLICE_END:
            if not opened:
                raise HarmfulError(f"{path.name} has an end of nothing")
            name, start_ns = opened.pop()
            found.append((name, at_ns - start_ns))
    if opened:
        raise HarmfulError(f"{path.name} has slices without end")
    return found
