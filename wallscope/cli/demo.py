"""`wallscope demo`: a generated example, its answer and its page."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.analyze import analyze
from wallscope.cli.diff import diff as compare
from wallscope.cli.output import check_different, check_folder, check_output, read_status, write_folder
from wallscope.cli.streams import announce_output
from wallscope.errors import OptionError, OutputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_BRAND = b'class="brand">wallscope</'  # of reports/frame.html.j2
_ELSEWHERE = "name a page in another folder with --html"


def demo(
    *,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the page here and the exports next to it. Default: demo.html, demo-diff.html or"
            " demo-job.html in the current folder.",
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff", help="Compare demo-base.sqlite with demo-head.sqlite, in which the host is slower."
        ),
    ] = False,
    job: Annotated[
        bool,
        typer.Option(
            "--job", help="Analyze the four ranks of the folder demo-job; the GPU of one is slower."
        ),
    ] = False,
) -> None:
    """Try wallscope on a generated example.

    You don't need a GPU or a capture. The example shows one of 16 ranks that train an MoE model on H100 GPUs;
    its numbers are synthetic. The export, demo.sqlite, stays next to the page for other commands.
    """
    if diff and job:
        raise OptionError("--diff and --job — cannot be combined — give one of them")
    if open_page and str(html) == "-":
        raise OptionError("--open — needs a page in a file — leave out --html -")
    name = "demo-diff" if diff else "demo-job" if job else "demo"
    page = html or Path(f"{name}.html")
    if html is None:
        _check_default(page)
    folder = page.parent
    if job:
        exports = folder / name
        check_output(page, inputs=(exports,))
        check_folder(exports, (), _holds_examples)
        write_folder(exports, _write_job, _holds_examples, "example exports")
        analyze([str(exports)], html=page)
    elif diff:
        base, head = folder / "demo-base.sqlite", folder / "demo-head.sqlite"
        _check_exports({"the base": base, "the head": head}, page)
        _write_export(base)
        _write_export(head, is_slower=True)
        compare(str(base), str(head), html=page)
    else:
        export = folder / "demo.sqlite"
        _check_exports({"the export": export}, page)
        _write_export(export)
        analyze([str(export)], html=page)
    if open_page:
        _open_in_browser(page)


def _check_default(page: Path) -> None:
    """Refuse to replace a file that the user did not name and that is not a page of ours."""
    if read_status(page, "file") is not None and not (page.is_file() and _BRAND in page.read_bytes()):
        raise OutputError(f"{page} — is not a page of wallscope — name another file with --html")


def _check_exports(exports: "Mapping[str, Path]", page: Path) -> None:
    """Refuse bad places before the work begins.

    Raises:
        OutputError: the page cannot be written, or an export would replace something else.
    """
    from wallscope.demo.example import is_example  # noqa: PLC0415  # keeps --help fast

    check_different({"--html": page, **exports})
    check_output(page, inputs=())
    for export in exports.values():
        check_output(export, inputs=())
        if read_status(export, "file") is not None and not is_example(export):
            raise OutputError(f"{export} — is not an example export — {_ELSEWHERE}")


def _write_export(export: Path, *, is_slower: bool = False) -> None:
    from wallscope.demo.example import COUNTS_READ_NS, SLOWER_COUNTS_READ_NS, write_example  # noqa: PLC0415  # keeps --help fast
    from wallscope.files import replace_file  # noqa: PLC0415  # same

    with replace_file(export) as aside:
        write_example(aside, SLOWER_COUNTS_READ_NS if is_slower else COUNTS_READ_NS)
    announce_output(export, "example export")


def _write_job(folder: Path) -> None:
    from wallscope.demo.example import JOB, write_ranks  # noqa: PLC0415  # keeps --help fast

    write_ranks({folder / _name_export(setup.rank): setup for setup in JOB})


def _name_export(rank: int) -> str:
    return f"rank-{rank}.sqlite"


def _holds_examples(folder: Path) -> bool:
    """Return whether a folder holds the exports of the example job and nothing else."""
    from wallscope.demo.example import JOB, is_example  # noqa: PLC0415  # keeps --help fast

    names = {_name_export(setup.rank) for setup in JOB}
    return all(entry.name in names and entry.is_file() and is_example(entry) for entry in folder.iterdir())


def _open_in_browser(page: Path) -> None:
    import webbrowser  # noqa: PLC0415  # keeps --help fast

    from wallscope.render.texts import visible  # noqa: PLC0415  # same

    if not webbrowser.open(page.resolve().as_uri()):
        sys.stderr.write(f"No browser was found. Open {visible(str(page), most=4_000)} in yours.\n")
