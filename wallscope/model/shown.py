"""How a field of a row is shown, declared once with its type: `Annotated[int, Shown("…", "work", "ms")]`.

Tables of files and their reference, JSON schemas, pages and terminals take it from there.
"""

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from wallscope.records import dataclass

Unit = Literal[
    "text",
    "code",
    "plain",  # numbers that are text already
    "count",
    "rounded",
    "ms",
    "signed_ms",
    "seconds",
    "duration",
    "signed_duration",
    "percent",
    "signed_percent",
    "speedup",
    "exact_speedup",
    "size",
    "rate",
    "flops",
    "bar",
]
"""How values are shown; text and code are left-aligned, all others right-aligned."""
WORDS: Mapping[str, str] = {"whole": "typical step", "step": "step", "of": "step"}
"""What stands for the places in a meaning, where a screen does not say it in its own words."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The meaning, title and unit of a field.

    Attributes:
        meaning: content of the field; `{whole}`, `{step}` and `{of}` are places for words (`WORDS`).
        title: of its column, on a page and a terminal.
        unit: how values are shown.
        brief: title of the column of a frame on a terminal, if different.
        column: its name in tables of files, if different.
        kind: polars type in tables of files, where the type of the field is another.
    """

    meaning: str
    title: str = ""
    unit: Unit = "text"
    brief: str | None = None
    column: str = ""
    kind: Literal["", "Int32", "Int64", "UInt64"] = ""

    def describe(self, **words: str) -> str:
        """Return the meaning, with words in its places.

        >>> Shown("kernels that begin in the {whole}").describe(whole="capture")
        'kernels that begin in the capture'
        """
        return self.meaning.format_map({**WORDS, **words})

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        """Give the key of a JSON schema its description."""
        return handler(schema) | {"description": self.describe()}


@cache
def list_fields(row: type) -> Mapping[str, Shown]:
    """Return how the fields of a row are shown, by name; a name that Python reserves ends in `_` there."""
    notes = ((name, getattr(hint, "__metadata__", ())) for name, hint in inspect.get_annotations(row).items())
    return {name.removesuffix("_"): note for name, all_ in notes for note in all_ if isinstance(note, Shown)}


CAUSE = Shown(
    "cause, written `wall/cause` or `wall/cause/detail`; `wallscope explain` describes each cause", "cause"
)
WALL = Shown("wall to which the cause belongs", "wall")
RANK = Shown("rank number in the job", "rank", kind="Int32")
PLACE = Shown("index of the rank in the `ranks` list of the JSON output, from 0", "rank")
NAME = Shown("name of the rank in the output", "rank")
HOSTNAME = Shown("name of the host", "host")
START = Shown("start of the {of}, in session time as Nsight Systems shows it", "start", "seconds")
END = Shown("end of the {of}", "end", "seconds")
KERNEL_NAME = Shown("name of the kernels", "kernel")
FUNCTION = Shown("name of the CUDA function", "call")
WORK = Shown("summed durations of the kernels inside the {whole}, not elapsed time", "work", "ms")
KERNELS = Shown("number of kernels that begin in the {whole}", "kernels", "count")
OPERATION = Shown("kind of operation, such as all-reduce, all-to-all or send-recv", "operation")
AXIS = Shown("parallel axis of the operation: ep, dp-gradient, dp-parameter, tp, cp, pp or unknown", "axis")
COMMUNICATOR = Shown("id of the NCCL communicator, in hexadecimal", "communicator")
"""Fields of several rows."""
