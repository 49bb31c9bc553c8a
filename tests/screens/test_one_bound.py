"""One number for one gain: a recommendation and its causes agree, or the difference is explained there."""

import json
import re
from html import unescape

import pytest

from tests.answered_once import analyze_once, write_page_once
from tests.conftest import run_part
from tests.shipped_example import EXAMPLE
from tests.test_traces import EXPORTS, TRACES, WITHOUT_DEVICE_OPERATIONS
from tests.views.test_first_screen import printed
from wallscope.model.cause_catalogue import describe_cause, list_cause_meanings
from wallscope.render.data import write_brief, write_json
from wallscope.thresholds.verdict import FIRST_FIXES_COUNT
from wallscope.units import write_speedup
from wallscope.views.analysis import write_analysis_markdown
from wallscope.views.brief import brief_analysis
from wallscope.views.light import write_worth
from wallscope.views.statement import state_analysis

FAR = 1.5
"""A gain of a cause that is so many times that of its fix reads as another number."""
TORCH = sorted((TRACES / "kineto").glob("*.json.gz"))
ANSWERED = [EXAMPLE, *(path for path in EXPORTS if path.stem not in WITHOUT_DEVICE_OPERATIONS), *TORCH]
ID = re.compile(r"\b(?:host|memory|communication|compute|unattributed)/[a-z][\w/<>-]*")
SPEEDUP = r"((?:more than )?[\d.]+x)"
ROW = re.compile(
    rf"^  (\S+) +[\d.,]+ ms +[<>]?[\d.]+ % +{SPEEDUP} +(?:{SPEEDUP} \((\d+)\)|none)", re.MULTILINE
)


def joined(text):
    """Text without its line breaks and escapes."""
    return re.sub(r"\s+", " ", text.replace("\\", ""))


def numbered(analysis):
    full = "\n".join(printed(analysis, 200, is_full=True))
    return full, dict(
        re.findall(
            r"^  (\d+) +(.+?)(?: \([a-z0-9-]+\))? {2,}(?:up to |more than |about |at most )[\d.]+x$",
            full,
            re.MULTILINE,
        )
    )


@pytest.mark.parametrize("path", run_part(ANSWERED, {EXAMPLE.stem}, of=9))
def test_a_cause_has_the_bound_of_the_fix_that_removes_it_alone(path):
    analysis = analyze_once(path)
    bounds = {one.cause: one for one in analysis.opportunities}
    for fix in analysis.fixes or ():
        asked = () if fix.replay is None else fix.replay.questions
        if len(asked) != 1 or asked[0].target not in bounds or asked[0].share:
            continue
        bound = bounds[asked[0].target]
        won_ns = fix.replay.won_ns
        assert bound.recoverable_ns >= won_ns
        assert bound.recoverable_ns == won_ns or f"{bound.step_ceiling_ns and fix.replay.speedup:.2f}x" in (
            bound.assumes or ""
        )


@pytest.mark.parametrize("path", run_part(ANSWERED, {EXAMPLE.stem}, of=9))
def test_every_bound_on_the_first_screen_that_is_not_the_one_of_its_cause_says_why(path):
    """A reader of the cause table would take its bound for the gain of the recommendation."""
    analysis = analyze_once(path)
    screen = joined("\n".join(printed(analysis, 100)))
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    bounds = {one.cause: one.speedup_ceiling for one in analysis.opportunities}
    times_ns = {one.cause: one.typical_ns for one in rank.causes}
    for fix in [fix for fix in analysis.fixes or () if f"up to {fix.speedup_ceiling or 0:.2f}x" in screen][
        :3
    ]:
        own = [bounds[cause] for cause in fix.causes if cause in bounds]
        is_larger = own and max(own) - 1 > FAR * (fix.speedup_ceiling - 1)
        is_far = fix.recoverable_ns < sum(times_ns.get(cause, 0) for cause in fix.causes) / 2
        if (is_larger or is_far) and fix.wall in {"memory", "communication", "host"}:
            assert fix.assumes
        if fix.title in screen:
            assert joined(fix.assumes) in screen


@pytest.mark.parametrize("path", run_part(ANSWERED, {EXAMPLE.stem}, of=9))
def test_the_assumption_of_a_bound_goes_wherever_the_bound_goes(path):
    analysis = analyze_once(path)
    document = json.loads(write_json(analysis))
    page = joined(unescape(re.sub(r"<[^>]+>", "", write_page_once(path))))
    markdown = joined(write_analysis_markdown(analysis))
    brief = joined(write_brief(brief_analysis(analysis, ("run.sqlite",), 3)))
    for number, fix in enumerate(analysis.fixes or ()):
        assert document["fixes"][number]["assumes"] == fix.assumes
        assert joined(fix.assumes)[1:] in page
        for text in (markdown, brief):
            if joined(fix.title) in text:
                assert joined(fix.assumes)[:150] in text


@pytest.mark.parametrize("path", run_part(ANSWERED, {EXAMPLE.stem}, of=9))
def test_a_card_says_why_its_bound_differs_in_the_words_of_the_terminal(path):
    """A card showed how much a fix saves, and not why that is only a part of the time of its cause."""
    analysis = analyze_once(path)
    cards = state_analysis(analysis).cards
    said = re.findall(r'<p class="because">(.*?)</p>', write_page_once(path))
    screen = joined("\n".join(printed(analysis, 100)))

    assert [joined(unescape(one)) for one in said] == [joined(one.reason) for one in cards if one.reason]
    for card in cards[:FIRST_FIXES_COUNT]:
        assert card.fix.assumes in card.reason
        assert joined(card.reason)[:150] in screen or joined(card.fix.title) not in screen


@pytest.mark.parametrize("path", run_part(ANSWERED, {EXAMPLE.stem}, of=9))
def test_a_row_of_causes_shows_its_bound_next_to_that_of_the_best_recommendation(path):
    analysis = analyze_once(path)
    full, titles = numbered(analysis)
    by_title = {fix.title: fix for fix in analysis.fixes or ()}
    bounds = {one.cause: one for one in analysis.opportunities}
    assert bool(titles) is any(map(write_worth, analysis.fixes or ()))
    for cause, bound, best, number in ROW.findall(full):
        worths = [fix.speedup_ceiling or 0 for fix in analysis.fixes or () if cause in fix.causes]
        assert bound == write_speedup(bounds[cause].speedup_ceiling)
        assert best == (write_speedup(max(worths)) if any(worths) else "")
        if number in titles:
            assert cause in by_title[titles[number]].causes
        if bounds[cause].assumes:
            assert f"{cause}: {bound} assumes that {bounds[cause].assumes}" in joined(full)


@pytest.mark.parametrize("path", run_part(ANSWERED, {EXAMPLE.stem}, of=9))
def test_the_verdict_states_the_bound_of_the_list(path):
    analysis = analyze_once(path)
    stated = re.findall(r"Upper bound without (\S+): .*?\(up to ([\d.]+)x\)", analysis.diagnosis.verdict)
    bounds = {one.cause: one.speedup_ceiling for one in analysis.opportunities}

    assert all(speedup == f"{bounds[cause]:.2f}" for cause, speedup in stated)


@pytest.mark.parametrize("path", run_part(ANSWERED, {EXAMPLE.stem}, of=9))
def test_a_recommendation_names_causes_in_words(path):
    for fix in analyze_once(path).fixes or ():
        for text in (fix.why, fix.assumes, fix.refuted_by, *fix.evidence):
            known = {cause for cause, _ in list_cause_meanings()}
            assert not [found for found in ID.findall(text) if found in known or "queue-drained" in found]


def test_the_card_names_the_call_and_the_range_of_the_time_that_it_addresses():
    path = TRACES / "llama3_real.sqlite"
    if not path.exists():
        pytest.skip("../shared/traces is absent")
    analysis = analyze_once(path)
    screen = joined("\n".join(printed(analysis, 80)))
    first = analysis.fixes[0]

    assert first.causes[0] == "host/queue-drained/cudaDeviceSynchronize"
    assert describe_cause(first.causes[0]) in screen
    assert "9.3 ms of it after cudaDeviceSynchronize, mostly in the range ensure_layer_#_weights" in screen


def test_bounds_of_steps_say_so_where_the_verdict_is_about_the_whole_capture():
    path = TRACES / "cs336_tianshi_small.sqlite"
    if not path.exists():
        pytest.skip("../shared/traces is absent")
    screens = [joined("\n".join(printed(analyze_once(one), 100))) for one in (path, EXAMPLE)]

    assert ["These bounds are for one step; all" in screen for screen in screens] == [True, False]
    assert "2.289 s of the 12.040 s capture" in screens[0]


@pytest.mark.parametrize("path", run_part(ANSWERED, {EXAMPLE.stem}, of=9))
def test_a_gain_above_the_time_of_its_cause_is_explained_below_the_table(path):
    """Also that of a hidden transfer, which may be more than that of a removed one."""
    analysis = analyze_once(path)
    full, _ = numbered(analysis)
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    shown = {cause for cause, *_ in ROW.findall(full)}
    least_ns = rank.typical.step_ns / 1000
    above = [
        one.cause
        for one in rank.causes
        if one.cause in shown and (one.recoverable_ns or 0) - one.typical_ns >= least_ns
    ]

    assert ("so its bound can be larger than its own time suggests" in joined(full)) == bool(above)
