"""`wallscope info`: what an export holds."""

from wallscope.cli.analyze import Export, Verbose
from wallscope.cli.output import print_out
from wallscope.cli.progress import reported, talkative


def info(file: Export, *, verbose: Verbose = False) -> None:
    """Show what an export holds: versions, machine, tables, limits."""
    from wallscope.nsys import read_contents  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.grids import render_sections  # noqa: PLC0415
    from wallscope.views.listings import build_contents  # noqa: PLC0415

    talkative(verbose=verbose)
    with reported() as progress:
        progress("counting rows")
        contents = read_contents(file, progress)
    print_out(render_sections(build_contents(contents)))
