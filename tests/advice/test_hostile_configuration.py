"""Files that would unfold to far more than they hold are refused in one line, at once."""

from time import process_time

import pytest

from wallscope.advice.configuration import read_configuration
from wallscope.errors import ConfigurationError

UNFOLDING = "".join(
    f'{name}="{f"${before} " * 1_000}"\n' for before, name in zip("ABCDEFG", "BCDEFGH", strict=True)
)
UNFOLDING = f'A="1 2"\n{UNFOLDING}$H\n'


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        pytest.param("a", "-a-" * 500_000, "no known setting", id="one long word"),
        pytest.param("a.sh", "'" + "a b " * 400_000 + "'", "no known setting", id="one long quotation"),
        pytest.param(
            "a.sh", "A=$A$A$A\n" * 100_000 + "--x $A", "no known setting", id="variables of variables"
        ),
        pytest.param("a.sh", UNFOLDING, "expand to very long", id="variables that unfold"),
        pytest.param(
            "a.sh",
            "A=" + "x" * 900_000 + "\n--seq-length " + "$A" * 500_000,
            "no known setting",
            id="long variable",
        ),
        pytest.param(
            "a", "\n" * 8_000_000 + "x", "too large|no settings", id="blank lines", marks=pytest.mark.slow
        ),
        pytest.param("a.yaml", "a: " + ":".join(["1"] * 500_000), "no known setting", id="base-60 integer"),
        pytest.param(
            "a.yaml", "a: " + ":".join(["1"] * 400_000) + ".5", "no known setting", id="base-60 number"
        ),
        pytest.param("a.toml", ".".join("a" * 26_000) + "=1", "over 40 parts", id="deep key"),
        pytest.param("a.toml", "[" + ".".join("a" * 26_000) + "]", "over 40 parts", id="deep table"),
        pytest.param(
            "a.toml", "x={" + " . ".join(["'a'"] * 9_000) + "=1}", "over 40 parts", id="deep inside"
        ),
        pytest.param("a.sh", "--x y\n" * 400_000, "too large", id="many flags"),
        pytest.param("a.log", "seq_length ..." + "  ." * 900_000, "too large", id="long dotted line"),
    ],
)
def test_what_unfolds_while_it_is_read_is_refused_at_once(tmp_path, name, text, said):
    (tmp_path / name).write_text(text, encoding="utf-8")
    begun_s = process_time()
    with pytest.raises(ConfigurationError, match=said) as caught:
        read_configuration(tmp_path / name)

    assert len(str(caught.value)) < 500
    assert process_time() - begun_s < 10, "minutes before"
