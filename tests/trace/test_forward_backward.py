import polars as pl
import pytest

from wallscope.model.schemas import CALLS, NAMES, NESTED, OPERATIONS, PASSES, PATHS, PROJECTION, THREADS
from wallscope.trace.forward_backward import identify_passes, mark_autograd_threads


def nest(*trees: str) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """One operation in the innermost range of each tree ("outer / inner"); equal beginnings are shared."""
    labels = sorted({name for tree in trees for name in tree.split(" / ")})
    path_of: dict[tuple[str, ...], int] = {}
    for tree in trees:
        parts = tuple(tree.split(" / "))
        for depth in range(1, len(parts) + 1):
            path_of.setdefault(parts[:depth], len(path_of))
    paths = [
        (number, path_of.get(parts[:-1], -1), labels.index(parts[-1]), len(parts) - 1)
        for parts, number in path_of.items()
    ]
    ranges = [
        {"range": number, "thread": 0, "start_ns": number, "end_ns": 100, "parent": above, "path": number}
        for number, above, _, _ in paths
    ]
    projected = [(op, path_of[tuple(tree.split(" / "))], "same_thread") for op, tree in enumerate(trees)]
    return (
        pl.DataFrame(projected, schema=PROJECTION, orient="row"),
        pl.DataFrame(ranges, schema=NESTED),
        pl.DataFrame(paths, schema=PATHS, orient="row"),
        pl.DataFrame(list(enumerate(labels)), schema=NAMES, orient="row"),
    )


ENGINE = "autograd::engine::evaluate_function: "


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        pytest.param("forward / aten::mm", ("forward", None), id="forward"),
        pytest.param("backward / aten::mm", ("backward", None), id="backward"),
        pytest.param(f"{ENGINE}MmBackward0 / MmBackward0 / aten::mm", ("backward", None), id="engine"),
        pytest.param("DeepSpeedEngine.forward", ("forward", None), id="a method"),
        pytest.param("MyModule_forwardStep / linear", (None, None), id="a word inside another"),
        pytest.param("layer_#f-layer_#b / mlp forward", ("forward", None), id="node of two layers forward"),
        pytest.param(
            "layer_#f-layer_#b / mlp backward", ("backward", None), id="node of two layers backward"
        ),
        pytest.param("layer_#b", ("backward", None), id="layer backward alone"),
        pytest.param("forward_backward_func / aten::mm", (None, None), id="words of two parts"),
        pytest.param("feed_forward", (None, None), id="feed-forward is a layer"),
        pytest.param("FeedForward", (None, None), id="so is its class"),
        pytest.param("RegisterPostBackwardFunction", (None, None), id="FSDP's hook in the forward pass"),
        pytest.param("x.forward_prefetch / y", ("forward", None), id="any forward word"),
        pytest.param("FSDP._pre_backward_prefetch", (None, None), id="prefetch says nothing"),
        pytest.param("aten::_flash_attention_forward", (None, None), id="an operator speaks of itself"),
        pytest.param("optimizer", ("optimizer", None), id="optimizer"),
        pytest.param("Optimizer.step#AdamW.step", ("optimizer", None), id="torch's optimizer"),
        pytest.param("DeepSpeedEngine.step", ("optimizer", None), id="DeepSpeed's step"),
        pytest.param("trainer.step", (None, None), id="a trainer's step is the whole"),
        pytest.param("training_step_#", (None, None), id="a training step"),
        pytest.param("train_step.optimizer_step / aten::add", ("optimizer", None), id="Megatron's optimizer"),
        pytest.param(f"{ENGINE}CheckpointFunctionBackward / aten::mm", ("backward", "explicit"), id="replay"),
        pytest.param(
            f"{ENGINE}CheckpointFunctionBackward / CheckpointFunctionBackward / {ENGINE}MmBackward0",
            ("backward", None),
            id="true backward inside a checkpoint",
        ),
        pytest.param(
            f"{ENGINE}CheckpointFunctionBackward / {ENGINE}CheckpointFunctionBackward / aten::mm",
            ("backward", "explicit"),
            id="a checkpoint inside a checkpoint",
        ),
        pytest.param("backward / recompute / aten::mm", ("backward", "explicit"), id="a range that says so"),
        pytest.param("precompute_freqs / aten::mm", (None, None), id="precomputed is not recomputed"),
        pytest.param("activation recompute", ("backward", "explicit"), id="with no pass around it"),
        pytest.param("recompute / MmBackward0", ("backward", None), id="true backward inside recompute"),
        pytest.param("forward / recompute / aten::mm", ("forward", None), id="the first run"),
        pytest.param("backward / checkpoint_fn / aten::mm", ("backward", "explicit"), id="checkpoint"),
        pytest.param("forward / CheckpointFunction", ("forward", None), id="checkpoint, the first run"),
        pytest.param("CheckpointFunction / aten::mm", (None, None), id="checkpoint without a pass"),
        pytest.param(
            "FSDP::pre_forward (blocks.#._checkpoint_wrapped_module)",
            ("forward", None),
            id="a wrapped module",
        ),
        pytest.param("backward / MmBackward0 / attn.forward", ("backward", "inferred"), id="forward inside"),
        pytest.param(
            "backward / MmBackward0 / nvte_rmsnorm_fwd",
            ("backward", "inferred"),
            id="forward operator inside",
        ),
        pytest.param("backward / save_checkpoint / copy", ("backward", None), id="saved to a file"),
        pytest.param("backward / load_checkpoint", ("backward", None), id="loaded"),
        pytest.param("backward / dist_checkpointing.save", ("backward", None), id="saved by all ranks"),
        pytest.param("backward / torch.distributed.checkpoint", ("backward", None), id="torch's saving"),
        pytest.param("backward / async_save_checkpoint", ("backward", None), id="saved on the side"),
        pytest.param("backward / checkpoint_dir", ("backward", None), id="where it is saved"),
        pytest.param("backward / ModelCheckpoint.on_step_end", ("backward", None), id="Lightning's callback"),
        pytest.param("backward / optimizer_in_backward", ("backward", None), id="backward goes first"),
    ],
)
def test_names_of_ranges_tell_the_part_of_the_step(tree, expected):
    assert identify_passes(*nest(tree)).select("pass", "replay").row(0) == expected


@pytest.mark.parametrize(
    ("trees", "expected"),
    [
        pytest.param(["forward", "backward", "step"], "optimizer", id="beside the passes"),
        pytest.param(["step / forward", "step / backward", "step"], None, id="around the passes"),
        pytest.param(["data", "step"], None, id="without passes"),
    ],
)
def test_a_bare_step_is_the_optimizers_beside_the_passes_alone(trees, expected):
    assert identify_passes(*nest(*trees))["pass"][-1] == expected


def test_scopes_are_the_nearest_checkpoint_and_the_outermost_optimizer():
    outer = f"backward / {ENGINE}CheckpointFunctionBackward"
    found = identify_passes(
        *nest(
            f"{outer} / aten::mm",
            f"{outer} / CheckpointFunctionBackward / {ENGINE}MmBackward0 / aten::mm",
            "train / optimizer / Optimizer.step / copy",
            "forward",
        )
    )

    assert found["scope"].to_list() == [1, 3, 7, -1]


def test_operations_without_a_range_belong_to_no_part_but_those_of_autograd_threads():
    projected = pl.DataFrame([(0, -1, "none"), (1, -1, "none")], schema=PROJECTION, orient="row")
    operations = pl.DataFrame([{"op": 0, "call": 0}, {"op": 1, "call": 1}], schema=OPERATIONS)
    calls = pl.DataFrame([{"call": 0, "thread": 0}, {"call": 1, "thread": 1}], schema=CALLS)
    threads = pl.DataFrame(
        [{"thread": 0, "role": None}, {"thread": 1, "role": "pt_autograd_0"}], schema=THREADS
    )
    nothing = identify_passes(projected, NESTED.to_frame(), PATHS.to_frame(), NAMES.to_frame())

    found = mark_autograd_threads(nothing, operations, calls, threads)

    assert nothing.schema == PASSES
    assert nothing.rows() == [(0, None, None, -1), (1, None, None, -1)]
    assert found["pass"].to_list() == [None, "backward"]
