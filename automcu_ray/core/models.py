"""The base of all data models here: immutable, and an unknown key is an error."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import ErrorDetails

_WANTED = {  # where pydantic names a type of Python
    **dict.fromkeys(("tuple_type", "list_type"), "a list, like [a, b]"),
    **dict.fromkeys(("model_type", "dict_type"), "`key: value` lines"),
}


Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # what Parquet and floats can hold: JSON has no bounds of its own


class FrozenModel(BaseModel):
    """Data that does not change once it is read or made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values, checked as those of any new model; `model_copy` would check nothing.

        Raises:
            ValidationError: no such field, or a value that it cannot have.
        """
        return type(self)(**{**dict(self), **changes})


class FiniteModel(FrozenModel):
    """What a user sets, in numbers: none of them may be infinite or NaN, which YAML can write."""

    model_config = ConfigDict(allow_inf_nan=False)


def rule(error: ErrorDetails) -> str:
    """Return the rule that a value breaks, in the words of someone who writes YAML."""
    wanted = _WANTED.get(error["type"])
    return f"Input should be {wanted}" if wanted else error["msg"]
