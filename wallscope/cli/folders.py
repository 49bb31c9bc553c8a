"""Folders of results: whole or absent, never over what is not ours."""

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from wallscope.cli.output import status_of
from wallscope.errors import OutputError
from wallscope.files import real

if TYPE_CHECKING:
    from collections.abc import Callable


def check_folder(
    target: Path | None, inputs: tuple[Path | None, ...], is_ours: "Callable[[Path], bool]"
) -> None:
    """Refuse a bad folder before the work begins; one that `is_ours` may be replaced.

    Raises:
        OutputError: it holds or is an input, is no folder, holds something else, or cannot be made.
    """
    if target is None:
        return
    status = status_of(target, "folder")
    if status is not None and not stat.S_ISDIR(status.st_mode):
        raise OutputError(f"{target} — is no folder — name a new or an empty one")
    _check_apart(target, inputs)
    if not real(target).parent.is_dir():
        raise OutputError(f"{target} — the folder around it does not exist — make it first")
    if status is not None and any(target.iterdir()) and not is_ours(target):
        raise OutputError(f"{target} — holds other files — name a new or an empty folder")


def _check_apart(target: Path, inputs: tuple[Path | None, ...]) -> None:
    """Refuse a folder that holds an input or lies in one."""
    place = real(target)
    for path in inputs:
        if path is not None and real(path).is_relative_to(place):
            raise OutputError(f"{target} — is an input or holds one — name another folder")
        if path is not None and path.is_dir() and place.is_relative_to(real(path)):
            raise OutputError(f"{target} — lies in a folder that is an input — name a folder elsewhere")


def write_folder(target: Path, write: "Callable[[Path], None]", is_ours: "Callable[[Path], bool]") -> None:
    """Let `write` fill a folder beside the target, then put it in its place: all of it, or what was there.

    What was there is looked at again once it is aside: files may have come while the work went on.

    Raises:
        OutputError: the folder cannot be written, or holds something else than `is_ours` by now.
    """
    import shutil  # noqa: PLC0415  # keeps --help fast
    import tempfile  # noqa: PLC0415  # same

    place = real(target)
    aside: Path | None = None
    is_replaced, kept = False, ""
    try:
        aside = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name[:100]}."))
        made, former = aside / "made", aside / "former"
        made.mkdir()
        write(made)
        if place.exists():
            place.rename(former)
        try:
            if former.exists() and any(former.iterdir()) and not is_ours(former):
                raise OutputError(f"{target} — holds other files — name a new or an empty folder")
            made.rename(place)
            is_replaced = True
        finally:
            if not is_replaced and former.exists():
                kept = f", and what was there is in {former}"
                former.rename(place)
                kept = ""
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"{target} — cannot be written: {reason}{kept} — name another folder") from error
    finally:
        if aside is not None and (is_replaced or not (aside / "former").exists()):
            shutil.rmtree(aside, ignore_errors=True)


def holds_only(folder: Path, names: frozenset[str]) -> bool:
    """Whether nothing but regular files of these names is in a folder."""
    return all(stat.S_ISREG(path.lstat().st_mode) and path.name in names for path in folder.iterdir())
