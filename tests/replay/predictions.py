"""Predicted steps beside those of the changed program, run again by the independent simulator."""

from collections.abc import Callable
from dataclasses import dataclass

from fixtures.simulation import changed
from fixtures.simulation.program import Program
from fixtures.simulation.run import run
from fixtures.simulation.windows import busiest_stream, typical_step_ns
from fixtures.simulation.writing import write_run
from wallscope.model.capture import Options
from wallscope.model.whatif import Asked, Question
from wallscope.pipeline import ask_what_if


def scaled(target, share):
    return Question("scale", target, share)


def without(what):
    return Question("without", what)


CHANGES: dict[Question, Callable[[Program], Program]] = {
    scaled("communication", 0.0): lambda program: changed.communication(program, 0),
    scaled("communication", 0.5): lambda program: changed.communication(program, 0.5),
    scaled("communication", 2.0): lambda program: changed.communication(program, 2),
    scaled("communication:ep", 0.0): lambda program: changed.communication(program, 0, "ep"),
    scaled("think", 0.0): lambda program: changed.think(program, 0),
    scaled("think", 0.5): lambda program: changed.think(program, 0.5),
    scaled("launch", 0.5): lambda program: changed.launch(program, 0.5),
    scaled("category:gemm", 0.5): lambda program: changed.category(program, 0.5, "gemm"),
    without("allocator"): changed.without_allocator,
    without("synchronisation"): changed.without_synchronisation,
    without("recompute"): changed.without_recompute,
    without("offload"): changed.without_offload,
    without("jitter"): changed.without_jitter,
    Question("hide", "memory/offload"): changed.hidden_offload,
    Question("graph", "forward"): lambda program: changed.captured(program, "forward"),
    Question("graph", "backward"): lambda program: changed.captured(program, "backward"),
}


@dataclass(frozen=True)
class Pair:
    """One question to one program, as shares of the changed step; `won` is a share of the first."""

    program: str
    question: str
    error: float
    won: float

    def __str__(self):
        return f"{self.program}, {self.question}: {self.error:.4f} off, wins {self.won:.3f}"


def pairs(name: str, program: Program, questions, folder) -> list[Pair]:
    """The questions, each alone and, where there are several, all together."""
    played = run(program)
    path = folder / "run.sqlite"
    write_run(played, path, has_events=True)
    found = ask_what_if(path, Options(), Asked(tuple(questions)), lambda _: None)
    path.unlink()
    rank = found.device or 0
    told = []
    before_ns = measure_step_ns(program, rank, played)
    for answer in found.answers:
        after = program
        for question in answer.questions:
            after = CHANGES[question](after)
        after_ns = measure_step_ns(after, rank, played)
        text = " + ".join(question.text for question in answer.questions)
        told.append(Pair(name, text, abs(answer.step_ns / after_ns - 1), answer.won_ns / before_ns))
    return told


def measure_step_ns(program: Program, rank: int, before) -> float:
    """The typical step of a program that runs by itself; `before` is the run of the unchanged one."""
    stream = busiest_stream(before.ranks[rank])
    return typical_step_ns(run(program).ranks[rank], stream, program.warm_up_steps)
