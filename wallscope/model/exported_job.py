"""The tables of a job of several exports that stand beside those of its answer, declared once.

Ranks are meant by their place in `ranks` of the answer, from 0, and by number where one is known.
"""

import polars as pl

from wallscope.model.exported import Column, Table, named

_I32, _I64, _REAL = pl.Int32(), pl.Int64(), pl.Float64()
_TEXT, _YES = pl.String(), pl.Boolean()
_RANK = (
    *named(_I64, place="of the rank in `ranks` of the answer, from 0"),
    *named(_I32, rank="its number in the job"),
)
_CALLED: tuple[Column, ...] = named(_TEXT, name="what it is called")

JOB_TABLES = (
    Table(
        "waits",
        "a rank of the job; times without another word are of its typical step, durations added up",
        (
            *(*_RANK, *_CALLED),
            *named(_TEXT, hostname="where it ran"),
            *named(_I64, group="of ranks that do the same work", stage="of the pipeline"),
            *named(_I64, steady_steps="how many steps count", step_median_ns="median length of these"),
            *named(
                _I64,
                residence_ns="its collectives last",
                transfer_ns="of it, bytes move",
                peer_wait_ns="of it, it waits for ranks that came later",
                pipeline_wait_ns="of it, it waits for other stages",
                unsplit_ns="of it, what was not matched",
                blocking_peer_wait_ns="waits for peers on the binding chain",
                blocking_pipeline_wait_ns="waits for stages on the binding chain",
                late_ns="others wait for it on their chains",
                all_residence_ns="its collectives last, in the whole capture",
                all_wait_ns="it waits for peers, in the whole capture",
            ),
        ),
    ),
    Table(
        "late_ranks",
        "a rank that others wait for, the worst first",
        (
            *(*_RANK, *_CALLED),
            *named(_YES, repeated="late on most steps, not in turn with others"),
            *named(_I64, late_ns_median="what others wait for it", late_steps="on how many steps"),
            *named(_I64, steps="of how many"),
            *named(_TEXT, cause_wall="the wall that kept it", cause="of that wall", reason="in a word"),
            *named(_REAL, ratio="how much longer that takes than on its peers"),
            *named(_TEXT, why="in words"),
        ),
    ),
    Table(
        "rank_groups",
        "a group of ranks that do the same work",
        (
            *named(_I64, group="as in `waits`", count="of ranks", step_median_ns="median of their medians"),
            *named(_REAL, spread="longest less shortest of these, over their median"),
            *named(_I64, representative="place of the rank that is nearest to the median"),
        ),
    ),
    Table(
        "clocks",
        "a host against the clock of reference",
        (
            *named(_TEXT, hostname="its name"),
            *named(_I64, ranks="how many ran on it", offset_ns="of its clock at its first collective"),
            *named(_REAL, drift_ppm="how much faster its clock runs"),
            *named(_I64, matched="collectives that tell it"),
        ),
    ),
    Table(
        "meetings",
        "a rank in a collective, in order of its begin on one clock, which counts from the first session",
        (
            *named(_I64, meeting="number of the collective, the same of all that take part"),
            *_RANK,
            *named(_I64, step="that it begins in"),
            *named(_TEXT, operation="what it does", axis="dimension of the job that it serves"),
            *named(_TEXT, communicator="its id, in hexadecimal"),
            *named(
                _I64, start_ns="it came in", end_ns="it was through", session_ns="its begin in its session"
            ),
            *named(_I64, joined_ns="the last one came in; null where participants lack"),
            *named(_YES, is_last="it came last"),
            *named(_I64, residence_ns="end - start", wait_ns="of it, before the last came"),
            *named(_I64, transfer_ns="of it, bytes move", blocking_ns="it owns on the chain"),
            *named(_I64, blocking_wait_ns="of that, waiting", bytes="of its message"),
        ),
    ),
)
"""What ranks tell together, as tables."""
