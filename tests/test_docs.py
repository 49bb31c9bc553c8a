"""Docs that can not rot: commands, options, targets and queries are what the texts say."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wallscope as wallscope_package
from docs_build.commands import write_commands
from docs_build.contracts import write_json_page
from docs_build.figures import draw_blame_chain
from docs_build.gallery import EXHIBITS, write_gallery_page
from docs_build.hooks import MADE, link_repository
from docs_build.library import write_library
from tests.doc_blocks import PAGES
from tests.test_language import find_faults, read_texts
from wallscope.cli import FAILED, INTERNAL, USAGE
from wallscope.compare.gates import parse_gate
from wallscope.model.cause_catalogue import list_cause_meanings
from wallscope.model.enums import Axis

ROOT = Path(__file__).resolve().parent.parent
CAUSES = (ROOT / "docs" / "causes.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_readme_fits_two_screens():
    assert len(README.splitlines()) <= 120


def test_the_readme_has_the_two_commands_and_make_has_them_too():
    assert "```sh\npip install .\nwallscope demo\n```" in README
    assert "```sh\nmake test\n```" in README
    for target in ("demo", "test"):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)


def test_ci_runs_the_test_command_of_the_readme():
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_targets_that_pages_name_exist():
    named = {
        target
        for path in PAGES
        for target in re.findall(r"`make ([a-z-]+)", path.read_text(encoding="utf-8"))
    }
    named |= {
        target
        for path in PAGES
        for target in re.findall(r"^make ([a-z-]+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }

    assert {"demo", "test", "docs"} <= named
    assert [target for target in named if not re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)] == []


def test_every_command_and_option_has_its_help(wallscope):
    top = wallscope("--help", columns=140).out
    commands = re.findall(r"^  ([a-z-]+) +\S", top.partition("Get started:")[2], re.MULTILINE)

    assert commands == [
        "demo",
        "capture",
        "analyze",
        "steps",
        "kernels",
        "ranges",
        "gaps",
        "at",
        "whatif",
        "diff",
        "record",
        "history",
        "bisect",
        "ledger",
        "explain",
        "advise",
        "check-config",
        "capture-help",
        "info",
        "convert",
        "cache",
        "install-recipe",
        "mcp",
    ]
    for command in commands:
        text = re.sub(r"\n {8,}", "  ", wallscope(command, "--help", columns=140).out)
        options = re.findall(r"^  (?:-\w, )?(--[a-z-]+)(.*)", text, re.MULTILINE)
        assert options
        texts = [re.sub(r"\s*\[[^]]*\]$", "", said) for _, said in options]
        assert all(len(said.partition("  ")[2].strip()) > 10 for said in texts)


@pytest.mark.parametrize("path", sorted((ROOT / "queries").iterdir()), ids=lambda path: path.stem)
def test_every_query_says_what_it_answers_and_names_its_columns(path):
    text = path.read_text(encoding="utf-8")
    statement = re.sub(r"--.*", "", text)

    assert path.suffix == ".sql"
    assert text.startswith("-- ")
    assert not re.search(r"(?:SELECT|DISTINCT|[,.])\s*\*", statement)
    assert not re.search(r"[{}]|%s", statement)


def test_the_catalogue_of_causes_is_the_page_about_them():
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.+?) \|", CAUSES, re.MULTILINE))
    causes = {cause: said for cause, said in rows.items() if "/" in cause}
    axes = {axis: rows[axis] for axis in Axis}
    parts = {part: said for part, said in rows.items() if part not in {*causes, *axes}}
    spelled = {
        f"communication/{axis}/{part}": parts[part].replace("*axis*", axes[axis])
        for axis in axes
        for part in parts
    }

    assert causes | spelled == dict(list_cause_meanings())


def test_the_reference_names_every_command_and_option(wallscope):
    page = write_commands()

    for command in ("analyze", "diff", "whatif"):
        _, _, section = page.partition(f"\n## {command}\n")
        options = set(
            re.findall(
                r"^  (?:-\w, )?(--[a-z-]+)", wallscope(command, "--help", columns=140).out, re.MULTILINE
            )
        )
        assert options
        assert [option for option in options if option not in section.partition("\n## ")[0]] == []
        assert f"```sh\nwallscope {command} " in section.partition("\n## ")[0]


def test_the_reference_of_the_json_has_every_object():
    page = write_json_page()

    for path in sorted((ROOT / "reports").glob("*.schema.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        objects = [name for name, part in schema.get("$defs", {}).items() if "properties" in part]
        assert f"](../reports/{path.name})" in page
        assert [name for name in objects if f"\n### {name} " not in page] == []


def test_the_reference_of_the_library_has_every_public_name():
    page = write_library()

    assert [name for name in wallscope_package.__all__ if f"\n## {name}\n" not in page] == []


def test_the_page_of_exit_codes_has_those_of_the_command_line():
    codes = re.findall(r"(?m)^\| (\d+) \|", (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8"))

    assert codes == ["0", str(FAILED), str(USAGE), str(INTERNAL), "130"]


def test_gates_of_the_reference_are_gates():
    rows = re.findall(r"(?m)^\| (`.+?) \|", (ROOT / "docs" / "gates.md").read_text(encoding="utf-8"))
    named = [gate for row in rows for gate in re.findall(r"`([^`]+)`", row)]

    assert len(named) > 10
    assert [parse_gate(gate).text for gate in named] == named


def test_options_of_the_reference_of_questions_exist(wallscope):
    shown = wallscope("whatif", "--help", columns=140).out
    rows = re.findall(
        r"(?m)^\| `(--[a-z-]+)", (ROOT / "docs" / "whatif-questions.md").read_text(encoding="utf-8")
    )

    assert {"--scale", "--without", "--graph", "--hide", "--overlap"} == set(rows)
    assert [option for option in rows if option not in shown] == []


def test_every_page_is_in_the_navigation_once():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"[:-] ([a-z-]+\.md)$", text, re.MULTILINE)

    assert sorted(listed) == sorted([*MADE, *(path.name for path in (ROOT / "docs").glob("*.md"))])


@pytest.mark.slow  # make check builds it too
def test_the_site_is_built_strictly(tmp_path):
    pytest.importorskip("mkdocs", reason="no MkDocs here: make check installs it")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "WALLSCOPE_DOCS_PICTURES": "kept"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (tmp_path / "site" / "commands.html").is_file()


def test_a_link_into_the_repository_leads_there():
    linked = link_repository(
        "[rules](../wallscope/advice/rules) [it](../CONTRIBUTING.md#x)", "https://host/a/b"
    )

    assert linked == (
        "[rules](https://host/a/b/tree/main/wallscope/advice/rules) [it](https://host/a/b/blob/main/CONTRIBUTING.md#x)"
    )
    with pytest.raises(FileNotFoundError, match="no such file"):
        link_repository("[gone](../gone.md)", "https://host/a/b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_of_the_docs_lead_to_files(page):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)|(?:src|srcset)=\"([^\"]+)\"", text)
    targets = {target for pair in named for target in pair if target}

    assert [target for target in targets if target not in MADE and not (page.parent / target).exists()] == []


def test_pictures_of_the_docs_are_small_and_shown():
    pictures = sorted((ROOT / "docs" / "images").iterdir())
    pages = "".join(path.read_text(encoding="utf-8") for path in PAGES)

    assert [path.name for path in pictures if path.stat().st_size >= 300_000] == []
    assert [path.name for path in pictures if f"images/{path.name}" not in pages] == []


def test_the_figure_is_what_its_script_draws():
    assert (ROOT / "docs" / "images" / "blame-chain.svg").read_text(encoding="utf-8") == draw_blame_chain()


def test_the_gallery_shows_six_reports_each_with_its_thumbnail():
    page = write_gallery_page()

    assert len(EXHIBITS) == len({exhibit.page for exhibit in EXHIBITS}) == 6
    for exhibit in EXHIBITS:
        assert f"](gallery/{exhibit.page}.html)" in page
        assert f"picture: thumbnail-{exhibit.page} |" in page


def test_the_page_about_accuracy_quotes_the_rates_of_comparisons(request):
    page, begin, end = ROOT / "docs" / "accuracy.md", "<!-- comparisons -->\n", "<!-- end of comparisons -->"
    measured = (
        (ROOT / "docs" / "diff.md").read_text(encoding="utf-8").partition("<!-- bench: verdicts -->")[2]
    )
    (table, *_) = re.findall(r"(?m)^\| runs per side \|(?:.*\n)+?(?=\n)", measured)
    head, _, rest = page.read_text(encoding="utf-8").partition(begin)
    quoted = head + begin + table + end + rest.partition(end)[2]
    if request.config.getoption("--golden"):
        page.write_text(quoted, encoding="utf-8")

    assert page.read_text(encoding="utf-8") == quoted


GENERATED = {"causes.md", "facts.md", "fixes.md", "glossary.md", "modules.md", "programs.md", "tables.md"}
"""Pages made from texts of the program, which tests/test_language.py reads where they are written."""
WRITTEN = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]


def read_prose(path):
    """The paragraphs, list entries and cells of a page, without code, quoted names and targets of links."""
    return read_prose_of(path.read_text(encoding="utf-8"))


def read_prose_of(page):
    """The same of the text of a page."""
    text = re.sub(r"(?ms)^```.*?^```", "", page)
    text = re.sub(
        r"(?s)<!-- (captures|comparisons|bench: \w+|verdicts) -->.*?<!-- end.*?-->|<!--.*?-->|<[^>]+>",
        "",
        text,
    )
    text = re.sub(r"\]\([^)]*\)", "]", text)
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) ?)", text)
    cells = [cell for part in parts for cell in (part.split("|") if part.strip().startswith("|") else [part])]
    return tuple(" ".join(cell.split()) for cell in cells)


@pytest.mark.parametrize(
    "page", [page for page in WRITTEN if page.name not in GENERATED], ids=lambda page: page.name
)
def test_pages_are_plain(page):
    assert find_faults(read_prose(page)) == []


@pytest.mark.parametrize("path", sorted((ROOT / "docs_build").glob("*.py")), ids=lambda path: path.name)
def test_texts_of_the_build_are_plain(path):
    assert find_faults(read_texts(path.relative_to(ROOT).as_posix())) == []


def test_every_promise_of_the_threat_model_has_a_proof_that_exists():
    text = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 15
    for row in rows:
        proofs = re.findall(r"`(tests/[\w/]+\.py|make [a-z]+)`", row.rsplit("|", 2)[1])
        assert proofs, row
        for proof in proofs:
            if proof.startswith("make "):
                assert re.search(rf"^{proof[5:]}:", MAKEFILE, re.MULTILINE)
            else:
                assert "def test_" in (ROOT / proof).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["SECURITY.md", "docs/robustness.md", "docs/threat-model.md"])
def test_tests_that_pages_name_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?)`", text)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


QUOTING = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("get-started", "compare", "ask-what-if")),
]
MEASURED = re.compile(r"[+-]?\d[\d,]*\.\d+ (?:ms|µs|%|x)|\b\d{1,3}(?:,\d{3})+ operations")


@pytest.mark.parametrize("page", QUOTING, ids=lambda page: page.name)
def test_numbers_of_the_text_are_those_of_the_output_that_the_page_quotes(page):
    """The output is compared with that of the command, so a number that changed there is found here."""
    text = page.read_text(encoding="utf-8")
    quoted = "\n".join(re.findall(r"(?s)```console\n(.*?)```", text))
    told = MEASURED.findall(re.sub(r"(?s)```.*?```", "", text))

    assert quoted
    assert [number for number in told if number.lstrip("+-") not in quoted] == []
