"""Parts of a model with vision, found by the names of ranges."""

import pytest

from wallscope.advice.vision_parts import find_imbalance, measure_vision
from wallscope.model.analysis import RangeWork


def make_range(path, gpu_ns, backward_ns=None):
    name = path.rpartition(" / ")[2]
    return RangeWork(name, path, 1, 0, gpu_ns, gpu_ns, gpu_ns, gpu_ns, None, backward_ns)


@pytest.mark.parametrize(
    ("encoder", "projector", "decoder"),
    [
        ("visual", "merger", "language_model"),
        ("vision_model", "vision_projection", "decoder"),
        ("vision_tower", "multi_modal_projector", "language_model"),
        ("model.visual", "model.visual.merger", "model.language_model"),
        ("ViT forward", "mm_projector", "LLM forward"),
        ("image_encoder", "resampler", "text_model"),
        ("SiglipVisionModel", "MultimodalProjector", "GPTModel"),
    ],
)
@pytest.mark.parametrize("is_inside", [True, False])
def test_parts_are_named_as_frameworks_name_them(encoder, projector, decoder, is_inside):
    inner = f"step / {encoder} / {projector}" if is_inside else f"step / {projector}"
    ranges = [
        make_range("step", 200),
        make_range(f"step / {encoder}", 40),
        make_range(inner, 10),
        make_range(f"step / {decoder}", 100),
        make_range(f"step / {decoder} / layers / #", 90),
    ]
    found = measure_vision(ranges, 200)

    assert found.encoder_ns == (30 if is_inside else 40)
    assert (found.projector_ns, found.decoder_ns, found.encoder_backward_ns) == (10, 100, None)


def test_a_decoder_inside_a_tower_is_a_part_of_the_tower():
    ranges = [
        make_range("vision_model", 40),
        make_range("vision_model / decoder", 30),
        make_range("language_model", 60),
        make_range("language_model / decoder", 50),
    ]
    found = measure_vision(ranges, 100)

    assert (found.encoder_ns, found.decoder_ns) == (40, 60)


def test_a_tower_inside_a_decoder_is_taken_out_of_it():
    ranges = [make_range("language_model", 100), make_range("language_model / vision_tower", 30)]
    found = measure_vision(ranges, 100)

    assert (found.encoder_ns, found.decoder_ns) == (30, 70)


@pytest.mark.parametrize(
    "names",
    [
        ("visual", "head"),
        ("language_model", "decoder"),
        ("VisionTransformer", "forward"),
        ("encoder", "decoder"),
        ("supervisual", "decoder"),
        ("invite", "decoder"),
        (),
    ],
)
def test_other_models_have_no_such_parts(names):
    assert measure_vision([make_range(name, 10) for name in names], 100) is None


@pytest.mark.parametrize(("tower_ns", "expected"), [(0, 0), (20, 20)])
def test_the_backward_pass_shows_whether_a_tower_is_trained(tower_ns, expected):
    ranges = [make_range("visual", 10, tower_ns), make_range("language_model", 30, 60)]
    found = measure_vision(ranges, 200)

    assert found.encoder_backward_ns == expected
    assert (found.encoder_ns, found.decoder_ns) == (10 + tower_ns, 90)


def test_without_a_backward_pass_of_the_decoder_nothing_is_known_of_the_tower():
    ranges = [make_range("visual", 10, 0), make_range("language_model", 30, 0)]

    assert measure_vision(ranges, 200).encoder_backward_ns is None


def test_ranks_without_a_tower_do_not_count_for_the_balance():
    tower = [make_range("visual", 10), make_range("language_model", 30)]
    of_ranks = [measure_vision(ranges, 100) for ranges in (tower, [make_range("decoder", 50)], tower)]

    assert find_imbalance(of_ranks) == 0.0
    assert find_imbalance(of_ranks[:2]) is None
