"""The machine-readable answer: JSON that follows the published schema."""

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wallscope.model.advice import Advice, ConfigurationCheck
    from wallscope.model.analysis import Analysis
    from wallscope.model.comparison import Comparison
    from wallscope.model.whatif import WhatIf

    Answer = Analysis | Comparison | Advice | ConfigurationCheck | WhatIf


def document(answer: "Answer") -> str:
    """The answer as JSON text: keys in the contract's order, ASCII alone, a newline at the end."""
    return json.dumps(_plain(answer), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _plain(noun: Any) -> Any:
    if dataclasses.is_dataclass(noun) and not isinstance(noun, type):
        return {field.name: _plain(getattr(noun, field.name)) for field in dataclasses.fields(noun)}
    if isinstance(noun, tuple):
        return [_plain(entry) for entry in noun]
    if isinstance(noun, Mapping):
        return {key: _plain(value) for key, value in noun.items()}
    return noun


def json_schema(noun: "type[Answer]") -> dict[str, Any]:
    """JSON Schema of an answer, made from the nouns; every key is always there."""
    from pydantic import TypeAdapter  # noqa: PLC0415  # heavy, and only the published file needs it

    schema = TypeAdapter(noun).json_schema(mode="serialization")
    for part in (schema, *schema["$defs"].values()):
        if "properties" in part:
            part["required"] = list(part["properties"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
