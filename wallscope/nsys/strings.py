"""Texts of string ids, and dense numbers for them."""

import json

import polars as pl

from wallscope.model.frames import NAMES
from wallscope.nsys import catalog
from wallscope.nsys.tables import Database

NAMELESS = -1
"""Stands for a row that names no string; its text is `(unnamed)`."""


def texts_of(source: Database, string_ids: pl.Series) -> pl.DataFrame:
    """Columns `string_id`, `text` of the distinct ids; one that the export does not explain reads `#<id>`."""
    wanted = string_ids.unique().drop_nulls().sort().cast(pl.Int64).alias("string_id").to_frame()
    found: list[tuple[int, str]] = []
    if source.has(catalog.STRINGS, "id", "value"):
        found = source.rows("names", json.dumps(wanted["string_id"].to_list()))
    texts = pl.DataFrame(
        [(number, str(text)) for number, text in found if text is not None],
        schema={"string_id": pl.Int64, "text": pl.String},
        orient="row",
    ).unique("string_id", keep="first", maintain_order=True)
    number = pl.concat_str(pl.lit("#"), pl.col("string_id"))
    unnamed = pl.when(pl.col("string_id") == NAMELESS).then(pl.lit("(unnamed)")).otherwise(number)
    return wanted.join(texts, on="string_id", how="left").with_columns(pl.col("text").fill_null(unnamed))


def numbered(texts: pl.Series) -> pl.DataFrame:
    """Distinct texts, numbered in their alphabetical order (`NAMES`)."""
    return texts.unique().sort().alias("text").to_frame().with_row_index("name").cast(NAMES)
