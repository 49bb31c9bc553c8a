"""Range trees and their paths: which range is around which, and what like ranges have in common.

The outermost ranges of a thread that works for another, as PyTorch's autograd thread does, continue the
path of the range in which the other waits.
"""

import numpy as np
import polars as pl

from wallscope.arrays.columns import Codes, filled
from wallscope.kernels import range_nesting, views
from wallscope.model.frames import NAMES, NESTED, PATHS
from wallscope.timeline.folding import folded
from wallscope.timeline.inheritance import around_whole, by_process, host_threads
from wallscope.timeline.nesting import Parents, parents
from wallscope.timeline.spans import Times

_LONGEST_NAME = 200


def nested(
    ranges: pl.DataFrame, names: pl.DataFrame, calls: pl.DataFrame, threads: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The tree of ranges (`NESTED`), its paths (`PATHS`) and their folded names (`NAMES`).

    `ranges` follow `RANGES`, `names` are theirs, `calls` and `threads` follow `CALLS` and `THREADS`.
    Ranges that end on another thread stand alone. Parents are of the same thread, paths may go on in
    another.
    """
    folds = folded(names["text"])
    labels = folds.unique().sort()
    by_name = folds.cast(pl.Enum(labels)).to_physical().to_numpy()
    label = by_name[ranges["name"].to_numpy()] if len(ranges) else np.empty(0, np.int64)
    parent = parents(ranges["end_ns"].to_numpy(), filled(ranges["thread"]), ranges["crosses"].to_numpy())
    path, paths = _paths(_continued(ranges, parent, calls, threads), label, ranges["start_ns"].to_numpy())
    tree = ranges.select(*NESTED.names()[:-2]).hstack(
        [pl.Series("parent", parent, NESTED["parent"]), pl.Series("path", path, NESTED["path"])]
    )
    return tree, paths, pl.DataFrame({"name": np.arange(len(labels)), "text": labels}, schema=NAMES)


def _continued(ranges: pl.DataFrame, parent: Parents, calls: pl.DataFrame, threads: pl.DataFrame) -> Parents:
    """Parents with those of outermost ranges taken from the thread that waits during all of each."""
    around = parent.copy()
    for own in by_process(host_threads(ranges, calls, parent), threads).values():
        for thread, holder in own.items():
            others = [other for number, other in own.items() if number != thread]
            outermost = np.flatnonzero(parent[holder.rows] < 0)
            if others and outermost.size:
                around[holder.rows[outermost]] = around_whole(
                    others, holder.start_ns[outermost], holder.end_ns[outermost]
                )
    return around


def _paths(around: Parents, label: Codes, start_ns: Times) -> tuple[Parents, pl.DataFrame]:
    """Path of each range, and all paths (`PATHS`) in order of their first ranges.

    A path is the path around it and a label: ranges share one whose chains of labels are the same. What
    is around a range began before it.
    """
    size = around.size
    path = np.full(size, -1, np.int32)
    parent, name, depth = (np.empty(size, np.int32) for _ in range(3))
    count = range_nesting.number_paths(
        *views(np.argsort(start_ns, kind="stable"), around, label.astype(np.int32)),
        *views(np.full(2 << size.bit_length(), -1, np.int32), path, parent, name, depth),
    )
    columns = {
        "path": np.arange(count),
        "parent": parent[:count],
        "name": name[:count],
        "depth": depth[:count],
    }
    return path, pl.DataFrame(columns, schema=PATHS)


def path_texts(paths: pl.DataFrame, names: pl.DataFrame, wanted: pl.Series, most: int = 8) -> pl.Series:
    """Some paths written out, outermost first; of deep ones the outside is left out, long names are cut.

    `paths` follow `PATHS`, `names` are their folded names, `wanted` are numbers of paths.
    """
    parent, label = paths["parent"].to_list(), paths["name"].to_list()
    texts = [text[:_LONGEST_NAME] for text in names["text"].to_list()]
    written = []
    for path in wanted.to_list():
        inwards: list[str] = []
        at = path
        while at >= 0 and len(inwards) < most:
            inwards.append(texts[label[at]])
            at = parent[at]
        written.append(("… / " if at >= 0 else "") + " / ".join(reversed(inwards)))
    return pl.Series("path_text", written, dtype=pl.String)
