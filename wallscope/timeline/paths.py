"""Range trees and their paths: which range is around which, and what like ranges have in common.

The outermost ranges of a thread that works for another, as PyTorch's autograd thread does, continue the
path of the range in which the other waits.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.model.frames import NAMES, NESTED, PATHS
from wallscope.timeline.folding import folded
from wallscope.timeline.inheritance import around_whole, host_threads
from wallscope.timeline.nesting import Rows, parents

_LONGEST_NAME = 200


def nested(
    ranges: pl.DataFrame, names: pl.DataFrame, calls: pl.DataFrame, threads: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The tree of ranges (`NESTED`), its paths (`PATHS`) and their folded names (`NAMES`).

    `ranges` follow `RANGES`, `names` are theirs, `calls` and `threads` follow `CALLS` and `THREADS`.
    Ranges that end on another thread stand alone. Parents are of the same thread, paths may go on in
    another.
    """
    folds = names.with_columns(folded(names["text"]))
    labels = folds.select("text").unique().sort("text").with_row_index("label")
    by_name = folds.join(labels, on="text", how="left", maintain_order="left")["label"].to_numpy()
    label = by_name[ranges["name"].to_numpy()] if len(ranges) else np.empty(0, np.int64)
    parent = _parents_by_thread(ranges)
    path, paths = _paths(_continued(ranges, parent, calls, threads), label, ranges["start_ns"].to_numpy())
    tree = ranges.with_columns(pl.Series("parent", parent), pl.Series("path", path))
    return tree.select(NESTED.names()).cast(NESTED), paths, labels.rename({"label": "name"}).cast(NAMES)


def _parents_by_thread(ranges: pl.DataFrame) -> Rows:
    parent = np.full(len(ranges), -1, dtype=np.int64)
    for own in ranges.filter(~pl.col("crosses")).partition_by("thread"):
        rows = own["range"].to_numpy().astype(np.int64)
        inside = parents(own["end_ns"].to_numpy())
        parent[rows] = np.where(inside < 0, -1, rows[inside])
    return parent


def _continued(ranges: pl.DataFrame, parent: Rows, calls: pl.DataFrame, threads: pl.DataFrame) -> Rows:
    """Parents with those of outermost ranges taken from the thread that waits during all of each."""
    around = parent.copy()
    holders = host_threads(ranges, calls, parent)
    for members in threads.partition_by("process"):
        own = {thread: holders[thread] for thread in members["thread"] if thread in holders}
        for thread, holder in own.items():
            others = [other for number, other in own.items() if number != thread]
            outermost = np.flatnonzero(parent[holder.rows] < 0)
            if others and outermost.size:
                around[holder.rows[outermost]] = around_whole(
                    others, holder.start_ns[outermost], holder.end_ns[outermost]
                )
    return around


def _paths(
    around: Rows, label: npt.NDArray[np.integer], start_ns: npt.NDArray[np.int64]
) -> tuple[Rows, pl.DataFrame]:
    """Path of each range, and all paths; a path is the path around it and a label."""
    number_of: dict[tuple[int, int], int] = {}
    path = [-1] * around.size
    depth: list[int] = []
    above, labels = around.tolist(), label.tolist()
    for row in np.argsort(start_ns, kind="stable").tolist():  # what is around a range began before it
        key = (path[above[row]] if above[row] >= 0 else -1, labels[row])
        number = number_of.setdefault(key, len(number_of))
        if number == len(depth):
            depth.append(depth[key[0]] + 1 if key[0] >= 0 else 0)
        path[row] = number
    if not depth:
        return np.empty(0, np.int64), PATHS.to_frame()
    paths = pl.DataFrame(list(number_of), schema=["parent", "name"], orient="row").with_row_index("path")
    return np.array(path, np.int64), paths.with_columns(pl.Series("depth", depth)).select(PATHS.names()).cast(
        PATHS
    )


def path_texts(paths: pl.DataFrame, names: pl.DataFrame, wanted: pl.Series, most: int = 8) -> pl.Series:
    """Some paths written out, outermost first; of deep ones the outside is left out, long names are cut.

    `paths` follow `PATHS`, `names` are their folded names, `wanted` are numbers of paths.
    """
    parent, label = paths["parent"].to_list(), paths["name"].to_list()
    texts = names["text"].str.slice(0, _LONGEST_NAME).to_list()
    written = []
    for path in wanted.to_list():
        inwards: list[str] = []
        at = path
        while at >= 0 and len(inwards) < most:
            inwards.append(texts[label[at]])
            at = parent[at]
        written.append(("… / " if at >= 0 else "") + " / ".join(reversed(inwards)))
    return pl.Series("path_text", written, dtype=pl.String)
