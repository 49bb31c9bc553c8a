"""`wallscope capture-help`: how the next capture answers what this one could not."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.analyze import Verbose
from wallscope.cli.cache import NoCache, cache_of
from wallscope.cli.output import print_out
from wallscope.cli.progress import reported, talkative

if TYPE_CHECKING:
    from wallscope.cache_folder import Cache
    from wallscope.model.capture import Finding, Progress


def capture_help(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="An export: what limits it comes first, and what cures that is marked."
        ),
    ] = None,
    *,
    no_cache: NoCache = False,
    verbose: Verbose = False,
) -> None:
    """Show how to capture: the command of nsys and the settings of the framework."""
    from wallscope.views.capture_help import capture_help as shown  # noqa: PLC0415  # keeps --help fast

    talkative(verbose=verbose)
    if file is None:
        print_out(shown())
        return
    with reported() as progress:
        findings = _findings(file, progress, cache_of(refused=no_cache))
    print_out(shown(file.name, findings))


def _findings(file: Path, progress: "Progress", cache: "Cache | None") -> "tuple[Finding, ...]":
    """What limits an export; also of one that holds nothing to analyse."""
    from wallscope.cache.answers import load_or_analyze  # noqa: PLC0415  # keeps --help fast
    from wallscope.errors import NothingToAnalyzeError  # noqa: PLC0415
    from wallscope.model.capture import Finding, Severity  # noqa: PLC0415
    from wallscope.model.options import Options  # noqa: PLC0415
    from wallscope.nsys import read_contents  # noqa: PLC0415

    try:
        return load_or_analyze(file, Options(), progress, cache).analysis.capture.findings
    except NothingToAnalyzeError:
        nothing = Finding(
            "no-device-operations", Severity.ERROR, "It holds no device operation of usable time."
        )
        return (nothing, *read_contents(file, progress).findings)
