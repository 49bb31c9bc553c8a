"""The tables of a job of several ranks, declared once: columns, types, meanings.

Times are integer nanoseconds, null is unknown or does not apply. A unit ends the name of its column.
"""

import polars as pl

from wallscope.model.tables import Table, find_table_columns

_I32, _I64, _REAL = pl.Int32(), pl.Int64(), pl.Float64()
_TEXT, _YES = pl.String(), pl.Boolean()

_RANK = (
    *find_table_columns(_I64, place="index of the rank in the list `ranks` of the JSON output, from 0"),
    *find_table_columns(_I32, rank="number of the rank in the job"),
)
_NAME = find_table_columns(_TEXT, name="name of the rank in the output")

JOB_TABLES = (
    Table(
        "waits",
        "a rank of the job. Unless a column says otherwise, a time is a sum of durations in the typical"
        " step of"
        " the rank, whether they overlap compute or not",
        (
            *(*_RANK, *_NAME),
            *find_table_columns(_TEXT, hostname="name of the host of the rank"),
            *find_table_columns(
                _I64,
                group="index of the group of ranks that do the same work, in `rank_groups`",
                stage="number of the pipeline stage, from 0",
                steady_steps="count of the steady steps of the rank",
                step_median_ns="median length of the steady steps of the rank",
                residence_ns="time in communication operations: sum of transfer, peer wait, pipeline wait and"
                " unsplit time",
                transfer_ns="time in matched operations in which data moves",
                peer_wait_ns="time in matched operations in which the rank waited for later ranks, without"
                " pipeline sends and receives",
                pipeline_wait_ns="time in matched sends and receives between pipeline stages in which the"
                " rank"
                " waited for another stage",
                unsplit_ns="time in operations without a match on all of their other ranks: transfer and"
                " waiting"
                " are not separated",
                blocking_peer_wait_ns="part of `peer_wait_ns` on the critical path",
                blocking_pipeline_wait_ns="part of `pipeline_wait_ns` on the critical path",
                late_ns="time that other ranks waited for this rank on their critical path (for each"
                " operation"
                " the median over the other ranks)",
                all_residence_ns="time in communication operations in the whole capture",
                all_wait_ns="time in the whole capture in which the rank waited for later ranks",
            ),
        ),
    ),
    Table(
        "late_ranks",
        "a rank that other ranks wait for. Ranks that are late on most steps come first, then those with the"
        " largest `late_ns_median`",
        (
            *(*_RANK, *_NAME),
            *find_table_columns(_YES, repeated="whether the rank is late on most steps"),
            *find_table_columns(
                _I64,
                late_ns_median="how long other ranks wait for this rank in a step on which it is late"
                " (median)",
                late_steps="count of the steps on which the rank is late",
                steps="count of the steps that were compared",
            ),
            *find_table_columns(
                _TEXT,
                cause_wall="wall that takes longer on this rank",
                cause="cause of `cause_wall` that takes most of the additional time",
                reason="why the rank is late, in one word: slower-kernels, more-tokens, longer-kernels,"
                " other-work, host, memory, communication or unknown",
            ),
            *find_table_columns(
                _REAL,
                ratio="time of the delaying work on this rank divided by its usual time on similar ranks",
            ),
            *find_table_columns(_TEXT, why="why the rank is late, as a sentence"),
        ),
    ),
    Table(
        "rank_groups",
        "a group of ranks that do the same work",
        (
            *find_table_columns(
                _I64,
                group="index of the group, used by `waits`",
                count="count of the ranks in the group",
                step_median_ns="median over the ranks of the group of their median step lengths",
            ),
            *find_table_columns(
                _REAL,
                spread="(longest - shortest) / median, of the median step lengths of the ranks of the group",
            ),
            *find_table_columns(
                _I64,
                representative="`place` of the rank whose median step length is nearest to that of the group",
            ),
        ),
    ),
    Table(
        "clocks",
        "a host, with its clock compared with the reference clock",
        (
            *find_table_columns(_TEXT, hostname="name of the host"),
            *find_table_columns(
                _I64,
                ranks="count of the ranks on the host",
                offset_ns="offset of the clock of the host at its first matched collective",
            ),
            *find_table_columns(
                _REAL, drift_ppm="how much faster the clock of the host runs, in parts per million"
            ),
            *find_table_columns(_I64, matched="count of the collectives used for the comparison"),
        ),
    ),
    Table(
        "meetings",
        "one communication operation of one rank. Rows are sorted by start. `start_ns` and `end_ns` use one"
        " clock for all ranks, which starts with the first profiling session",
        (
            *find_table_columns(
                _I64, meeting="id of the collective, equal on all its ranks, empty without a match"
            ),
            *_RANK,
            *find_table_columns(_I64, step="index of the step in which the operation begins"),
            *find_table_columns(
                _TEXT,
                operation="kind of the operation: all-reduce, all-to-all, send-recv and others",
                axis="parallel axis of the operation: ep, dp-gradient, dp-parameter, tp, cp, pp or unknown",
                communicator="id of the communicator, in hexadecimal",
            ),
            *find_table_columns(
                _I64,
                start_ns="start of the operation on the common clock",
                end_ns="end of the operation on the common clock",
                session_ns="start of the operation on the clock of the profiling session of the rank",
                joined_ns="when the last rank joined the collective, empty if the operation of a rank is"
                " missing",
            ),
            *find_table_columns(_YES, is_last="whether this rank joined last"),
            *find_table_columns(
                _I64,
                residence_ns="duration of the operation: `wait_ns` plus `transfer_ns`",
                wait_ns="part of the duration in which the rank waited for later ranks",
                transfer_ns="part of the duration in which data moves",
                blocking_ns="part of the duration on the critical path of the rank",
                blocking_wait_ns="part of `blocking_ns` in which the rank waited for later ranks",
                bytes="size of the message as NCCL counts it",
            ),
        ),
    ),
)
"""The tables of a job."""
