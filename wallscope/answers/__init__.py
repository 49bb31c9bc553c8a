"""An answer out of the cache, or worked out and kept there; either way the same bytes."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wallscope.answers.naming import name_of
from wallscope.answers.reading import analysis_of
from wallscope.cache import Cache, Kind
from wallscope.model.analysis import Analysis
from wallscope.model.capture import Progress
from wallscope.model.options import Options
from wallscope.render.document import document

if TYPE_CHECKING:
    from wallscope.analysis import Accounted

__all__ = ["Answer", "answer_of", "answered", "answered_copy"]


@dataclass(frozen=True, slots=True)
class Answer:
    """An analysis, the same as JSON text, and its page as HTML where one was asked for."""

    analysis: Analysis
    text: str
    page: str | None = None


def answered(
    path: Path, options: Options, progress: Progress, cache: Cache | None, *, with_page: bool = False
) -> Answer:
    """The answer for one export; what has to be worked out is kept, the page only where it is asked for.

    Nothing is kept of an input that changed meanwhile, nor of one that cannot be analysed.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    return _kept_or_made(
        partial(name_of, path, options),
        partial(_worked_out, path, options, progress, with_page=with_page),
        progress,
        cache,
        with_page=with_page,
    )


def answered_copy(  # noqa: PLR0913  # as above, and how the copy is named and got
    name: Callable[[], str | None],
    copied: Callable[[], AbstractContextManager[Path]],
    options: Options,
    progress: Progress,
    cache: Cache | None,
    *,
    with_page: bool = False,
) -> Answer:
    """The same for an export that is not on this machine: it is copied only if its answer is not kept.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """

    def made() -> Answer:
        with copied() as path:
            return _worked_out(path, options, progress, with_page=with_page)

    return _kept_or_made(name, made, progress, cache, with_page=with_page)


def _kept_or_made(
    named: Callable[[], str | None],
    make: Callable[[], Answer],
    progress: Progress,
    cache: Cache | None,
    *,
    with_page: bool,
) -> Answer:
    """The answer that bears a name in the cache; else the one made, kept if its name is the same then."""
    name = None if cache is None else named()
    if cache is None or name is None:
        return make()
    found = _kept(cache, name, with_page=with_page)
    if found is not None:
        progress("the answer is in the cache")
        return found
    made = make()
    if named() == name:
        cache.keep(Kind.ANSWERS, name, made.text.encode())
        if made.page is not None:
            cache.keep(Kind.PAGES, name, made.page.encode())
    return made


def _kept(cache: Cache, name: str, *, with_page: bool) -> Answer | None:
    page = cache.kept(Kind.PAGES, name) if with_page else None
    if with_page and page is None:
        return None
    content = cache.kept(Kind.ANSWERS, name)
    if content is None:
        return None
    text = content.decode()
    return Answer(analysis_of(text), text, None if page is None else page.decode())


def _worked_out(path: Path, options: Options, progress: Progress, *, with_page: bool) -> Answer:
    from wallscope.analysis import accounted  # noqa: PLC0415  # an answer in the cache needs none

    return answer_of(accounted(path, options, progress), progress, with_page=with_page)


def answer_of(made: "Accounted", progress: Progress, *, with_page: bool) -> Answer:
    """The answer that was worked out, with its page where one is asked for."""
    text = document(made.analysis)
    if not with_page:
        return Answer(made.analysis, text)
    from wallscope.analysis import report_of  # noqa: PLC0415  # only the page needs it
    from wallscope.views.page import page  # noqa: PLC0415  # same

    return Answer(made.analysis, text, page(report_of(made, progress)))
