"""The base of every block of the configuration: closed, frozen, and strict about numbers."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, field_validator


class Closed(BaseModel):
    """A block without further keys. No number is infinite or NaN, and `true` is not a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic reads `true` as 1; in a configuration that is a mistake."""
        assert info.field_name is not None
        parts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(part, bool) for part in parts) and not _takes_booleans(
            cls.model_fields[info.field_name].annotation
        ):
            raise ValueError("input should not be true or false")
        return value


def _takes_booleans(annotation: Any) -> bool:
    return annotation in (bool, Any) or any(_takes_booleans(part) for part in get_args(annotation))


def _value_of(text: Any) -> Any:
    """What a text spells: true, false or a number; any other text, and any other value, as it is."""
    if not isinstance(text, str):
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) and math.isfinite(value) else text


#: A setting of a model's chat template. Snakemake's --config reads every value inside a block as text, and a template
#: would take the text `false` for true.
TemplateSetting = Annotated[bool | int | float | str, BeforeValidator(_value_of)]
