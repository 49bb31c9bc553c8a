"""Parsers of what strangers send, fed by atheris with inputs that reach code which none reached before.

    python -m benchmarks.guided configuration build/guided/configuration -max_total_time=60

What follows the name of the parser is libFuzzer's: a folder that holds inputs to begin with and gets those
that were found, and its options. Anything but an error for the user ends the run, and the input is kept.
"""

import base64
import json
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import atheris

from fixtures.mutation.good import CONFIGURATIONS

with atheris.instrument_imports(include=["wallscope", "tomllib", "yaml"]):
    from benchmarks.inputs import good_inputs
    from wallscope.advice.configuration import read_configuration
    from wallscope.errors import WallscopeError
    from wallscope.model.analysis import PackedProfile
    from wallscope.model.profile import PROFILE_SCHEMA
    from wallscope.profile.codec import unpack_profile
    from wallscope.store import Store
    from wallscope.trace.kernel_classes import load_kernel_rules

_ASIDE = Path(tempfile.mkdtemp())
_FORMS = tuple(CONFIGURATIONS)
_COMMIT = "a" * 40


def _configuration(content: bytes) -> None:
    """The first byte chooses the form."""
    path = _ASIDE / _FORMS[content[0] % len(_FORMS)] if content else _ASIDE / _FORMS[0]
    path.write_bytes(content[1:])
    read_configuration(path)


def _rules(content: bytes) -> None:
    path = _ASIDE / "rules.toml"
    path.write_bytes(content)
    load_kernel_rules(path)


def _record(content: bytes) -> None:
    folder = _ASIDE / "store" / "records" / _COMMIT
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{'0' * 32}.json").write_bytes(content)
    Store(_ASIDE / "store").all_records()


def _profile(content: bytes) -> None:
    """The content before it is compressed: a compressed one would end in the first check."""
    data = base64.b64encode(zlib.compress(content, 1)).decode()
    unpack_profile(PackedProfile(PROFILE_SCHEMA, data), "run.json")


PARSERS: Mapping[str, Callable[[bytes], None]] = {
    "configuration": _configuration,
    "rules": _rules,
    "record": _record,
    "profile": _profile,
}
"""What is fed, by the name on the command line."""


def _beginnings(parser: str, folder: Path) -> None:
    """Good inputs, one of each form."""
    folder.mkdir(parents=True, exist_ok=True)
    good = _ASIDE / "good"
    good.mkdir()
    found = good_inputs(good)
    match parser:
        case "configuration":
            for number, path in enumerate(found["configuration"]):
                (folder / path.name).write_bytes(bytes([number]) + path.read_bytes())
        case "rules":
            (folder / "rules.toml").write_bytes(found["kernel rules"][0].read_bytes())
        case "record":
            (folder / "run.json").write_bytes(next(good.glob("store/records/*/*")).read_bytes())
        case "profile":
            answer = json.loads(found["answer"][0].read_text(encoding="utf-8"))
            data = answer["ranks"][0]["profile"]["data"]
            (folder / "profile.json").write_bytes(zlib.decompress(base64.b64decode(data)))


def main() -> None:
    """Feed the parser that the command line names, until libFuzzer has enough."""
    parser, folder, *options = sys.argv[1:]
    parse = PARSERS[parser]
    _beginnings(parser, Path(folder))

    def feed(content: bytes) -> None:
        try:
            parse(content)
        except WallscopeError:
            return

    atheris.Setup([sys.argv[0], folder, *options], feed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
