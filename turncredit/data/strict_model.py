"""The base of every block of the configuration: closed, frozen, and strict about numbers."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


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
