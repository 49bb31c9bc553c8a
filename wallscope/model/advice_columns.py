"""The tables of upper bounds, fixes and findings, declared once: columns, types, meanings."""

import polars as pl

from wallscope.model.tables import Table, find_table_columns

_I64, _REAL = pl.Int64(), pl.Float64()
_TEXT, _YES = pl.String(), pl.Boolean()

WALL_COLUMNS = find_table_columns(
    _TEXT,
    wall="wall of the cause",
    cause="cause, written `wall/cause` or `wall/cause/detail`, as in docs/causes.md",
)

ADVICE_TABLES = (
    Table(
        "opportunities",
        "a cause of the representative rank, with an upper bound on the gain without this cause. Gains of"
        " several causes must not be added",
        (
            *find_table_columns(_TEXT, id="id of the row: the cause"),
            *WALL_COLUMNS,
            *find_table_columns(
                _I64,
                recoverable_ns="upper bound on the time by which the typical step becomes shorter",
                step_ceiling_ns="shortest possible step: length of the typical step minus `recoverable_ns`",
            ),
            *find_table_columns(
                _REAL,
                speedup_ceiling="largest possible speedup: length of the typical step divided by"
                " `step_ceiling_ns`",
            ),
            *find_table_columns(
                _TEXT,
                status="how well the cause is known: trace-verified (the profile shows it) or inferred (from"
                " times or order)",
                evidence="figures that support the bound, separated by semicolons",
            ),
        ),
    ),
    Table(
        "fixes",
        "a fix, in the order of the recommendations",
        (
            *find_table_columns(_I64, place="position in the list of recommendations, from 1"),
            *find_table_columns(
                _TEXT,
                fix="id of the fix, as in docs/fixes.md",
                title="what to do",
                wall="wall under which docs/fixes.md lists the fix",
                causes="causes of this run that the fix addresses, separated by semicolons",
            ),
            *find_table_columns(_YES, blocked="whether a precondition of the fix is not met"),
            *find_table_columns(
                _I64,
                recoverable_ns="upper bound on the time by which the fix makes the typical step shorter",
            ),
            *find_table_columns(
                _REAL,
                speedup_ceiling="upper bound on the speedup: length of the typical step divided by its length"
                " without `recoverable_ns`",
            ),
            *find_table_columns(
                _TEXT,
                verify="how to check that the fix has an effect",
                source="documents on which the fix is based",
            ),
        ),
    ),
    Table(
        "settings",
        "a setting of a fix",
        find_table_columns(
            _TEXT,
            fix="id of the fix, as in `fixes`",
            system="program that has the setting: megatron-bridge, megatron-lm, pytorch, environment, nsys"
            " and"
            " others",
            key="name of the setting, or a line of code or command",
            value="value of the setting as the program spells it, empty for code and for a flag",
        ),
    ),
    Table(
        "preconditions",
        "a precondition of a fix",
        find_table_columns(
            _TEXT,
            fix="id of the fix, as in `fixes`",
            precondition="id of the precondition",
            text="condition that must hold",
            status="met, unmet, unknown, or set (the fix itself sets it)",
            unblock="what to change if the condition is unmet",
        ),
    ),
    Table(
        "findings",
        "a finding: something that makes the result incomplete or less certain",
        (
            *find_table_columns(
                _TEXT,
                code="id of the finding, as in docs/glossary.md",
                severity="how strongly the finding limits the result: error, warning or info",
                message="text of the finding",
                cure="what to change in the next capture or command",
            ),
            *find_table_columns(
                _I64, covers_ns="length of the time that `message` is about, empty without such a time"
            ),
        ),
    ),
)
"""The last tables of the analysis of one capture."""
