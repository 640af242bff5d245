"""The base of all data models here: immutable, and an unknown key is an error."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Data that does not change once it is read or made."""

    model_config = ConfigDict(frozen=True, extra="forbid")
