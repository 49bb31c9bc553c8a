"""A wrong command line, a path too long, a wrong environment: one line in our words, exit 2."""

import errno
import os

import pytest


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("analyze", "x", "--rank", "y"), "--rank — is not a whole number — see wallscope analyze --help"),
        (("analyze", "x", "--max-rows", "0"), "--max-rows — is below 1 — see wallscope analyze --help"),
        (("whatif", "x", "--accept-error", "y"), "--accept-error — is not a number — see wallscope whatif"),
        (("convert", "x", "y", "--to", "xml"), "--to — 'xml' is not one of "),
        (("analyze", "--nope"), "--nope — there is no such option; similar: --no-cache — see wallscope"),
        (("analyze", "x", "--brief=y"), "--brief — takes no value — see wallscope"),
        (("cache", "x"), "x — is more than the command takes — see wallscope cache --help"),
        (("info", "x", "y", "z"), "y z — is more than the command takes — see wallscope info --help"),
        (("analyze",), "FILE... — is missing — see wallscope analyze --help"),
        (("advise", "--model", "x"), "--gpus — is missing — see wallscope advise --help"),
        (("analyze", "x", "--json"), "--json — has no value — see wallscope"),
        (("analyz", "x"), "analyz — there is no such command; similar: 'analyze' — see wallscope --help"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, said, called):
    ran = called(*arguments)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"wallscope: {said}")
    assert ran.err.count("\n") == 1
    assert "Input should" not in ran.err


def test_without_a_command_the_help_is_the_answer(called):
    ran = called()

    assert ran.code == 2
    assert "wallscope analyze" in ran.out + ran.err or "analyze " in ran.out + ran.err
    assert called("--version").code == 0


@pytest.mark.parametrize("length", [300, 5_000])
@pytest.mark.parametrize("command", ["analyze", "info", "diff", "check-config", "steps"])
def test_a_path_that_is_too_long_is_one_line(command, length, called, tmp_path):
    path = f"{tmp_path}/{'a' * length}"
    ran = called(command, path, *([path] if command == "diff" else []))

    assert (ran.code, ran.out) == (2, "")
    assert os.strerror(errno.ENAMETOOLONG) in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("threads", ["0", "x", "-1", "", "1025", "4294967296", "9" * 26])
def test_a_number_of_threads_that_polars_cannot_start_is_one_line(threads, called, monkeypatch):
    monkeypatch.setenv("POLARS_MAX_THREADS", threads)
    ran = called("analyze", "x")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"wallscope: POLARS_MAX_THREADS={threads} — is not a number of threads — write 1 to 1024\n"
    )
