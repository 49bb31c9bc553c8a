"""Brief answers about captures, comparisons and what-if questions: the verdict, a few numbers, what to do.

Nothing is computed here: all is selected from full answers, and each number names its place there.
"""

from collections.abc import Iterator
from shlex import quote

from wallscope import units
from wallscope.finding_texts import list_finding_words
from wallscope.model.advice import Fix
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.brief import (
    BRIEF_SCHEMA,
    AnalysisBrief,
    BreakdownBrief,
    BriefAnswer,
    BriefCause,
    BriefChange,
    ComparisonBrief,
    CutText,
    NextCall,
    Recommendation,
    Unknown,
    WhatIfBrief,
)
from wallscope.model.capture import Severity
from wallscope.model.comparison import Comparison
from wallscope.model.enums import Wall
from wallscope.model.whatif import WhatIf
from wallscope.render.texts import spell_out, visible
from wallscope.views.comparison_statement import state_comparison
from wallscope.views.sections.findings import sort_findings, sort_reasons
from wallscope.views.sections.walls import (
    count_preconditions,
    number_fixes,
    select_settings,
)
from wallscope.views.statement import Statement, state_analysis
from wallscope.views.verdict import TimeBasis

_LONGEST_VERDICT, _LONGEST_LINE, _LONGEST_TITLE, _LONGEST_CURE = 400, 180, 90, 120
_MOST_SETTINGS, _MOST_SETTINGS_OF_FEW = 8, 1
_MOST_CHECKS, _MOST_UNKNOWN, _FEW = 3, 1, 5


def cut_sentences(text: str, most: int) -> str:
    """Return the first whole sentences that have room, at least a cut one.

    >>> cut_sentences("One thing. Another one. A third.", 24), cut_sentences("No end at all", 6)
    ('One thing. Another one.', 'No en…')
    """
    text = " ".join(text.split())
    end = text.rfind(". ", 0, most + 1)
    if len(text) <= most or end <= 0:
        return cut_text(text, most)
    return CutText(spell_out(text), len(spell_out(text[: end + 1])))


def cut_text(text: str, most: int) -> str:
    """Return a text that is cut where it is too long; the whole stays with it, so that names in it are found.

    >>> cut_text("No end at all", 6), cut_text("No end at all", 6).whole
    ('No en…', 'No end at all')
    """
    if len(text) <= most:
        return spell_out(text)
    return CutText(spell_out(text), len(spell_out(text[: most - 1])), "…")


def write_command(*words: str) -> str:
    """Write a command line that a shell takes."""
    return " ".join(("wallscope", *map(quote, words)))


def brief_analysis(
    analysis: Analysis, files: tuple[str, ...], most_rows: int, *, has_details: bool = False
) -> AnalysisBrief:
    """Return what limits the step and what to do.

    Args:
        analysis: the full answer.
        files: the inputs as the user named them, for the next command.
        most_rows: how many recommendations at most.
        has_details: whether to list all settings, and what to check first.
    """
    told = state_analysis(analysis)
    fixes = analysis.fixes or ()
    order = number_fixes(fixes)
    return AnalysisBrief(
        BRIEF_SCHEMA,
        "analyze",
        _describe_subject(analysis),
        _pick_verdict(analysis, told),
        _choose_next(analysis, files),
        dict(list(_list_shares(analysis, told.basis))[:_FEW]),
        _describe_confidence(analysis),
        tuple(_list_unknown(analysis))[: _MOST_UNKNOWN if most_rows <= _FEW else most_rows],
        (len(order) - most_rows) if len(order) > most_rows else None,
        tuple(_brief_fix(fix, fixes.index(fix), has_details=has_details) for fix in order[:most_rows]),
    )


def brief_breakdown(analysis: Analysis, files: tuple[str, ...], most_rows: int) -> BreakdownBrief:
    """Return the walls of the typical step as numbers and their causes, the largest first."""
    place = analysis.diagnosis.rank_index
    causes = analysis.ranks[place].causes
    listed = [
        BriefCause(
            entry.cause,
            entry.typical_ns,
            entry.share,
            f"/ranks/{place}/causes/{number}",
            entry.recoverable_ns,
        )
        for number, entry in enumerate(causes)
    ]
    return BreakdownBrief(
        BRIEF_SCHEMA,
        "analyze",
        _describe_subject(analysis),
        _pick_verdict(analysis, state_analysis(analysis)),
        NextCall(write_command("gaps", files[0], "--brief"), "gaps", {"file": files[0]}),
        dict(_list_wall_times(analysis)),
        _describe_confidence(analysis),
        tuple(_list_unknown(analysis))[:most_rows],
        (len(causes) - most_rows) if len(causes) > most_rows else None,
        tuple(sorted(listed, key=lambda row: -row.typical_ns)[:most_rows]),
    )


def _pick_verdict(analysis: Analysis, told: Statement) -> str:
    told_of_job = "" if analysis.job is None else analysis.job.verdict
    return cut_sentences(" ".join(filter(None, (told.opening, told.sentence, told_of_job))), _LONGEST_VERDICT)


def _describe_subject(analysis: Analysis) -> str:
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    inputs = analysis.inputs
    gpu = inputs[rank.input].gpu(rank.gpu)
    names = visible(inputs[0].name, most=60) if len(inputs) == 1 else units.plural(len(inputs), "export")
    number = "" if rank.rank is None else f"rank {rank.rank}"
    world = analysis.capture.world_size
    if world is not None and world > 1:
        number = f"{number or units.plural(len(analysis.ranks), 'rank')} of {world}"
    elif len(analysis.ranks) > 1:
        number = f"{number or f'device {rank.device}'}, 1 of {len(analysis.ranks)} ranks"
    parts = (
        names,
        visible(gpu.name or "", most=40) if gpu else "",
        number,
        _describe_step_times(analysis, rank),
    )
    return ", ".join(part for part in parts if part)


def _describe_step_times(analysis: Analysis, rank: Rank) -> str:
    if analysis.anchor.kind == "whole-trace":
        return "no step found, one window"
    steady = sum(step.steady for step in rank.steps)
    return f"{steady} of {units.plural(len(rank.steps), analysis.anchor.unit)} steady"


def _list_shares(analysis: Analysis, basis: TimeBasis) -> Iterator[tuple[str, int | float]]:
    """List the step and the deciding shares; times where the answer has no such shares."""
    place = analysis.diagnosis.rank_index
    rank, shares = analysis.ranks[place], analysis.diagnosis.walls
    times = list(_list_wall_times(analysis))
    if basis.kind in {"job", "whole"}:
        above = "/job/walls" if basis.kind == "job" else f"/ranks/{place}/whole_walls"
        yield from ((f"{above}/{wall}", getattr(basis.walls, wall)) for wall in Wall)
    elif shares is None:
        yield from times
    elif basis.kind == "mean" and rank.mean_step_ns is not None:
        yield f"/ranks/{place}/mean_step_ns", rank.mean_step_ns
        yield from ((f"/diagnosis/walls/{wall}/mean_share", basis.share(wall)) for wall in Wall)
    else:
        yield times[0]
        yield from ((f"/diagnosis/walls/{wall}/share", getattr(shares, wall).share) for wall in Wall)


def _list_wall_times(analysis: Analysis) -> Iterator[tuple[str, int]]:
    """List the typical step and its walls."""
    place = analysis.diagnosis.rank_index
    typical = analysis.ranks[place].typical
    yield f"/ranks/{place}/typical/step_ns", typical.step_ns
    for wall in Wall:
        yield f"/ranks/{place}/typical/walls/{wall}", getattr(typical.walls, wall)


def _describe_confidence(analysis: Analysis) -> str | None:
    sure = analysis.diagnosis.confidence
    if sure is None:
        return None
    doubts, known = sort_reasons(analysis)
    first, *others = (*doubts, *known, "")
    told = f"{sure.level}: {first}"
    for reason in filter(None, others):
        if len(told) + len(reason) + 2 > _LONGEST_LINE:
            break
        told += f"; {reason}"
    return cut_sentences(told, _LONGEST_LINE)


def _list_unknown(analysis: Analysis) -> Iterator[Unknown]:
    """List what the capture does not show, the most severe first."""
    diagnosis, replay = analysis.diagnosis, analysis.replay
    ordered = sort_findings(analysis.capture.findings)
    if diagnosis.dominant_wall == "unknown":
        because = cut_sentences(diagnosis.verdict, _LONGEST_LINE)
        yield Unknown("the dominant wall", because, next((one.cure for one in ordered if one.cure), None))
    grave = [entry for entry in ordered if entry.severity != Severity.INFO]
    light = [entry for entry in analysis.capture.findings if entry.severity == Severity.INFO and entry.cure]
    unknown = list_finding_words("unknown")
    for entry in (*grave, *light):
        what = unknown.get(entry.code, entry.code)
        cure = None if entry.cure is None else cut_sentences(entry.cure, _LONGEST_CURE)
        yield Unknown(what, cut_sentences(entry.message, _LONGEST_LINE), cure)
    if replay is not None and replay.refused is not None:
        yield Unknown("the replayed gain of fixes", cut_sentences(replay.refused, _LONGEST_LINE))


def _choose_next(analysis: Analysis, files: tuple[str, ...]) -> NextCall:
    first = next((fix for fix in analysis.fixes or () if not fix.blocked), None)
    if analysis.diagnosis.dominant_wall == "unknown" or first is None:
        if analysis.diagnosis.dominant_wall == "unknown":
            return NextCall(write_command("capture-help", files[0]), "capture_help", {"file": files[0]})
        return NextCall(write_command("gaps", files[0], "--brief"), "gaps", {"file": files[0]})
    return NextCall(write_command("explain", first.id), "explain", {"word": first.id})


def _brief_fix(fix: Fix, place: int, *, has_details: bool) -> Recommendation:
    own = [entry.write_code() for entry in select_settings(fix.settings)]
    most = _MOST_SETTINGS if has_details else _MOST_SETTINGS_OF_FEW
    unmet = [entry.unblock or entry.text for entry in fix.preconditions if entry.status == "unmet"]
    check = [entry.text for entry in fix.preconditions if entry.status == "unknown"]
    most = 0 if unmet and not has_details else most  # what blocks a fix comes before its settings
    shown = tuple(cut_text(line, _LONGEST_TITLE) for line in own[:most])
    return Recommendation(
        fix.id,
        cut_text(fix.title, _LONGEST_TITLE),
        f"/fixes/{place}",
        fix.speedup_ceiling,
        shown,
        len(own) - len(shown) or None,
        count_preconditions(fix) or None,
        tuple(cut_sentences(line, _LONGEST_TITLE) for line in unmet[: _MOST_CHECKS if has_details else 1]),
        fix.recoverable_ns if has_details else None,
        fix.replay.step_ns if has_details and fix.replay is not None else None,
        tuple(cut_sentences(line, _LONGEST_LINE) for line in check[:_MOST_CHECKS]) if has_details else (),
        cut_text(fix.assumes, _LONGEST_LINE) or None if most else None,
        fix.most_speedup,
    )


def brief_whatif(found: WhatIf, file: str, most_rows: int) -> WhatIfBrief:
    """Return the replayed step for each question, the largest gain first.

    Args:
        found: the full answer.
        file: the input as the user named it.
        most_rows: how many answers at most.
    """
    order = sorted(range(len(found.answers)), key=lambda place: found.answers[place].step_ns)
    rows = tuple(_brief_answer(found, place) for place in order[:most_rows])
    numbers: dict[str, int | float] = {
        "/step_ns": found.step_ns,
        "/played_operations": found.played_operations,
    }
    if found.check.error_median is not None:
        numbers["/check/error_median"] = found.check.error_median
    verdict = f"The {found.unit} is {found.wall}-bound. None of the requested changes shortens it."
    if rows and found.best is not None:
        numbers[f"{rows[0].evidence}/step_ns"] = rows[0].step_ns
        numbers[f"{rows[0].evidence}/speedup"] = rows[0].speedup
        change = units.change(found.step_ns, rows[0].step_ns)
        verdict = (
            f"The {found.unit} is {found.wall}-bound. Largest replayed gain: {rows[0].option},"
            f" {change}; the next wall is {rows[0].next_wall}."
        )
    error = found.check.error_median
    unknown = Unknown("the error of the replay", "only one typical step could be replayed", None)
    return WhatIfBrief(
        BRIEF_SCHEMA,
        "whatif",
        f"{visible(found.inputs[0].name, most=60)}{'' if found.rank is None else f', rank {found.rank}'}",
        verdict,
        NextCall(
            write_command("analyze", file, "--brief", "--max-rows", "10"),
            "recommendations",
            {"files": (file,)},
        ),
        numbers,
        None
        if error is None
        else f"median replay error {units.percent(error)}, each step replayed with latencies of the others",
        (unknown,) if error is None else (),
        len(order) - len(rows) or None,
        rows,
    )


def _brief_answer(found: WhatIf, place: int) -> BriefAnswer:
    answer = found.answers[place]
    return BriefAnswer(
        visible(" ".join(one.option for one in answer.questions), most=_LONGEST_LINE),
        answer.step_ns,
        answer.won_ns,
        answer.speedup,
        str(answer.next_wall),
        answer.next_cause,
        f"/answers/{place}",
    )


def brief_comparison(found: Comparison, ends: tuple[str, str], most_rows: int) -> ComparisonBrief:
    """Return whether head is slower, how sure that is, and the causes that changed most.

    Args:
        found: the full answer.
        ends: base and head as the user named them.
        most_rows: how many causes at most.
    """
    step, causes, told = found.step, found.deltas.causes, state_comparison(found)
    order = sorted(range(len(causes)), key=lambda place: -abs(causes[place].delta_ns))
    known: dict[str, int | float | None] = {
        f"/step/base_{step.compared}_ns": step.base_ns,
        f"/step/head_{step.compared}_ns": step.head_ns,
    }
    if found.verdict != "incomparable":  # the ratio of different work says nothing
        name = "mean_ratio" if step.compared == "mean" else "ratio"
        known |= {"/step/ratio": step.ratio} if step.compared == "typical" else {}
        known |= {f"/step/{name}_low": step.compared_low, f"/step/{name}_high": step.compared_high}
    unknown = [
        Unknown(f"what {entry.what} changes", f"base {visible(entry.base)}, head {visible(entry.head)}")
        for entry in found.mismatches
        if entry.severity != "note"
    ]
    if found.verdict == "inconclusive":
        because = cut_sentences(told.sureness, _LONGEST_LINE)
        unknown.insert(0, Unknown("whether the step changed", because, "Capture several runs of each side."))
    head = ends[1]
    return ComparisonBrief(
        BRIEF_SCHEMA,
        "diff",
        f"{visible(found.base.name, most=60)} against {visible(found.head.name, most=60)}",
        cut_sentences(f"{told.opening} {told.sentence}".rstrip(), _LONGEST_VERDICT),
        NextCall(write_command("analyze", head, "--brief"), "analyze", {"files": (head,)}),
        {place: value for place, value in known.items() if value is not None},
        cut_sentences(told.sureness, _LONGEST_LINE),
        tuple(unknown[: max(most_rows, 1)]),
        (len(order) - most_rows) if len(order) > most_rows else None,
        tuple(
            BriefChange(
                causes[place].cause,
                causes[place].delta_ns,
                causes[place].base_ns,
                causes[place].head_ns,
                f"/deltas/causes/{place}",
            )
            for place in order[:most_rows]
        ),
    )
