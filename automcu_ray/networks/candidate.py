"""A candidate: one proposal of a searcher, and what it says about itself."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import Discriminator, Field, SerializerFunctionWrapHandler, Tag, model_serializer, model_validator

from automcu_ray.core.cost import Cost
from automcu_ray.core.feasibility import Violation
from automcu_ray.core.models import FrozenModel, Int64
from automcu_ray.networks.cell import CellSpec
from automcu_ray.networks.spec import ArchitectureSpec

START_FROM = "start_from"  # who proposed the network that a user has begun with


class GeneratedCode(FrozenModel):
    """PyTorch code as a language model wrote it. Nobody has run it: it is hostile until the jail has."""

    code: Annotated[str, Field(min_length=1)]


_KINDS = {"spec", "cell", "code"}


def _kind(network: Any) -> str:
    keys: Collection[str] = network if isinstance(network, Mapping) else getattr(type(network), "model_fields", ())
    return "code" if "code" in keys else "cell" if "operations" in keys else "spec"


Structure = ArchitectureSpec | CellSpec  # what can be built without running anyone's code
Network = Annotated[
    Annotated[ArchitectureSpec, Tag("spec")] | Annotated[CellSpec, Tag("cell")] | Annotated[GeneratedCode, Tag("code")],
    Discriminator(_kind),
]


class Diagnosis(FrozenModel):
    """The triple (problem, suggestion, outcome) of paper 002, section 3.4; the outcome comes with the record."""

    problem: str
    suggestion: str
    outcome: str = ""


class Candidate(FrozenModel):
    """One proposal: a spec, a NAS-Bench-201 cell or PyTorch code, with its hash; or the reason why there is none.

    `number` counts the proposals of a run from 1. `parent` is the hash of the candidate it was made from, `talk` the
    conversation with an engine that it came from (0: none), `origin` the number of the candidate that the loop itself
    mended (0: none; `proposer` then says how: a fix of a near miss, a morph of a repeat). `reply` keeps the first
    characters of a text that could not be read as a candidate. In JSON the network stands under its kind: `spec`,
    `cell` or `code`.
    """

    number: Int64 = 0
    hash: str = ""
    network: Network | None = None
    talk: Int64 = 0
    origin: Int64 = 0
    proposer: str = ""
    parent: str = ""
    diagnosis: Diagnosis | None = None
    cost: Cost = Cost()
    violations: tuple[Violation, ...] = ()
    reply: str = ""

    @model_validator(mode="before")
    @classmethod
    def _read_network(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not (kinds := _KINDS & data.keys()):
            return data
        networks = [{"code": data[kind]} if kind == "code" else data[kind] for kind in kinds if data[kind]]
        return {key: value for key, value in data.items() if key not in kinds} | {"network": next(iter(networks), None)}

    @model_serializer(mode="wrap")
    def _write_network(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = write(self)
        if self.network is None or "network" not in data:
            return {key: value for key, value in data.items() if key != "network"}
        kind = _kind(self.network)
        data["network"] = self.code or data["network"]
        return {kind if key == "network" else key: value for key, value in data.items()}

    @property
    def spec(self) -> ArchitectureSpec | None:
        """The network, where it is a spec."""
        return self.network if isinstance(self.network, ArchitectureSpec) else None

    @property
    def cell(self) -> CellSpec | None:
        """The network, where it is a cell."""
        return self.network if isinstance(self.network, CellSpec) else None

    @property
    def code(self) -> str:
        """The network, where it is code; else ""."""
        return self.network.code if isinstance(self.network, GeneratedCode) else ""

    @property
    def structure(self) -> Structure | None:
        """The spec or the cell."""
        return None if isinstance(self.network, GeneratedCode) else self.network

    def trial_config(self) -> dict[str, Any]:
        """Return what a Trainable needs to know: the number, and the spec, the cell or the code."""
        assert self.network is not None, "a candidate without a network is no trial"
        if isinstance(self.network, GeneratedCode):
            return {"number": self.number, "code": self.network.code}
        return {"number": self.number, _kind(self.network): self.network.compact()}

    @classmethod
    def of_trial(cls, config: Mapping[str, Any]) -> "Candidate":
        """Return the candidate of a trial's config, as `trial_config` gave it."""
        return cls.model_validate(dict(config))
