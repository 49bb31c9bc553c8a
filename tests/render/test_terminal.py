import io
from dataclasses import replace

import pytest
from rich.console import Console

from fixtures.export import ExportWriter
from fixtures.scenario import scenarios
from wallscope.cli.output import print_out
from wallscope.model.capture import Finding, Options, Severity
from wallscope.model.diagnosis import StatedBound
from wallscope.model.enums import Wall
from wallscope.model.section import Column, Items, Section, Span, tabulate
from wallscope.nsys import read_contents
from wallscope.pipeline import analyze
from wallscope.render.terminal import render_sections
from wallscope.views.analysis import render_analysis
from wallscope.views.listings import build_contents

HOSTILE = "evil\x1b[31mred\r\n::set-output name=x::y\u202e[bold]markup[/bold]<script>" + "x" * 100_000


def printed(answer, columns: int) -> str:
    page = io.StringIO()
    Console(file=page, width=columns, markup=False, highlight=False, emoji=False).print(answer)
    return "\n".join(line.rstrip() for line in page.getvalue().split("\n"))


def answered(path, *, is_full=True):
    return render_analysis(analyze(path, Options(), lambda _: None), path.name, is_full=is_full)


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize(
    "name", ["communication-partly-hidden", "two-processes", "graph-mode", "unmatched-kernel"]
)
def test_summary_looks_as_reviewed(name, columns, tmp_path, golden):
    path = tmp_path / f"{name}.sqlite"
    next(scenario for scenario in scenarios() if scenario.name == name).write(path)

    golden(f"{name}-{columns}.txt", printed(answered(path), columns))
    golden(f"{name}-first-{columns}.txt", printed(answered(path, is_full=False), columns))


def test_listing_of_contents_looks_as_reviewed(tmp_path, golden):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path, "3.7.2") as writer:
        writer.gpu()
        writer.machine("node1.cluster", 1_795_219_236_607_348_906)
        writer.environment(RANK="3", CUDA_DEVICE_MAX_CONNECTIONS="1", SECRET_TOKEN="planted")
        writer.kernel("nvjet", 1, 2)

    golden(
        "contents-80.txt", printed(render_sections(build_contents(read_contents(path, lambda _: None))), 80)
    )


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_no_line_is_wider_than_the_terminal(columns, tmp_path):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        writer.gpu()
        writer.kernel(HOSTILE, 1, 2_000_000)
        writer.copy("host-to-device", 3_000_000, 4_000_000, 1 << 40)

    assert max(map(len, printed(answered(path), columns).split("\n"))) <= columns


def test_names_chosen_by_an_attacker_are_shown_and_do_nothing(tmp_path):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        writer.kernel(HOSTILE, 1, 2_000)

    shown = printed(answered(path), 200)

    assert r"evil\x1b[31mred\r\n::set-output name=x::y\u202e[bold]markup" in shown
    assert all(letter.isprintable() or letter == "\n" for letter in shown)
    assert not any(line.startswith("::") for line in shown.split("\n"))


def test_names_of_calls_in_causes_and_findings_are_not_obeyed(tmp_path, capsys):
    spoken = "cudaMemcpyAsync\u202egnp.exe\x1b[2J"
    path = tmp_path / "run.sqlite"
    next(scenario for scenario in scenarios() if scenario.name == "graph-mode").write(path)
    found = analyze(path, Options(), lambda _: None)
    bound = StatedBound(f"host/queue-drained/{spoken}", Wall.HOST, 1, 1.5, "compute")
    finding = Finding("odd", Severity.WARNING, f"{spoken} was seen", f"leave {spoken} out")
    told = replace(
        found,
        diagnosis=replace(found.diagnosis, bound=bound),
        capture=replace(found.capture, findings=(finding,)),
    )

    print_out(render_analysis(told, is_full=True))

    shown = capsys.readouterr().out
    assert not {"\u202e", "\x1b"} & set(shown)
    assert shown.count("\\u202egnp.exe\\x1b[2J") == 3


@pytest.mark.parametrize("width", range(16, 60))
def test_no_line_breaks_between_a_number_and_its_unit(width):
    said = (
        "It takes 15.9 % of the 212.7 ms step, 3.2 µs and 1 s more, 590.2 MiB at 900 GB in 4 steps of 8 ranks"
    )
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(
        render_sections((Section("a", "", "", (Items((((Span("x", "dim"),), (said,)),)),)),))
    )
    lines = [line.strip() for line in stream.getvalue().splitlines()]

    assert " ".join(lines).removeprefix("x ") == said
    assert not [line for line in lines if line.split()[0] in {"%", "ms", "µs", "s", "MiB", "GB"}]
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", range(40, 161, 8))
def test_tables_never_cut_a_number(width):
    texts = (
        "communication/ep/unsplit/of-a-very-long-name",
        "words that explain the cause at some length " * 3,
    )
    columns = (
        Column("cause", "cause", value=lambda _: texts[0], wrap="fold"),
        Column("time", "time", "plain", value=lambda number: f"{number} ms"),
        Column(
            "bound",
            "upper bound on speedup",
            "plain",
            value=lambda number: f"{number:.2f}x (1)",
            brief="bound",
        ),
        Column("meaning", "what it is", value=lambda _: texts[1]),
    )
    numbers = (12.8, 4.6, 1234.5)
    grid = tabulate("", columns, numbers)

    shown = printed(render_sections((Section("causes", "", "", (grid,)),)), width)

    for number in numbers:
        assert f"{number} ms" in shown
        assert f"{number:.2f}x (1)" in shown
