"""Which programs a script starts, with which of its flags, and what it can therefore show of a run.

A run stops for what its whole command says. A list of flags without a program, a script that calls another
one, and a program that sets arguments of its own show only a part of it. What they leave out is unknown.
"""

import re
from collections.abc import Sequence
from itertools import takewhile

from wallscope.model.advice import FileForm, FormKind
from wallscope.records import dataclass

_OWN = re.compile(
    r"pretrain_(?:gpt|bert|t5|mamba|hybrid|vlm|retro|ict|diffusion|vision_(?:classify|dino|inpaint))\.py"
)
"""Programs of Megatron-LM, whose arguments have the defaults of its parser."""
_LIKE_OWN = re.compile(r"pretrain_\w+\.py")
_OF_RECIPES = {"run_recipe.py", "run_script.py", "setup_experiment.py"}
"""Programs of Megatron Bridge that start from a recipe by name."""
_SCRIPT = re.compile(r"[^-\s$(){}'\"][^\s$(){}'\"]*\.(?:sh|bash|sbatch|slurm)")
_PYTHON = re.compile(r"(?:[^-\s=(){}'\"][^\s=(){}'\"]*/)?[A-Za-z_][\w-]*\.py")
_ASSIGNS = re.compile(r"[A-Za-z_]\w*=")
_SHELLS = {"bash", "sh", "sbatch", "exec"}
_SUBCOMMANDS = {"swift", "megatron", "llamafactory-cli", "primus-cli", "nemo"}
_LAUNCHERS = ("torch.distributed.", "torchrun")
_BEFORE_PROGRAMS = {
    "accelerate", "apptainer", "bash", "conda", "deepspeed", "docker", "enroot", "env", "eval", "exec",
    "mpirun", "nohup", "nsys", "numactl", "poetry", "python", "python3", "ray", "sh", "singularity", "srun",
    "sudo", "time", "torchrun", "uv",
}  # fmt: skip
"""Commands behind which the name of a program stands."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A command that starts a program; its flags are the entries `begin` to `end` of the script.

    `is_conditional` if it stands in a branch.
    """

    program: str
    begin: int
    end: int
    is_conditional: bool

    @property
    def is_own(self) -> bool:
        """Whether the program parses its arguments as Megatron-LM does."""
        return _LIKE_OWN.fullmatch(self.program) is not None

    @property
    def is_recipe(self) -> bool:
        """Whether the program starts from a recipe of Megatron Bridge."""
        return self.program in _OF_RECIPES

    @property
    def has_defaults(self) -> bool:
        """Whether what the command leaves out has the default of Megatron-LM's parser."""
        return _OWN.fullmatch(self.program) is not None


def name_program(words: Sequence[str]) -> str | None:
    """Return the program that a command starts; `None` without one.

    >>> name_program("torchrun --nproc_per_node 8 tools/pretrain_gpt.py --bf16".split())
    'pretrain_gpt.py'
    >>> name_program("python3 -m verl.trainer.main_ppo algorithm=x".split())
    'verl.trainer.main_ppo'
    >>> name_program("PP=4 bash run.sh --fp16".split()), name_program("swift sft --tp 2".split())
    ('run.sh', 'swift sft')
    >>> name_program("source models/a.sh".split()), name_program("cp a.sh b.sh".split())
    (None, None)
    """
    command = [word for word in words if not _ASSIGNS.match(word)]
    if not command:
        return None
    head = command[0].rpartition("/")[2]
    if head in _SUBCOMMANDS and len(command) > 1 and not command[1].startswith("-"):
        return f"{head} {command[1]}"
    if _SCRIPT.fullmatch(command[0]):
        return head
    if head in _SHELLS:
        before_flags = takewhile(lambda word: not word.startswith("--"), command[1:])
        script = next(filter(_SCRIPT.fullmatch, before_flags), None)
        if script is not None:
            return script.rpartition("/")[2]
    may_start = head in _BEFORE_PROGRAMS or _PYTHON.fullmatch(command[0]) or "$" in head
    return _find_python(command) if may_start else None


def _find_python(command: Sequence[str]) -> str | None:
    """Return the first file or module of Python that a command names, but the launchers of PyTorch."""
    for before, word in zip(["", *command], command, strict=False):
        if before == "-m" and not word.startswith(_LAUNCHERS):
            return word
        if _PYTHON.fullmatch(word):
            return word.rpartition("/")[2]
    return None


def choose_launches(launches: Sequence[Launch]) -> tuple[Launch, ...]:
    """Return the commands that train: those of Megatron, of a recipe, else of any program."""
    certain = [one for one in launches if not one.is_conditional]
    for kind in (certain, launches):
        own = [one for one in kind if one.is_own] or [one for one in kind if one.is_recipe]
        if own:
            return tuple(own)
    return tuple(certain or launches[:1])


def decide_form(chosen: Sequence[Launch], *, is_open: bool, has_branches: bool) -> FileForm:
    """Return what a script is.

    Args:
        chosen: the commands that train.
        is_open: whether arguments may come from outside.
        has_branches: whether flags stand in branches.
    """
    if not chosen:
        return FileForm(FormKind.FRAGMENT)
    program = chosen[0].program
    if len(chosen) > 1:
        names = dict.fromkeys(one.program for one in chosen)
        return FileForm(FormKind.SEVERAL_RUNS, ", ".join(names))
    if chosen[0].is_recipe:
        return FileForm(FormKind.OVERRIDES, program)
    if not chosen[0].is_own:
        return FileForm(FormKind.WRAPPER, program)
    if is_open:
        return FileForm(FormKind.PARTS_ELSEWHERE, program)
    kind = FormKind.ALTERNATIVES if has_branches or chosen[0].is_conditional else FormKind.COMMAND
    return FileForm(kind, program, is_whole=True)
