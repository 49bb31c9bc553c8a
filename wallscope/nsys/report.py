"""Reports of Nsight Systems: exported aside by the user's own `nsys`, once, into the user's cache.

Nothing is written beside a report, and no shell is asked.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from wallscope.cache import ASIDE, Kind, users_cache
from wallscope.errors import InputError
from wallscope.model.capture import Progress
from wallscope.nsys.integrity import check_file, content_size_bytes, fingerprint, is_report

_MOST_LETTERS = 200
_REST_OF_PATH = r"""[^\s'",;:()]*"""
_LOCAL_PATH = re.compile(
    r"""(?P<quote>['"])(?:[A-Za-z]:)?[\\/].*?(?P=quote)"""  # quoted, blanks and all
    rf"""|(?<![\w.])(?:~|[A-Za-z]:)?[\\/]{_REST_OF_PATH}"""
)


def located(path: Path, progress: Progress) -> Path:
    """What is to be read: the path itself, or the export that `nsys` made of a report.

    A report without an nsys to export it stays what it is; reading it says how to export it.

    Raises:
        InputError: nsys does not export the report, or the cache cannot be written.
    """
    found = shutil.which("nsys")
    if found is None or not is_report(path):
        return path
    nsys = Path(found).absolute()
    cache = users_cache()
    try:
        name = f"{fingerprint(path, content_size_bytes(path))}.sqlite"
        kept = cache.private_folder(Kind.EXPORTS) / name
        if not _is_whole(kept):
            progress(f"exporting {_harmless(path.name)} with nsys")
            _export(nsys, path, kept)
            cache.trim(Kind.EXPORTS, name)
    except OSError as error:
        raise InputError(
            f"{path} — cannot be exported aside: {error.strerror} — export it: nsys export --type sqlite"
        ) from error
    cache.used(Kind.EXPORTS, name)
    return kept


def _export(nsys: Path, report: Path, kept: Path) -> None:
    """Export under another name, look at it, rename: what bears the name is whole."""
    with tempfile.TemporaryDirectory(prefix=ASIDE, dir=kept.parent) as aside:
        made = Path(aside) / "export.sqlite"
        options = ("-q", "true", "-t", "sqlite", "-f", "true", "-o", str(made))
        ran = subprocess.run(  # noqa: S603  # no shell; nsys is the user's own
            [nsys, "export", *options, str(report.absolute())],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=aside,
            check=False,
        )
        if ran.returncode != 0 or not _is_whole(made):
            reason = _reason(ran, report.absolute(), Path(aside))
            raise InputError(
                f"{report} — nsys cannot export it: {reason} — export it with the nsys that captured it:"
                " nsys export --type sqlite"
            )
        made.replace(kept)


def _is_whole(export: Path) -> bool:
    try:
        check_file(export)
    except InputError:
        return False
    return True


def _reason(ran: subprocess.CompletedProcess[bytes], *places: Path) -> str:
    """The first line of what nsys said, without these places and other paths of this machine."""
    lines = ran.stderr.decode("utf-8", "replace").splitlines()
    said = next((line.strip() for line in lines if line.strip()), None)
    if said is None:
        return f"it wrote no whole export and ended with code {ran.returncode}"
    for place in places:
        said = re.sub(re.escape(str(place)) + _REST_OF_PATH, "<path>", said)
    return _harmless(_LOCAL_PATH.sub("<path>", said).replace("—", "-").rstrip("."))


def _harmless(text: str) -> str:
    """The text on one line, without control characters, cut to 200 letters."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= _MOST_LETTERS else shown[: _MOST_LETTERS - 1] + "…"
