import json

import pytest

from fixtures.export import ExportWriter


@pytest.fixture
def export(tmp_path):
    """One kernel that takes no time."""
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        writer.kernel("nvjet", 5, 5)
    return path


@pytest.mark.parametrize("command", ["steps", "kernels", "ranges"])
@pytest.mark.parametrize(
    ("targets", "said"),
    [
        pytest.param(("--csv", "-", "--json", "-"), "standard output", id="standard output"),
        pytest.param(("--csv", "o", "--json", "o"), "o", id="one file"),
        pytest.param(
            ("--csv", "o", "--json", "../{folder}/o"), "../{folder}/o", id="one file in two spellings"
        ),
    ],
)
def test_two_results_never_go_to_one_place(command, targets, said, wallscope, tmp_path):
    places = [target.format(folder=tmp_path.name) for target in targets]
    ran = wallscope(command, "none.sqlite", *places)

    assert (ran.code, ran.out) == (2, "")
    where = said.format(folder=tmp_path.name)
    assert ran.err == f"wallscope: {where} — is named by --csv and by --json — name two places\n"
    assert list(tmp_path.iterdir()) == []


def test_of_a_window_without_length_shares_are_unknown(wallscope, export):
    (row,) = json.loads(wallscope("kernels", export, "--json", "-").out)

    assert (row["count"], row["work_ns"], row["step_share"], row["median_ns"]) == (1, 0, None, 0)
    assert wallscope("kernels", export).code == 0
