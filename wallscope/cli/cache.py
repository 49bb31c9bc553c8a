"""`wallscope cache`, and the option that goes without it."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.render.foreign import visible
from wallscope.units import plural, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wallscope.cache_folder import Cache, Entry

NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Work the answer out anew, and keep none in the cache.")
]


def cache_of(*, refused: bool) -> "Cache | None":
    """The user's cache, unless the options say to go without.

    Raises:
        OptionError: the environment sets a size that is none.
    """
    from wallscope.cache_folder import user_cache  # noqa: PLC0415  # keeps --help fast

    return None if refused else user_cache()


def cache(
    *, clear: Annotated[bool, typer.Option("--clear", help="Remove all that is kept there.")] = False
) -> None:
    """Show where answers, pages and exports are kept, how much there is, and the limit."""
    from wallscope.cache_folder import EntryKind, user_cache  # noqa: PLC0415  # keeps --help fast

    place = user_cache()
    if clear:
        sys.stdout.write(f"{_amount(place.clear())} removed\n")
        return
    found = place.entries()
    lines = [visible(str(place.folder), most=4_000)]
    lines += [f"  {kind:<9}{_amount([entry for entry in found if entry.kind == kind])}" for kind in EntryKind]
    lines.append(f"  {'limit':<9}{size(place.limit_bytes)}, the longest unused go first")
    sys.stdout.write("\n".join(lines) + "\n")


def _amount(entries: "Sequence[Entry]") -> str:
    return f"{plural(len(entries), 'file')}, {size(sum(entry.size_bytes for entry in entries))}"
