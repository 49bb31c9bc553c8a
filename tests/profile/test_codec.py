import base64
import json
import zlib
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.profile.random_profiles import OPERATIONS, profile_of, profiles
from wallscope.errors import ProfileError
from wallscope.model.analysis import PackedProfile
from wallscope.model.enums import Wall
from wallscope.profile import codec
from wallscope.profile.codec import TABLES, pack_profile, unpack_profile

ONE = pack_profile(profile_of("a", [[1] * len(OPERATIONS)]))


def assert_same(one, other):
    assert one.header == other.header
    for name in TABLES:
        assert_frame_equal(getattr(one, name), getattr(other, name))


@given(profiles())
def test_what_is_read_is_what_was_written(profile):
    assert_same(unpack_profile(pack_profile(profile), "run.json"), profile)


TOLD = st.lists(
    st.tuples(
        st.none() | st.text(max_size=3),
        st.none() | st.sampled_from(list(Wall)),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.booleans(),
    ),
    max_size=8,
)
TOLD_SCHEMA = {"text": pl.String, "wall": pl.Enum(Wall), "time_ns": pl.Int64, "steady": pl.Boolean}


@pytest.mark.parametrize("long", [0, 100], ids=["long columns", "short columns"])
@given(rows=TOLD)
def test_tables_are_written_as_json(long, rows):
    frame = pl.DataFrame(rows, schema=TOLD_SCHEMA, orient="row")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "_LONG", long)
        written = codec._encode_table(frame)

    content = json.loads(written)
    assert json.dumps(content, separators=(",", ":")) == written
    for column, name in enumerate(TOLD_SCHEMA):
        told = [row[column] for row in rows]
        if name in {"text", "wall"}:
            texts = sorted(set(told) - {None})
            told = {"texts": texts, "codes": [None if text is None else texts.index(text) for text in told]}
        assert content[name] == told


def changed(**parts):
    content = json.loads(zlib.decompress(base64.b64decode(ONE.data)))
    return replace(ONE, data=base64.b64encode(zlib.compress(json.dumps(content | parts).encode())).decode())


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        pytest.param(
            replace(ONE, schema="wallscope.profile/9"), "is wallscope.profile/9", id="other version"
        ),
        pytest.param(replace(ONE, data="!"), "is damaged", id="no base64"),
        pytest.param(replace(ONE, data=ONE.data[: len(ONE.data) // 8 * 4]), "is damaged", id="cut short"),
        pytest.param(changed(steps={}), "is damaged", id="columns missing"),
        pytest.param(changed(header={"rank": "x"}), "is damaged", id="header wrong"),
        pytest.param(
            changed(
                recoverable={"input": [0], "cause": {"texts": ["a"], "codes": [4]}, "recoverable_ns": [1]}
            ),
            "is damaged",
            id="code of no text",
        ),
        pytest.param(
            changed(
                recoverable={"input": [0], "cause": {"texts": [], "codes": [None]}, "recoverable_ns": [1]}
            ),
            "is damaged",
            id="nothing where something must be",
        ),
        pytest.param(changed(owned=json.loads("{}")), "is damaged", id="table empty"),
        pytest.param(
            pack_profile(replace(profile_of("a", [[1] * 6]), owned=profile_of("a", [[2] * 6]).owned)),
            "contradicts itself",
            id="owned does not sum to the step",
        ),
        pytest.param(
            pack_profile(replace(profile_of("a", [[1] * 6]), keys=profile_of("a", [[1] * 6]).keys.head(2))),
            "contradicts itself",
            id="key of nothing",
        ),
    ],
)
def test_a_damaged_profile_is_one_clear_line(stored, said):
    with pytest.raises(ProfileError, match=said) as failed:
        unpack_profile(stored, "run.json")

    assert str(failed.value).startswith("run.json — ")
    assert "\n" not in str(failed.value)


def test_an_endless_profile_is_refused():
    bomb = base64.b64encode(zlib.compress(b"0" * 1_000_000)).decode()
    with pytest.raises(ProfileError, match="damaged"):
        unpack_profile(PackedProfile(ONE.schema, bomb), "run.json")
