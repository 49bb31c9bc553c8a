"""Which range stands inside which, also where ranges overlap without nesting.

Ranges of one thread are sorted by start, the longest first. The parent of a range is the latest one
before it that ends no sooner. Ends grow on the way up, so the innermost range around a moment is
found by jumping over ancestors that have ended, by powers of two.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.model.frames import NAMES, NESTED, PATHS
from wallscope.timeline.folding import folded
from wallscope.timeline.spans import Times

Rows = npt.NDArray[np.int64]


def parents(end_ns: Times) -> Rows:
    """Row of the latest earlier range that ends no sooner, -1 without one; ranges in order of start.

    >>> parents(np.array([100, 40, 30, 90, 60, 120])).tolist()
    [-1, 0, 1, 0, 3, -1]
    """
    parent = np.full(end_ns.size, -1, dtype=np.int64)
    ends = end_ns.tolist()
    around: list[int] = []
    for row, end in enumerate(ends):
        while around and ends[around[-1]] < end:
            around.pop()
        if around:
            parent[row] = around[-1]
        around.append(row)
    return parent


def innermost(start_ns: Times, end_ns: Times, parent: Rows, at_ns: Times) -> Rows:
    """Row of the range with the latest start that is open at each moment, -1 where none is.

    A range is open from its start on and no longer at its end.

    >>> start, end = np.array([0, 10, 50]), np.array([100, 20, 60])
    >>> innermost(start, end, parents(end), np.array([5, 15, 20, 55, 100])).tolist()
    [0, 1, 0, 2, -1]
    """
    reach = np.append(end_ns, np.iinfo(np.int64).max)  # row -1, the last entry, is around everything
    row = np.searchsorted(start_ns, at_ns, side="right") - 1
    jumps = list(_jumps(parent))
    for jump in reversed(jumps):
        over = jump[row]
        row = np.where(reach[over] <= at_ns, over, row)
    return np.where(reach[row] <= at_ns, jumps[0][row], row)


def _jumps(parent: Rows) -> Iterator[Rows]:
    """The ancestor 1, 2, 4, … levels above each row, up to where all rows have left the tree."""
    jump = np.append(parent, -1)
    yield jump
    while (jump >= 0).any():
        jump = jump[jump]
        yield jump


def nested(ranges: pl.DataFrame, names: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The tree of ranges (`NESTED`), its paths (`PATHS`) and their folded names (`NAMES`).

    `ranges` follow `RANGES`, `names` are theirs. Ranges that end on another thread stand alone.
    """
    folds = names.with_columns(folded(names["text"]))
    labels = folds.select("text").unique().sort("text").with_row_index("label")
    by_name = folds.join(labels, on="text", how="left", maintain_order="left")["label"].to_numpy()
    label = by_name[ranges["name"].to_numpy()] if len(ranges) else np.empty(0, np.int64)
    parent = _parents_by_thread(ranges)
    path, paths = _paths(parent, label)
    tree = ranges.with_columns(pl.Series("parent", parent), pl.Series("path", path))
    return tree.select(NESTED.names()).cast(NESTED), paths, labels.rename({"label": "name"}).cast(NAMES)


def _parents_by_thread(ranges: pl.DataFrame) -> Rows:
    parent = np.full(len(ranges), -1, dtype=np.int64)
    for own in ranges.filter(~pl.col("crosses")).partition_by("thread"):
        rows = own["range"].to_numpy().astype(np.int64)
        inside = parents(own["end_ns"].to_numpy())
        parent[rows] = np.where(inside < 0, -1, rows[inside])
    return parent


def _paths(parent: Rows, label: npt.NDArray[np.integer]) -> tuple[Rows, pl.DataFrame]:
    """Path of each range, and all paths; a path is the path around it and a label."""
    number_of: dict[tuple[int, int], int] = {}
    path: list[int] = []
    depth: list[int] = []
    for above, own in zip(parent.tolist(), label.tolist(), strict=True):
        key = (path[above] if above >= 0 else -1, own)
        number = number_of.setdefault(key, len(number_of))
        if number == len(depth):
            depth.append(depth[key[0]] + 1 if key[0] >= 0 else 0)
        path.append(number)
    paths = pl.DataFrame(list(number_of), schema=["parent", "name"], orient="row").with_row_index("path")
    empty = PATHS.to_frame()
    found = (
        paths.with_columns(pl.Series("depth", depth)).select(PATHS.names()).cast(PATHS) if depth else empty
    )
    return np.array(path, dtype=np.int64), found


def path_texts(paths: pl.DataFrame, names: pl.DataFrame, most: int = 8) -> pl.Series:
    """Each path written out, outermost first; of deep ones the middle is left out.

    `paths` follow `PATHS`, `names` are their folded names.
    """
    parent, label = paths["parent"].to_list(), names["text"].gather(paths["name"]).to_list()
    texts = []
    for row in range(len(paths)):
        inwards: list[str] = []
        at = row
        while at >= 0 and len(inwards) < most:
            inwards.append(label[at])
            at = parent[at]
        texts.append(("… / " if at >= 0 else "") + " / ".join(reversed(inwards)))
    return pl.Series("path_text", texts, dtype=pl.String)
