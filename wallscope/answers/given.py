"""Answers in JSON that a user gives instead of exports: as they were written, each field checked."""

import json
from pathlib import Path

from wallscope.errors import InputError
from wallscope.model.analysis import SCHEMA, Analysis
from wallscope.profile.codec import unpack_profile

ANSWER = ".json"
_AGAIN = "make it with `wallscope analyze … --json`"


def given_answer(path: Path) -> Analysis:
    """The answer about one export that a file holds.

    Raises:
        InputError: it cannot be read, is none of this version, or is about a job already.
        ProfileError: the profile of a rank is damaged, or of another version.
    """
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415  # heavy, and only answers need it

    try:
        content = path.read_bytes()
        schema = json.loads(content)["schema"]
        if schema != SCHEMA:
            raise InputError(f"{path} — is {str(schema)[:60]}, not {SCHEMA} — {_AGAIN}")
        found: Analysis = TypeAdapter(Analysis).validate_json(content)
    except OSError as error:
        raise InputError(f"{path} — cannot be read: {error.strerror} — check the path") from error
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"]))
        raise InputError(
            f"{path} — is no whole answer: {where[:100]} is not as it should be — {_AGAIN}"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path} — is no answer in JSON — {_AGAIN}") from error
    if len(found.inputs) != 1:
        raise InputError(
            f"{path} — is about {len(found.inputs)} exports — give the answers about each of them"
        )
    if not found.ranks:
        raise InputError(f"{path} — is about no rank — {_AGAIN}")
    for rank in found.ranks:
        if rank.profile is None:
            raise InputError(f"{path} — lacks the profile of a rank — {_AGAIN}")
        unpack_profile(rank.profile, str(path))
    return found
