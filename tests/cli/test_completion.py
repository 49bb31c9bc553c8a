"""Completion in shells: commands, options and choices; file names are left to the shell."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import slow

COMMAND = Path(sys.executable).with_name("wallscope")
WORDS = {
    "commands": (("an",), {"analyze"}),
    "options": (("analyze", "run.sqlite", "--fail"), {"--fail-on"}),
    "choices": (("analyze", "--reader", ""), {"pages", "sqlite"}),
    "files": (("analyze", "run"), set()),
}
SHELLS = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"no {name} here"))
    for name in ("bash", "zsh", "fish")
]


def in_shell(shell: str, script: str, home: Path, *options: str) -> str:
    """What a script prints in a real shell, to which the home folder and `wallscope` belong."""
    path = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [shell, *options, "-c", f"{script}\n:"],  # a command behind it, so that the shell stays the parent
        env={**os.environ, "HOME": str(home), "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.stdout


def complete_in_bash(words: tuple[str, ...], home: Path) -> set[str]:
    quoted = " ".join(f"'{word}'" for word in ("wallscope", *words))
    script = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _wallscope_completion wallscope"
    shown = in_shell(
        "bash", f'{script}; printf "%s\\n" "${{COMPREPLY[@]}}"', home, "--rcfile", f"{home}/.bashrc", "-i"
    )
    return set(shown.split())


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A home folder in which a bash has installed completion."""
    if shutil.which("bash") is None or not COMMAND.exists():
        pytest.skip("no bash, or no command here")
    folder = tmp_path_factory.mktemp("home")
    assert "completion installed" in in_shell("bash", "wallscope --install-completion", folder)
    return folder


@pytest.mark.parametrize("case", WORDS)
def test_a_real_bash_completes_what_was_installed(case, home):
    words, expected = WORDS[case]

    assert complete_in_bash(words, home) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_is_shown_in_it(shell, tmp_path):
    shown = in_shell(shell, "wallscope --show-completion", tmp_path)

    assert f"complete_{shell}" in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not COMMAND.exists(), reason="no command here")
@pytest.mark.parametrize("shell", ["zsh", *slow("fish")])
@pytest.mark.parametrize("case", ["commands", "options", "choices"])
def test_other_shells_get_the_same_words(shell, case):
    words, expected = WORDS[case]
    asked = {
        "_WALLSCOPE_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": " ".join(("wallscope", *words)),
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    ran = subprocess.run([COMMAND], env=os.environ | asked, capture_output=True, text=True, check=True)

    assert [word for word in expected if word not in ran.stdout] == []
    assert "gaps" not in ran.stdout
