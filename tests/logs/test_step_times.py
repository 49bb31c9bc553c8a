"""Step times of logs: by format, of many ranks, broken, with warm-up, restarts and other bars."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.logs_written import MS, WRITERS, write_bar, write_megatron, write_nemo, write_plain
from wallscope.errors import OptionError
from wallscope.logs.step_times import drop_warm_up, read_logged_steps


def draw_times(count=300, step_ms=400.0, seed=1, warm_up=(9_000, 2_000)):
    chance = random.Random(seed)
    return [*warm_up, *(chance.gauss(step_ms, step_ms / 200) for _ in range(count))]


@pytest.fixture
def read(tmp_path):
    def read_lines(*files, end="\n"):
        paths = []
        for place, lines in enumerate(files):
            paths.append(tmp_path / f"{place}.log")
            paths[-1].write_text(end.join(lines) + end, encoding="utf-8", newline="")
        return read_logged_steps(paths)

    return read_lines


@pytest.mark.parametrize("name", WRITERS)
def test_a_step_of_each_framework_is_the_median_without_warm_up(name, read):
    write, formats, basis = WRITERS[name]
    found = read(write(draw_times()))

    assert (found.formats, found.basis, found.reason) == (formats, basis, None)
    assert found.step_ns == pytest.approx(400 * MS, rel=0.01)
    assert found.mean_ns == pytest.approx(400 * MS, rel=0.02)
    assert found.low_ns <= found.step_ns <= found.high_ns
    assert found.warm_up_reports >= 1
    assert found.reports >= 3


@pytest.mark.parametrize("name", WRITERS)
def test_lines_that_end_with_a_carriage_return_are_read_alike(name, read):
    lines = WRITERS[name][0](draw_times())

    assert read(lines, end="\r") == read(lines, end="\r\n") == read(lines)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("megatron-lm", {"flops_per_s": 412.3e12, "loss_scale": 65536, "skipped_steps": 0}),
        ("megatron-bridge", {"flops_per_s": 412.3e12, "loss_scale": 65536, "skipped_steps": 0}),
        ("nemo", {"gpu_tokens_per_s": 10_730}),
        ("torchtitan", {"gpu_tokens_per_s": 7_123, "flops_per_s": 412.32e12, "mfu": 0.4169}),
        ("deepspeed", {"skipped_steps": 3}),
        ("plain", {"mfu": 0.4169}),
        ("lightning", {}),
    ],
)
def test_a_log_states_no_more_than_its_lines(name, values, read):
    found = read(WRITERS[name][0](draw_times()))
    names = ("tokens_per_s", "gpu_tokens_per_s", "flops_per_s", "mfu", "loss_scale", "skipped_steps")

    assert {one: getattr(found, one) for one in names if getattr(found, one) is not None} == values


PREFIXES = {
    "srun": "{rank}: ",
    "torchrun": "[default{rank}]:",
    "mpirun": "[1,{rank}]<stdout>: ",
    "pdsh": "node{rank}: ",
    "none": "",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("name", WRITERS)
def test_many_ranks_in_one_file_have_the_step_of_one(name, prefix, read):
    ranks = [
        [prefix.format(rank=rank) + line for line in WRITERS[name][0](draw_times(seed=rank))]
        for rank in range(8)
    ]
    chance, mixed = random.Random(3), []
    for lines in zip(*ranks, strict=True):
        mixed += chance.sample(lines, len(lines))
    found = read(mixed)

    assert found.step_ns == pytest.approx(400 * MS, rel=0.02)


def break_lines(name, seed):
    """The lines of four ranks in one file: one in three is cut, and one in five goes on with the next."""
    chance = random.Random(seed)
    text = ""
    for lines in zip(*(WRITERS[name][0](draw_times(seed=rank)) for rank in range(4)), strict=True):
        for line in lines:
            cut = chance.randrange(len(line)) if chance.random() < 0.3 else len(line)
            text += line[:cut] + ("" if chance.random() < 0.2 else "\n")  # the next rank goes on there
    return text.split("\n")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", WRITERS)
def test_lines_that_ranks_break_do_not_change_the_step(name, seed, read):
    found = read(break_lines(name, seed))

    assert found.step_ns == pytest.approx(400 * MS, rel=0.01)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("digits", [0, 1, 3])
@pytest.mark.parametrize("slower", [1.0, 1.05, 1.5])
def test_times_of_steps_are_never_taken_for_moments(seed, digits, slower, read):
    chance = random.Random(seed)
    times_s = [
        round(4 * (slower if place > 50 else 1) * chance.gauss(1, 0.01), digits) for place in range(99)
    ]
    found = read([f"step {place} loss 3.1 took {time_s} s" for place, time_s in enumerate(times_s)])

    assert found.step_ns is None or found.step_ns == pytest.approx(4_000 * MS, rel=0.06)


def test_a_number_that_is_cut_off_is_no_time(read):
    lines = write_megatron(draw_times())
    broken = [line[: line.index("(ms): ") + 7] for line in lines]

    assert read([*lines, *broken, *broken]).step_ns == read(lines).step_ns
    assert read([*lines, *broken]).broken_reports == len(broken)


def test_warm_up_of_each_start_is_left_out(read):
    once = draw_times(20)
    found = read([*write_megatron(once), *write_megatron(once), *write_megatron(once)])

    assert found.warm_up_reports == 6
    assert found.high_ns < 410 * MS


def test_reports_about_many_steps_count_them(read):
    found = read(write_megatron(draw_times(20), interval=10))

    assert (found.reports, found.steps) == (20, 200)


def test_steps_without_an_update_and_of_another_batch_are_left_out(read):
    lines = write_megatron(draw_times(60))
    skipped = [
        line.replace("skipped iterations:   0", "skipped iterations:   1").replace("(ms): 4", "(ms): 1")
        if place % 3 == 0
        else line
        for place, line in enumerate(lines)
    ]
    ramped = [
        line.replace("size:   256", "size:   128").replace("(ms): 4", "(ms): 2") if place < 30 else line
        for place, line in enumerate(lines)
    ]

    assert read(skipped).low_ns > 390 * MS
    assert read(skipped).skipped_steps == 21
    assert read(ramped).low_ns > 390 * MS


def test_bars_that_are_no_training_are_not_read(read):
    training = write_bar(draw_times(), "Epoch 0: ")
    other = [
        *write_bar([3_000.0] * 40, "Loading checkpoint shards: "),
        *write_bar([50.0] * 900, "Validation DataLoader 0: "),
        *write_bar([70.0] * 50),
    ]

    assert read([*other, *training, *other]).step_ns == read(training).step_ns


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (write_megatron([9_000, 400, 401]), "2 steady reports of steps: too few"),
        (write_megatron([400.0] * 20 + [600.0] * 20), "400.0 ms in its first half, 600.0 ms in its second"),
        (write_bar([40.0] * 60), "writes times to the second, and covers too little time"),
    ],
)
def test_an_unknown_step_has_its_reason(lines, reason, read):
    found = read(lines)

    assert (found.step_ns, found.low_ns, found.mean_ns) == (None, None, None)
    assert reason in found.reason


def test_a_whole_run_is_called_so(read):
    found = read(["{'train_runtime': 99.1, 'train_steps_per_second': 2.5, 'train_loss': 1.1}"])

    assert (found.basis, found.step_ns, found.formats) == ("whole-run", 400 * MS, ("Hugging Face Trainer",))
    assert read(["{'train_runtime': '99.1', 'train_steps_per_second': '2.5'}"]).step_ns == 400 * MS


def test_logs_of_ranks_are_one_run(read):
    files = [write_nemo(draw_times(seed=rank)) for rank in range(4)]
    found = read(*files)

    assert found.names == ("0.log", "1.log", "2.log", "3.log")
    assert found.reports > 4 * 290
    assert found.step_ns == pytest.approx(400 * MS, rel=0.01)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"hello\n", "states no time of a step in a known format"),
        (b"", "states no time of a step in a known format"),
        (b"step 1\0", "is not text"),
    ],
)
def test_a_file_that_is_no_log_is_refused(content, said, tmp_path):
    path = tmp_path / "run.log"
    path.write_bytes(content)
    with pytest.raises(OptionError, match=said):
        read_logged_steps([path])


@given(
    st.lists(st.sampled_from([*write_megatron([9, 4, 4, 4, 4, 4]), *write_plain([4.0] * 5)]), min_size=1),
    st.data(),
)
@example(write_megatron([1e30] * 9), None)
def test_any_text_is_read_or_refused(tmp_path_factory, lines, data):
    path = tmp_path_factory.mktemp("log") / "run.log"
    noise = "" if data is None else data.draw(st.text())
    path.write_text(noise.join(lines).replace("\0", ""), encoding="utf-8", errors="replace")
    try:
        found = read_logged_steps([path])
    except OptionError:
        return
    assert (found.step_ns is None) == (found.reason is not None)


def test_bytes_that_are_cut_are_no_reason_to_refuse(tmp_path):
    path = tmp_path / "run.log"
    path.write_bytes("\n".join(write_bar(draw_times())).encode() + "█".encode()[:1])

    assert read_logged_steps([path]).step_ns == pytest.approx(400 * MS, rel=0.01)


@given(st.lists(st.floats(0.001, 1e3), min_size=2))
def test_warm_up_is_a_beginning_of_at_most_a_third(times_s):
    left = drop_warm_up(times_s)

    assert times_s[len(times_s) - len(left) :] == left
    assert 1 <= len(times_s) - len(left) <= max(1, len(times_s) // 3)
