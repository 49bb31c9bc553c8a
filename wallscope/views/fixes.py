"""The first screen's end: what to do, the most worth first."""

from collections import Counter
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from wallscope import units
from wallscope.model.fixes import Fix, Met, Setting, System, first_screen
from wallscope.model.whatif import Answer, Replay
from wallscope.render.colours import WALL_COLOURS
from wallscope.render.grids import titled
from wallscope.thresholds import SHOWN_WIN_SHARE

_MOST_SETTINGS = 3
_MOST_QUESTIONS = 2
_BESIDE: tuple[System, ...] = ("environment", "launcher", "nsys")
_STATUSES: tuple[Met, ...] = ("met", "unmet", "unknown")


def fixes(found: tuple[Fix, ...], unit: str, replay: Replay | None = None) -> RenderableType:
    """At most five fixes, not more than two that answer the same cause first; the rest is counted.

    `replay` is what was played again to tell what they would win; `None` where nothing was.
    """
    title = f"Do, by what the {unit} could win at most; ceilings do not add up"
    return titled(title, _Fixes(first_screen(found), found, replay))


def replayed(answer: Answer) -> str:
    """What the step would take if all that a fix is for came true, and what is the wall then."""
    asked = " and ".join(one.text for one in answer.questions[:_MOST_QUESTIONS])
    if len(answer.questions) > _MOST_QUESTIONS:
        asked += f" and {len(answer.questions) - _MOST_QUESTIONS} more"
    before_ns = answer.step_ns + answer.won_ns
    if abs(answer.won_ns) < SHOWN_WIN_SHARE * before_ns:
        return f"replay: wins nothing, {answer.next_wall} is the wall ({asked})"
    return f"replay: {units.change(before_ns, answer.step_ns)}, then {answer.next_wall} is the wall ({asked})"


def replay_line(replay: Replay) -> str:
    """How good the replays of fixes are, or why there are none."""
    if replay.refused is not None or replay.check is None:
        return f"No replay beside the ceilings: {replay.refused}."
    beside = "" if replay.ranks == 1 else f" of {replay.ranks} ranks"
    return (
        f"Replay: {units.number(replay.operations)} operations{beside} played again, all that a fix is for"
        f" come true; told of the other steps alone {units.percent(replay.check.error_median)} off."
    )


def checked(fix: Fix) -> str:
    """How many preconditions are met, unmet and unknown; empty without any."""
    counts = Counter(entry.status for entry in fix.preconditions)
    return ", ".join(f"{counts[status]} {status}" for status in _STATUSES if counts[status])


@dataclass(frozen=True, slots=True)
class _Fixes:
    """A block a fix: title and ceiling, settings, preconditions; what is left out is said."""

    shown: tuple[Fix, ...]
    found: tuple[Fix, ...]
    replay: Replay | None

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
        if self.replay is not None:
            table.add_row("", Text(replay_line(self.replay), style="dim"), "")
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
    if fix.replay is not None:
        lines.append(Text(replayed(fix.replay)))
    lines += _obstacles(fix)
    told = [f"preconditions: {checked(fix)}"] if fix.preconditions else []
    told += [f"then {fix.next_wall} is next"] if fix.next_wall and fix.replay is None else []
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
