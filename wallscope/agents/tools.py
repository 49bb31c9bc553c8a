"""What each tool answers: the same functions as the commands call, in brief.

What a capture does not show is an answer too: "unknown, because …", with the cure.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from wallscope.errors import NothingToAnalyzeError
from wallscope.jobs.answers import load_limits, load_or_analyze
from wallscope.model.brief import (
    BRIEF_SCHEMA,
    AnalysisBrief,
    BreakdownBrief,
    Brief,
    CheckBrief,
    ComparisonBrief,
    NextCall,
    TableBrief,
    TextBrief,
    Unknown,
    WhatIfBrief,
)
from wallscope.model.capture import Options, Profiler, Progress, Selection
from wallscope.model.whatif import Asked, Question
from wallscope.records import dataclass
from wallscope.views.brief import (
    brief_analysis,
    brief_breakdown,
    brief_comparison,
    brief_whatif,
    cut_sentences,
)
from wallscope.views.marked_names import mark_names

if TYPE_CHECKING:
    from wallscope.cache_folder import Cache
    from wallscope.model.analysis import Analysis

_LONGEST_REASON = 300
_BriefT = TypeVar("_BriefT", bound=Brief)


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A call of a tool: its arguments, and the paths of the files that they name."""

    tool: str
    arguments: Mapping[str, Any]
    paths: Mapping[str, Path]
    cache: "Cache | None"

    @property
    def max_rows(self) -> int:
        """How many rows each list may have."""
        return int(self.arguments["max_rows"])

    @property
    def file(self) -> str:
        """The one file of the question, as the client named it."""
        return str(self.arguments["file"])

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the question, as the client named them."""
        return tuple(self.arguments["files"])

    def read_options(self) -> Options:
        """Return the options of an analysis that the arguments spell."""
        known = self.arguments
        steps = known.get("steps")
        config = known.get("config")
        return Options(
            step_range=known.get("step_range"),
            selection=Selection(
                known.get("rank"), known.get("device"), None if steps is None else tuple(steps)
            ),
            configuration=None if config is None else self.paths[config],
        )


def answer_tool(request: ToolRequest, progress: Progress) -> Brief:
    """Return the brief answer of a tool; what the capture does not show is unknown, with the reason.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    answer, kind = TOOLS[request.tool]
    try:
        return answer(request, progress)
    except NothingToAnalyzeError as error:
        return _answer_unknown(kind, request, error)


def _answer_unknown(kind: type[_BriefT], request: ToolRequest, why: NothingToAnalyzeError) -> _BriefT:
    named = (request.arguments.get(key) for key in ("file", "head"))
    file = request.files[0] if "files" in request.arguments else str(next(filter(None, named)))
    return kind(
        BRIEF_SCHEMA,
        request.tool,
        Path(file).name,
        f"Unknown, because {why.because}.",
        NextCall(tool="capture_help", arguments={"file": file}),
        unknown=(
            Unknown(
                request.tool.replace("_", " "), cut_sentences(why.what, _LONGEST_REASON), why.cure or None
            ),
        ),
    )


def _load(request: ToolRequest, progress: Progress) -> "Analysis":
    from wallscope.jobs.inputs import find_exports, is_many  # noqa: PLC0415  # heavy, and not every tool asks

    paths = [request.paths[name] for name in request.files]
    options = request.read_options()
    if not is_many(paths):
        return load_or_analyze(paths[0], options, progress, request.cache).analysis
    from wallscope.jobs.merge import run_job  # noqa: PLC0415  # same

    return run_job(find_exports(paths), options, progress, cache=request.cache).analysis


def _analyze(request: ToolRequest, progress: Progress) -> AnalysisBrief:
    found = _load(request, progress)
    return mark_names(brief_analysis(found, request.files, request.max_rows), found)


def _break_down(request: ToolRequest, progress: Progress) -> BreakdownBrief:
    found = _load(request, progress)
    return mark_names(brief_breakdown(found, request.files, request.max_rows), found)


def _recommend(request: ToolRequest, progress: Progress) -> AnalysisBrief:
    found = _load(request, progress)
    return mark_names(brief_analysis(found, request.files, request.max_rows, has_details=True), found)


def _list_gaps(request: ToolRequest, progress: Progress) -> TableBrief:
    from wallscope.preparation import look_up_gaps  # noqa: PLC0415  # heavy, and not every tool asks
    from wallscope.views.brief_listings import brief_table, describe_gaps_table  # noqa: PLC0415  # same
    from wallscope.views.sections.steps import frame_gaps  # noqa: PLC0415  # same

    found = look_up_gaps(request.paths[request.file], request.read_options(), progress)
    frame = frame_gaps(found.gaps(request.max_rows))
    brief = brief_table("gaps", request.file, frame, request.max_rows, describe_gaps_table(frame))
    return mark_names(brief, frame, Path(request.file).name)


def _ask_what_if(request: ToolRequest, progress: Progress) -> WhatIfBrief:
    from wallscope.pipeline import ask_what_if  # noqa: PLC0415  # heavy, and not every tool asks

    known = request.arguments
    scaled = tuple(Question("scale", one["target"], float(one["factor"])) for one in known.get("scale") or ())
    others = tuple(
        Question(kind, target)
        for kind in ("without", "graph", "hide", "overlap")
        for target in known.get(kind) or ()
    )
    questions = Asked((*scaled, *others))
    found = ask_what_if(request.paths[request.file], request.read_options(), questions, progress)
    return mark_names(brief_whatif(found, request.file, request.max_rows), found)


def _answer_comparison(request: ToolRequest, progress: Progress) -> ComparisonBrief:
    from wallscope.compare.compare import CompareOptions, Side, compare_sides  # noqa: PLC0415  # heavy
    from wallscope.jobs.inputs import find_captures, resolve_runs  # noqa: PLC0415  # same

    ends = (str(request.arguments["base"]), str(request.arguments["head"]))
    options = request.read_options()
    sides = [
        Side(
            Path(named).name,
            resolve_runs(find_captures(str(request.paths[named])), options, progress, request.cache),
        )
        for named in ends
    ]
    found = compare_sides(sides[0], sides[1], CompareOptions(rank=request.arguments.get("rank")))
    return mark_names(
        brief_comparison(found, ends, request.max_rows), found, *(Path(end).name for end in ends)
    )


def _answer_explanation(request: ToolRequest, _: Progress) -> TextBrief:
    from wallscope.advice.explain import explain_word  # noqa: PLC0415  # not every tool asks
    from wallscope.views.brief_listings import brief_explanation  # noqa: PLC0415  # same

    return brief_explanation(explain_word(str(request.arguments["word"])), request.max_rows)


def _check_config(request: ToolRequest, _: Progress) -> CheckBrief:
    from wallscope.advice.configuration import read_configuration  # noqa: PLC0415  # not every tool asks
    from wallscope.advice.preconditions import check_configuration  # noqa: PLC0415  # same
    from wallscope.advice.published import find_machine  # noqa: PLC0415  # same
    from wallscope.model.advice import TraceFacts  # noqa: PLC0415  # same
    from wallscope.views.brief_listings import brief_check  # noqa: PLC0415  # same

    hardware = request.arguments.get("hardware")
    facts = TraceFacts() if hardware is None else find_machine(hardware).facts()
    read = read_configuration(request.paths[request.file], with_defaults=True)
    found = check_configuration(read.configuration, facts, read.findings, read.form)
    return mark_names(brief_check(found, request.file, request.max_rows), Path(request.file).name)


def _help_capture(request: ToolRequest, progress: Progress) -> TextBrief:
    from wallscope.kineto.trace_bytes import is_torch_trace  # noqa: PLC0415  # not every tool asks
    from wallscope.views.brief_listings import brief_capture_help  # noqa: PLC0415  # same

    named, wanted = request.arguments.get("file"), request.arguments.get("profiler")
    path = None if named is None else request.paths[named]
    is_torch = path is not None and is_torch_trace(path)
    profiler = Profiler(wanted) if wanted else Profiler.TORCH if is_torch else Profiler.NSYS
    findings = () if path is None else load_limits(path, progress, request.cache)[0]
    return brief_capture_help(profiler, named, findings, request.max_rows)


TOOLS: Final[Mapping[str, tuple[Callable[[ToolRequest, Progress], Brief], type[Brief]]]] = {
    "analyze": (_analyze, AnalysisBrief),
    "time_breakdown": (_break_down, BreakdownBrief),
    "recommendations": (_recommend, AnalysisBrief),
    "gaps": (_list_gaps, TableBrief),
    "whatif": (_ask_what_if, WhatIfBrief),
    "compare": (_answer_comparison, ComparisonBrief),
    "explain": (_answer_explanation, TextBrief),
    "check_config": (_check_config, CheckBrief),
    "capture_help": (_help_capture, TextBrief),
}
"""What answers each tool, and the type of its answer."""
