"""Values of options arrive in their functions as typer would convert them, and pydantic stays unloaded."""

import subprocess
import sys

import pytest
import typer
from typer.core import TyperCommand

from wallscope.cli import app

COMMANDS = typer.main.get_command(app).commands
GIVEN = {
    "demo": ["--job"],
    "cache": ["--clear"],
    "diff": ["a", "b"],
    "at": ["a", "1ms"],
    "capture": ["python", "train.py"],
    "bisect": ["a..b", "step"],
    "convert": ["a", "b"],
    "history": ["step"],
    "advise": ["--model", "m", "--gpus", "8"],
    "record": ["a", "b", "--label", "x=1", "--label", "y=2"],
    "whatif": ["a", "--scale", "x=0", "--sweep", "y=1,0"],
    "analyze": ["a", "b", "--rank", "3", "--html", "run.html", "--reader", "sqlite", "--fail-on", "step>3%"],
}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_value_is_what_typer_makes_of_it(name):
    command, given = COMMANDS[name], GIVEN.get(name, ["a"])
    found = []
    for parse in (type(command).parse_args, TyperCommand.parse_args):
        context = command.context_class(command, info_name=name)
        for param in command.params:
            vars(param).pop("process_value", None)
        try:
            parse(command, context, list(given))
        except typer.BadParameter as error:
            found.append(str(error))
        else:
            found.append({key: value or None for key, value in context.params.items()})

    assert found[0] == found[1]
    assert found[0]


def test_a_command_line_of_text_loads_no_pydantic():
    program = (
        "import sys; from wallscope.cli import app; app(['explain', 'ep-overlap'], standalone_mode=False);"
        " sys.exit('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")
