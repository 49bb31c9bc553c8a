import io

import polars as pl
import pytest
from rich.cells import cell_len
from rich.console import Console

from wallscope.render.frame_tables import KERNELS, RANGES, Cut, FrameColumn, fit_text, render_frame

WIDE = "日本語のカーネル名" * 12


def printed(frame: pl.DataFrame, columns: tuple[FrameColumn, ...], width: int) -> list[str]:
    page = io.StringIO()
    Console(file=page, width=width, markup=False, highlight=False, emoji=False).print(
        render_frame(frame, columns)
    )
    return page.getvalue().rstrip("\n").split("\n")


@pytest.mark.parametrize("width", [76, 80, 81])
@pytest.mark.parametrize(
    ("columns", "text"), [(KERNELS, "name"), (RANGES, "path")], ids=["kernels", "ranges"]
)
def test_names_of_wide_letters_keep_each_row_on_its_line(columns, text, width):
    numbers = {column.name: [1, 1] for column in columns if not column.is_text}
    texts = {column.name: [WIDE, f"x{WIDE}y"] for column in columns if column.is_text}
    frame = pl.DataFrame({"rank": [0, 0], "pid": [1, 1], "device": [0, 0], **numbers, **texts})

    lines = printed(frame, columns, width)

    assert text in texts
    assert len(lines) == 4
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("cut", list(Cut))
@pytest.mark.parametrize("text", [WIDE, f"a{WIDE}", "plain letters alone, many of them"])
@pytest.mark.parametrize("width", [14, 15])
def test_text_that_is_cut_is_as_wide_as_its_column(cut, text, width):
    column = FrameColumn("name", "name", is_text=True, cut=cut)

    assert cell_len(fit_text(column, text, width)) == width


def test_text_that_is_cut_keeps_as_much_as_fits():
    shown = [fit_text(FrameColumn("name", "name", is_text=True, cut=cut), "abcdefgh", 5) for cut in Cut]

    assert shown == ["…efgh", "ab…gh", "abcd…"]
