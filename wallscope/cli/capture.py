"""`wallscope capture`: from a program to its verdict."""

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wallscope.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wallscope.capture.plan import CapturePlan
    from wallscope.capture.run import CaptureRun

_STEPS, _PROFILER, _RESULT = "Steps", "Profiler", "Results"
_REPEATED_S = 5.0
"""A verdict that was shown so long before the end is shown again."""


def capture(  # noqa: PLR0913  # options are parameters
    program: Annotated[
        list[str], typer.Argument(metavar="PROGRAM...", help="The command that trains, unchanged.")
    ],
    *,
    steps: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, rich_help_panel=_STEPS, help="Steps to capture.")
    ] = 5,
    skip: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            max=1_000_000,
            rich_help_panel=_STEPS,
            help="Steps of warm-up before; the last half of them is timed without the profiler.",
        ),
    ] = 10,
    step_function: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_STEPS,
            help="A function that runs one step: MODULE:FUNCTION or MODULE:CLASS.METHOD, or its name alone"
            " (Python 3.12). Default: the optimizer of PyTorch, or the step of Megatron or DeepSpeed.",
        ),
    ] = None,
    delay: Annotated[
        int | None,
        typer.Option(
            metavar="S",
            min=0,
            max=1_000_000,
            rich_help_panel=_STEPS,
            help="With --duration: seconds from the start of the program to the capture. Default: 0.",
        ),
    ] = None,
    duration: Annotated[
        int | None,
        typer.Option(
            metavar="S",
            min=1,
            max=1_000_000,
            rich_help_panel=_STEPS,
            help="Let nsys capture so many seconds, where no step can be counted.",
        ),
    ] = None,
    end: Annotated[
        bool,
        typer.Option(
            "--end", rich_help_panel=_STEPS, help="End the program after the capture, with exit code 0."
        ),
    ] = False,
    profiler: Annotated[
        Literal["nsys", "torch"] | None,  # those of `Profiler`
        typer.Option(
            rich_help_panel=_PROFILER, help="Default: nsys if it is installed and a GPU of NVIDIA is there."
        ),
    ] = None,
    start: Annotated[
        Literal["cuda", "nvtx", "session"] | None,  # those of `Trigger`
        typer.Option(
            rich_help_panel=_PROFILER,
            help="How nsys starts: by cudaProfilerStart, by an NVTX range, or by `nsys start`.",
        ),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="APIS", rich_help_panel=_PROFILER, help="What nsys traces instead of cuda,nvtx."
        ),
    ] = None,
    per_rank: Annotated[
        bool,
        typer.Option(
            "--per-rank",
            rich_help_panel=_PROFILER,
            help="One report of nsys for each rank, not for each node.",
        ),
    ] = False,
    light: Annotated[
        bool,
        typer.Option(
            "--light",
            rich_help_panel=_PROFILER,
            help="Let PyTorch record the GPU alone, which slows the host less.",
        ),
    ] = False,
    shapes: Annotated[
        bool,
        typer.Option(
            "--shapes", rich_help_panel=_PROFILER, help="Let PyTorch record the shapes of operators."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            rich_help_panel=_RESULT,
            help="Where reports and records go. Default: a new folder, wallscope-DATE-TIME.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", rich_help_panel=_RESULT, help="Write the report as a page.")
    ] = None,
) -> None:
    """Run a training program and show what limits its step.

    A hook counts the steps of the unchanged program, and starts and stops the profiler. Output, signals and
    exit code are those of the program. All that wallscope says goes to standard error.
    """
    from wallscope.capture.plan import CaptureRequest, Trigger, plan_capture  # noqa: PLC0415  # keeps --help fast
    from wallscope.capture.run import start_capture, wait_a_moment  # noqa: PLC0415  # same
    from wallscope.capture.supervise import end_as  # noqa: PLC0415  # same
    from wallscope.cli.output import check_output  # noqa: PLC0415  # same
    from wallscope.errors import CaptureError  # noqa: PLC0415  # same
    from wallscope.model.capture import Profiler  # noqa: PLC0415  # same

    if str(html) == "-":
        raise OptionError("--html - — standard output is that of the program — name a file")
    check_output(html, inputs=())
    request = CaptureRequest(
        program=tuple(program),
        steps=steps,
        skip=skip,
        profiler=None if profiler is None else Profiler(profiler),
        trigger=None if start is None else Trigger(start),
        output=output,
        step_function=step_function,
        delay_s=delay,
        duration_s=duration,
        trace=trace,
        is_per_rank=per_rank,
        ends=end,
        is_light=light,
        has_shapes=shapes,
    )
    try:
        plan = plan_capture(request)
    except CaptureError as error:
        say(str(error))
        raise typer.Exit(error.code) from error
    for line in _announce(plan):
        say(line)
    began_s = time.monotonic()
    run = start_capture(plan, say)
    shown_s: float | None = None
    while (code := run.follow()) is None:
        if shown_s is None and run.is_captured:
            is_shown = _show_verdict(run, run.find_reports(), html)
            shown_s = time.monotonic() if is_shown else math.inf
        wait_a_moment()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    with contextlib.suppress(KeyboardInterrupt):  # the code of the program is worth more
        reports = run.wait_for_reports()
        say(f"the program ended with {_state_code(code)} after {time.monotonic() - began_s:.0f} s")
        for line in run.explain_outcome(code, reports):
            say(line)
        if reports and (shown_s is None or time.monotonic() - shown_s > _REPEATED_S):
            _show_verdict(run, reports, html if shown_s is None else None)
    run.remove_scratch()
    sys.stdout.flush()
    sys.stderr.flush()
    raise typer.Exit(end_as(code))


def say(line: str) -> None:
    """Write a line of wallscope's own to standard error."""
    from wallscope.render.texts import visible  # noqa: PLC0415  # keeps --help fast

    sys.stderr.write(f"wallscope: {visible(line, most=2_000)}\n")
    sys.stderr.flush()


def _announce(plan: "CapturePlan") -> list[str]:
    """Return what will happen."""
    from wallscope.units import plural  # noqa: PLC0415  # keeps --help fast

    asked = plan.request
    with_what = "PyTorch's profiler" if plan.nsys is None else f"nsys {plan.nsys.version}"
    then = "--end ends the program" if asked.ends else "the program runs on, --end would end it"
    what = f"{plural(asked.steps, 'step')} after {plural(asked.skip, 'step')} of warm-up"
    if asked.is_timed:
        what, then = f"{asked.duration_s} s after {asked.delay_s or 0} s", "the program runs on"
    lines = [f"captures {what} with {with_what}; then {then}", f"files go to {os.path.relpath(plan.folder)}"]
    if plan.refused:
        lines.append(f"this nsys lacks {', '.join(plan.refused)}, which is left out")
    return lines


def _show_verdict(run: "CaptureRun", reports: "Sequence[Path]", html: Path | None) -> bool:
    """Export what nsys wrote, analyze it in a process of its own; return whether there is a verdict.

    It goes to standard error. What the program does meanwhile is followed. Of several commands that a
    launcher started, the first shows one.
    """
    from wallscope.capture.exports import export_reports  # noqa: PLC0415  # keeps --help fast
    from wallscope.capture.plan import find_launched_rank  # noqa: PLC0415  # same
    from wallscope.capture.record import compare_times, write_configuration  # noqa: PLC0415  # same
    from wallscope.model.capture import Profiler  # noqa: PLC0415  # same

    plan = run.plan
    exports, failures = export_reports(plan, reports)
    for line in failures:
        say(line)
    launched = find_launched_rank()
    if launched is not None:
        say(f"all ranks together: wallscope analyze {os.path.relpath(plan.folder)}")
    if not exports or launched not in {None, 0}:
        return False
    write_configuration(plan.folder, run.records)
    is_cheap = plan.profiler is not Profiler.TORCH  # a trace would be read twice
    if (is_cheap or not plan.has_gpu) and _show_host(run, exports, html):
        return False
    command = [sys.executable, "-P", "-m", "wallscope", "analyze", *map(str, map(_shorten, exports))]
    if html is not None:
        command += ["--html", str(html)]
    analysis = subprocess.Popen(  # noqa: S603  # our own program
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), start_new_session=True
    )
    try:
        while analysis.poll() is None:
            run.follow()
            time.sleep(0.05)
    except KeyboardInterrupt:
        analysis.terminate()
        raise
    is_torch = plan.profiler is Profiler.TORCH
    slower = compare_times(run.records, "--light" if is_torch else "--profiler torch --light")
    if slower is not None:
        say(slower)
    return analysis.returncode == 0


def _show_host(run: "CaptureRun", exports: "Sequence[Path]", html: Path | None) -> bool:
    """Say that no GPU worked, and write what was captured; return whether that is so."""
    from wallscope.cli.output import write_file  # noqa: PLC0415  # keeps --help fast
    from wallscope.errors import InputError  # noqa: PLC0415  # same
    from wallscope.kineto.any_capture import read_any_contents  # noqa: PLC0415  # same
    from wallscope.views.host_page import NO_GPU_WORK, TimedSteps, write_host_page  # noqa: PLC0415  # same

    try:
        contents = [read_any_contents(export, lambda _: None) for export in exports]
    except InputError:  # the analysis says what is wrong
        return False
    if any(one.has_device_work for one in contents):
        return False
    say(NO_GPU_WORK)
    timed = [
        TimedSteps(record.rank, when, times_ns)
        for record in run.records
        for when, times_ns in (
            ("before", record.before_ns),
            ("during", record.during_ns),
            ("after", record.after_ns),
        )
    ]
    if html is not None:
        write_file(html, write_host_page(contents, timed))
    return True


def _shorten(path: Path) -> Path:
    """Return the path from the current folder, if it lies in it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _state_code(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
