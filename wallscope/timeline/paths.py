"""Range trees and their paths: which range is around which, and what like ranges have in common.

The outermost ranges of a thread that works for another, as PyTorch's autograd thread does, continue the
path of the range in which the other waits.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.arrays.columns import Rows, filled
from wallscope.arrays.groups import groups, ranked, runs
from wallscope.arrays.lookup import at_places
from wallscope.model.frames import NAMES, NESTED, PATHS
from wallscope.timeline.folding import folded
from wallscope.timeline.inheritance import around_whole, by_process, host_threads
from wallscope.timeline.nesting import parents

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
    parent = _parents_by_thread(ranges)
    path, paths = _paths(_continued(ranges, parent, calls, threads), label, ranges["start_ns"].to_numpy())
    tree = ranges.select(*NESTED.names()[:-2]).hstack(
        [pl.Series("parent", parent, NESTED["parent"]), pl.Series("path", path, NESTED["path"])]
    )
    return tree, paths, pl.DataFrame({"name": np.arange(len(labels)), "text": labels}, schema=NAMES)


def _parents_by_thread(ranges: pl.DataFrame) -> Rows:
    parent = np.full(len(ranges), -1, dtype=np.int64)
    end_ns, crosses = ranges["end_ns"].to_numpy(), ranges["crosses"].to_numpy()
    for _, own in runs(filled(ranges["thread"])):
        rows = own.start + np.flatnonzero(~crosses[own])
        inside = parents(end_ns[rows])
        parent[rows] = np.where(inside < 0, -1, rows[inside])
    return parent


def _continued(ranges: pl.DataFrame, parent: Rows, calls: pl.DataFrame, threads: pl.DataFrame) -> Rows:
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


def _paths(
    around: Rows, label: npt.NDArray[np.integer], start_ns: npt.NDArray[np.int64]
) -> tuple[Rows, pl.DataFrame]:
    """Path of each range, and all paths in order of their first ranges.

    A path is the path around it and a label: ranges share one whose chains of labels are the same.
    """
    order = np.argsort(start_ns, kind="stable")
    turn = np.empty(around.size, np.int64)
    turn[order] = np.arange(around.size)
    around = np.where(turn[around] < turn, around, -1)  # what is around a range began before it
    chain = _chains(around, label)
    first = np.zeros(int(chain.max(initial=-1)) + 1, np.int64)
    first[chain[order[::-1]]] = order[::-1]  # the last that is written stays
    first = first[np.argsort(turn[first])]
    number = np.empty(first.size, np.int64)
    number[chain[first]] = np.arange(first.size)
    path = number[chain]
    parent = at_places(path, around[first], -1)
    depth: list[int] = []
    for outer in parent.tolist():
        depth.append(depth[outer] + 1 if outer >= 0 else 0)
    columns = {"path": np.arange(first.size), "parent": parent, "name": label[first], "depth": depth}
    return path, pl.DataFrame(columns, schema=PATHS)


def _chains(around: Rows, label: npt.NDArray[np.integer]) -> Rows:
    """A number for each range: the same where it and all around it, one by one, bear the same labels.

    Those of twice as many ranges are told from two halves, until nothing is around any more.
    """
    alike = np.append(groups(label) + 1, 0)  # the last is for nothing around
    leap = np.append(around, -1)
    while leap.max() >= 0:
        count = int(alike.max()) + 1
        alike = ranked(alike * count + alike[leap], count * count)[1]
        leap = leap[leap]
    return alike[:-1] - 1


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
