import pytest
from rich.console import Console

from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.writing import write_run
from wallscope.model.capture import Options
from wallscope.model.whatif import Asked, Question
from wallscope.pipeline import ask_what_if
from wallscope.views.whatif import render_whatif

STORIES = {story.name: story.program for story in stories()}
QUESTIONS = (Question("scale", "communication", 0.0), Question("scale", "think", 0.5))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = tmp_path_factory.mktemp("exports") / "run.sqlite"
    write_run(run(STORIES["late host beside a long all-to-all"]), path, has_events=True)
    sweep = tuple(Question("scale", "communication", share) for share in (1.5, 0.5))
    return ask_what_if(path, Options(), Asked(QUESTIONS, sweep), lambda _: None)


@pytest.mark.parametrize("columns", [80, 140])
def test_answers_on_a_terminal(found, columns, golden):
    console = Console(width=columns, file=None, highlight=False, color_system=None)
    with console.capture() as page:
        console.print(render_whatif(found))
    text = "\n".join(line.rstrip() for line in page.get().split("\n"))

    golden(f"whatif-{columns}.txt", text)
    assert max(map(len, text.split("\n"))) <= columns
