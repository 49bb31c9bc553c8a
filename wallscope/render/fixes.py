"""The first screen's end: what to do, the most worth first."""

from collections import Counter
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from wallscope import units
from wallscope.model.fixes import Fix, Met, Setting, System
from wallscope.render.colours import WALL_COLOURS
from wallscope.render.grids import titled

_MOST_FIXES = 5
_MOST_OF_ONE_CAUSE = 2
_MOST_SETTINGS = 3
_BESIDE: tuple[System, ...] = ("environment", "launcher", "nsys")
_STATUSES: tuple[Met, ...] = ("met", "unmet", "unknown")


def fixes(found: tuple[Fix, ...], unit: str) -> RenderableType:
    """At most five fixes, not more than two that answer the same cause first; the rest is counted."""
    title = f"Do, by what the {unit} could win at most; ceilings do not add up"
    return titled(title, _Fixes(first_screen(found), found))


def first_screen(found: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """The fixes that are shown first, in their order: not more than two of a cause before others."""
    taken: Counter[str] = Counter()
    first: list[int] = []
    for place, fix in enumerate(found):
        cause = fix.causes[0] if fix.causes else fix.wall
        taken[cause] += 1
        if taken[cause] <= _MOST_OF_ONE_CAUSE:
            first.append(place)
    others = [place for place in range(len(found)) if place not in first]
    return tuple(found[place] for place in sorted([*first, *others][:_MOST_FIXES]))


def checked(fix: Fix) -> str:
    """How many preconditions are met, unmet and unknown; empty without any."""
    counts = Counter(entry.status for entry in fix.preconditions)
    return ", ".join(f"{counts[status]} {status}" for status in _STATUSES if counts[status])


@dataclass(frozen=True, slots=True)
class _Fixes:
    """A block a fix: title and ceiling, settings, preconditions; what is left out is said."""

    shown: tuple[Fix, ...]
    found: tuple[Fix, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False, expand=False)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(overflow="fold")
        table.add_column(no_wrap=True, justify="right")
        for number, fix in enumerate(self.shown, start=1):
            worth = "" if fix.speedup_ceiling is None else f"{fix.speedup_ceiling:.2f}x"
            table.add_row(f"{number}", Text(fix.title, style=WALL_COLOURS[fix.wall]), worth)
            for line in _lines(fix):
                table.add_row("", line, "")
        for fix in _held_back(self.shown, self.found):
            table.add_row("-", Text(f"Held back: {fix.title}", style=WALL_COLOURS[fix.wall]), "")
            for line in _obstacles(fix):
                table.add_row("", line, "")
        if left := len(self.found) - len(self.shown):
            table.add_row(
                "", Text(f"{left} more in the JSON; wallscope explain {self.shown[0].id}", style="dim"), ""
            )
        yield table


def _held_back(shown: tuple[Fix, ...], found: tuple[Fix, ...]) -> list[Fix]:
    """Blocked fixes that would win as much as any that is shown: the first of them."""
    most_ns = max((fix.recoverable_ns or 0 for fix in shown), default=0)
    hidden = [fix for fix in found if fix.blocked and fix not in shown]
    return [fix for fix in hidden if most_ns and (fix.recoverable_ns or 0) >= most_ns][:1]


def _obstacles(fix: Fix) -> list[Text]:
    """What blocks a fix, and what unblocks it."""
    unmet = [entry for entry in fix.preconditions if entry.status == "unmet"]
    cures = [f" → {entry.unblock}" if entry.unblock else "" for entry in unmet]
    return [
        Text(f"blocked: {entry.text}{cure}", style="yellow") for entry, cure in zip(unmet, cures, strict=True)
    ]


def _lines(fix: Fix) -> list[Text]:
    """What to set, what blocks it."""
    lines = []
    if fix.settings:
        lines.append(Text(_settings(fix.settings)))
    lines += _obstacles(fix)
    told = [f"preconditions: {checked(fix)}"] if fix.preconditions else []
    told += [f"then {fix.next_wall} is next"] if fix.next_wall else []
    if told:
        lines.append(Text("; ".join(told), style="dim"))
    return lines


def _settings(settings: tuple[Setting, ...]) -> str:
    """The settings of the first system, then the environment's; the rest is counted."""
    first = settings[0].system
    own = [entry for entry in settings if entry.system == first]
    beside = [entry for entry in settings if entry.system != first and entry.system in _BESIDE]
    lines = [entry.written() for entry in (*own, *beside)]
    more = f" and {units.number(len(lines) - _MOST_SETTINGS)} more" if len(lines) > _MOST_SETTINGS else ""
    return " · ".join(lines[:_MOST_SETTINGS]) + more
