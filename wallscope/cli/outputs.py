"""What `analyze` writes, and where: each result whole or not at all, none over an input."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.output import check_different, check_output, write_whole
from wallscope.cli.progress import reported

if TYPE_CHECKING:
    from wallscope.analysis import Accounted

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the answer as JSON; - is standard output."),
]
HtmlFile = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the report as one HTML page that works offline."),
]
MarkdownFile = Annotated[
    Path | None,
    typer.Option(
        "--markdown",
        metavar="FILE",
        help="Write it as Markdown for a pull request or job summary; - is standard output.",
    ),
]


@dataclass(frozen=True, slots=True)
class Outputs:
    """The places that the user named, by what is written there."""

    json: Path | None
    html: Path | None
    markdown: Path | None

    def check(self, inputs: tuple[Path | None, ...]) -> None:
        """Refuse bad places before the work begins.

        Raises:
            OutputError: one cannot be written, is an input, or is named twice.
        """
        files = {"--json": self.json, "--html": self.html, "--markdown": self.markdown}
        for target in files.values():
            check_output(target, inputs)
        check_different(files)

    @property
    def takes_standard_output(self) -> bool:
        """Whether a result goes to standard output, so that nothing else may."""
        return "-" in {str(self.json), str(self.html), str(self.markdown)}

    def write(self, found: "Accounted") -> None:
        """Write all that was asked for.

        Raises:
            OutputError: a file cannot be written.
        """
        if self.html is not None:
            from wallscope.analysis import report_of  # noqa: PLC0415  # only when asked for
            from wallscope.render.page import page  # noqa: PLC0415  # same

            with reported() as progress:
                text = page(report_of(found, progress))
            write_whole(self.html, text)
        if self.json is not None:
            from wallscope.render.document import document  # noqa: PLC0415  # same

            write_whole(self.json, document(found.analysis))
        if self.markdown is not None:
            from wallscope.render.markdown import markdown  # noqa: PLC0415  # same

            write_whole(self.markdown, markdown(found.analysis))
