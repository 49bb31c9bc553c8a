"""What an answer takes is counted before it is parsed: elements, depth, texts as often as they are used."""

import base64
import json
import resource
import subprocess
import sys
import zlib

import pytest

from tests.conftest import ROOT
from tests.profile.random_profiles import profile_of
from wallscope.files import estimate_bytes
from wallscope.model.analysis import SCHEMA
from wallscope.model.profile import PROFILE_SCHEMA
from wallscope.profile.codec import pack_profile

MOST_BYTES = 3 << 30


def answer_of(texts, ranks=1):
    data = base64.b64encode(zlib.compress(texts, 9)).decode()
    profile = {"schema": PROFILE_SCHEMA, "data": data}
    return json.dumps({"schema": SCHEMA, "ranks": [{"profile": profile}] * ranks})


def sound(steps=3):
    from tests.compare.test_compare import steps as some

    packed = pack_profile(profile_of("x", some(steps, 1.0, 1)))
    return json.loads(zlib.decompress(base64.b64decode(packed.data)))


def repeated_text():
    content = sound()
    for table in content.values():
        for name, column in table.items() if isinstance(table, dict) else ():
            if isinstance(column, dict) and "texts" in column and column["codes"]:
                table[name] = {"texts": ["x" * 4_000_000], "codes": [0] * len(column["codes"])}
    return json.dumps(content).encode()


BOMBS = {
    "lists": lambda: answer_of(b'{"header":[' + b"[]," * 20_000_000 + b"[]]}"),
    "objects": lambda: answer_of(b'{"header":[' + b"{}," * 20_000_000 + b"{}]}"),
    "numbers": lambda: answer_of(b'{"header":[' + b"1000," * 30_000_000 + b"1]}"),
    "blanks": lambda: answer_of(b" " * (600 << 20)),
    "many ranks": lambda: answer_of(json.dumps(sound()).encode() + b" " * (100 << 20), 200),
    "one text often": lambda: answer_of(repeated_text(), 20),
    "depth": lambda: answer_of(b"[" * 5_000_000),
    "plain lists": lambda: json.dumps({"schema": SCHEMA, "ranks": [[]] * 5_000_000}),
    "plain depth": lambda: '{"schema": ' + "[" * 5_000_000,
}


IN_EACH_RUN = {
    ("lists", "diff"),
    ("plain depth", "diff"),
}
"""A guard of profiles and one of answers: both commands read them with one function."""


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        pytest.param(kind, command, marks=() if (kind, command) in IN_EACH_RUN else pytest.mark.slow)
        for command in ("diff", "analyze")
        for kind in BOMBS
    ],
)
def test_a_small_answer_takes_no_more_than_is_allowed(tmp_path, kind, command):
    path = tmp_path / "bomb.json"
    path.write_text(BOMBS[kind]())

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))

    ran = subprocess.run(
        [sys.executable, "-m", "wallscope", command, path, path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=limit,
        check=False,
    )
    assert ran.returncode == 2, ran.stderr[-500:]
    assert ran.stderr.startswith(f"wallscope: {path}")
    assert ran.stderr.count("\n") == 1


def test_what_a_sound_profile_takes_is_far_below_what_is_allowed():
    text = json.dumps(sound(20)).encode()
    assert estimate_bytes(text) < 100_000_000


@pytest.mark.parametrize("made", ["fifo", "folder"])
def test_what_is_no_file_is_not_waited_for(called, tmp_path, made):
    import os

    path = tmp_path / "x.json"
    os.mkfifo(path) if made == "fifo" else path.mkdir()
    ran = called("diff", path, path)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
