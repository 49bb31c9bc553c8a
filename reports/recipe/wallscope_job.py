"""`nsys recipe wallscope_job`: which wall the steps of a job hit, and which rank is late and why.

wallscope runs as a process of its own for each report, side by side in whatever mode the recipe runs, and
once more to join the answers. Workers call it by name alone: nothing of this file has to be installed there.
It is written for the Python of nsys, 3.6 or later; `command.json` beside it says where wallscope is.
"""

import json
import os
import shlex
import subprocess
import sys
from datetime import datetime
from pathlib import Path

from nsys_recipe import nsys_constants
from nsys_recipe.lib import nsys_path, recipe
from nsys_recipe.lib.args import Option
from nsys_recipe.log import logger

MOST_NAME_BYTES = 200
CAPTURED = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "universal_newlines": True}


class WallscopeJob(recipe.Recipe):
    """Answers about single reports, and the one about the job."""

    def run(self, context):
        """Analyse side by side, then join; nothing is left behind where no report can be analysed."""
        super().run(context)
        inputs = [Path(path).absolute() for path in [*(self._told("input") or ()), *self._told("exports")]]
        if not inputs:
            end("no report: name some with --input, or SQLite exports with --exports")
        analyze = [*self._wallscope(), "analyze"]
        options = shlex.split(self._told("options"))
        folder = Path(self.get_output_dir()).absolute()
        answers = [folder / "ranks" / name for name in answer_names(inputs)]
        (folder / "ranks").mkdir()
        commands = [
            [*analyze, str(path), "--json", str(answer), *options] for path, answer in zip(inputs, answers)
        ]
        ran = context.wait(context.map(subprocess.run, commands, **CAPTURED))
        for one in ran:
            if one.returncode:
                logger.error(last_line(one.stderr))
        if all(one.returncode for one in ran):
            end("no report could be analysed")

        outputs = ["--json", self.add_output_file("job.json", "JSON")]
        outputs += ["--markdown", self.add_output_file("job.md", "Markdown")]
        outputs += ["--html", self.add_output_file("job.html", "HTML")]
        joining = [*analyze, *map(str, answers), "--keep-going", *outputs]
        joined = subprocess.run(joining, check=False, **CAPTURED)
        if joined.returncode:
            end(last_line(joined.stderr))
        sys.stdout.write(joined.stdout)
        self._analysis_dict["EndTime"] = str(datetime.now())
        self._analysis_dict["InputFiles"] = list(map(str, inputs))
        self._analysis_dict["Outputs"] = self._output_files
        self.create_analysis_file()

    def _told(self, name):
        return getattr(self._parsed_args, name)

    def _wallscope(self):
        """The command, with the nsys that runs this recipe first on the path: wallscope exports with it."""
        if self._told("wallscope"):
            command = shlex.split(self._told("wallscope"))
        else:
            command = json.loads(
                Path(__file__).absolute().with_name("command.json").read_text(encoding="utf-8")
            )
        nsys = Path(nsys_path.find_installed_file(nsys_constants.NSYS_EXE_NAME))
        places = os.pathsep.join([str(nsys.parent), os.environ.get("PATH", os.defpath)])
        return ["env", f"PATH={places}", *command]

    @classmethod
    def get_argument_parser(cls):
        """The options of nsys's own recipes, and what wallscope is to be told."""
        parser = super().get_argument_parser()
        parser.add_recipe_argument(Option.INPUT)
        parser.add_recipe_argument(Option.OUTPUT)
        parser.add_recipe_argument(Option.FORCE_OVERWRITE)
        parser.add_recipe_argument(
            "--exports",
            nargs="+",
            default=[],
            metavar="FILE",
            help="SQLite exports, beside or instead of --input",
        )
        parser.add_recipe_argument(
            "--options",
            default="",
            metavar="TEXT",
            help="Options of 'wallscope analyze' for each report, as --options='--step-range iteration'",
        )
        parser.add_recipe_argument(
            "--wallscope", metavar="COMMAND", help="How wallscope is called; else as command.json says"
        )
        return parser


def answer_names(inputs):
    """A file name for each input; all are numbered where two share one, whatever the case of its letters."""
    stems = [os.fsdecode(os.fsencode(path.stem)[:MOST_NAME_BYTES]) for path in inputs]
    if len({stem.lower() for stem in stems}) == len(stems):
        return [f"{stem}.json" for stem in stems]
    return [f"{number}-{stem}.json" for number, stem in enumerate(stems)]


def last_line(said):
    """What a command said last: the errors of wallscope are one line."""
    lines = said.strip().splitlines()
    return lines[-1] if lines else "wallscope failed and said nothing"


def end(why):
    """Say why there is no result, and leave; nsys removes the folder of results."""
    logger.error(why)
    sys.exit(1)
