"""Profiles out of the JSON answers of `wallscope analyze`."""

import json
from pathlib import Path

from wallscope.errors import ProfileError
from wallscope.model.analysis import SCHEMA, PackedProfile
from wallscope.model.profile import Profile
from wallscope.profile.container import unpacked


def profiles_of(path: Path) -> tuple[Profile, ...]:
    """The profiles of the ranks in an answer, in order.

    Raises:
        ProfileError: the file is no answer of this version, or holds no profile.
    """
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
        if answer.get("schema") != SCHEMA:
            raise ProfileError(
                f"{path} — is {str(answer.get('schema'))[:60]}, not {SCHEMA} — give what"
                " `wallscope analyze … --json` wrote"
            )
        stored = [
            PackedProfile(rank["profile"]["schema"], rank["profile"]["data"]) for rank in answer["ranks"]
        ]
    except OSError as error:
        raise ProfileError(f"{path} — cannot be read: {error.strerror} — check the path") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ProfileError(
            f"{path} — is no answer with profiles — make it with `wallscope analyze … --json`"
        ) from error
    if (
        not all(isinstance(text, str) for entry in stored for text in (entry.schema, entry.data))
        or not stored
    ):
        raise ProfileError(f"{path} — is no answer with profiles — make it with `wallscope analyze … --json`")
    return tuple(unpacked(entry, str(path)) for entry in stored)
