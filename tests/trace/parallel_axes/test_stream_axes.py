import pytest

from wallscope.errors import SelectionError
from wallscope.trace.parallel_axes import parse_stream_axes


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param(["20=ep", " 7 = dp-gradient "], {20: "ep", 7: "dp-gradient"}, id="two, with blanks"),
        pytest.param(["20=ep", "20=ep"], {20: "ep"}, id="twice the same"),
    ],
)
def test_the_map_of_streams_is_read(texts, expected):
    assert parse_stream_axes(texts) == expected


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        pytest.param(
            ["ep"], "--stream ep — is not a stream and axis — write 20=ep; axes are", id="no stream"
        ),
        pytest.param(["-1=ep"], "--stream -1=ep — is no", id="a negative number"),
        pytest.param(["x=ep"], "--stream x=ep — is no", id="no number"),
        pytest.param(["1=xp"], "--stream 1=xp — is no", id="no axis"),
        pytest.param(["1=unknown"], "--stream 1=unknown — is no", id="not known is no axis"),
        pytest.param(["²=ep"], "--stream ²=ep — is no", id="a digit of another kind"),
        pytest.param(["1=ep", "1=tp"], "--stream 1=tp — stream 1 is also given as ep — keep", id="two axes"),
    ],
)
def test_a_map_that_cannot_be_read_is_one_line(texts, said):
    with pytest.raises(SelectionError) as caught:
        parse_stream_axes(texts)

    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
