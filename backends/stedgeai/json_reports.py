"""ST's JSON reports as figures: `network_report.json` (X-CUBE-AI 5 to Core 2.1) and `network_c_info.json`."""

from pydantic import AliasChoices, BaseModel, Field, NonNegativeInt, ValidationError

from backends.stedgeai.report import Buffer, Runtime, VendorReport, agreed, unreadable

_NO_OPERATORS = ("Input", "Placeholder")


class _Extras(BaseModel):
    rom_size: NonNegativeInt = 0


class _Layer(BaseModel):
    type: str
    extras: _Extras = _Extras()


class _Report(BaseModel):
    """`network_report.json`; `_allocate_*` is not 0 where input or output lie inside the activations.

    `rom_n_macc` is of the C code; the layers' own counts are of the original model and need not add up to it.
    """

    cli_version_str: str
    model_name: str
    rom_n_macc: NonNegativeInt
    rom_size: NonNegativeInt
    ram_size: NonNegativeInt | list[NonNegativeInt]
    ram_io_size: tuple[NonNegativeInt, NonNegativeInt]
    allocate_inputs: int = Field(default=0, alias="_allocate_inputs")
    allocate_outputs: int = Field(default=0, alias="_allocate_outputs")
    layers: list[_Layer] = Field(min_length=1)


class _CBuffer(BaseModel):
    name: str
    size_bytes: NonNegativeInt
    is_param: bool


class _Node(BaseModel):
    """A node of the C graph; Core 4.0 calls `type` what was `description`."""

    description: str = Field(validation_alias=AliasChoices("description", "type"))
    macc: NonNegativeInt


class _Graph(BaseModel):
    name: str
    nodes: list[_Node] = Field(min_length=1)


class _Pool(BaseModel):
    rights: str
    used_size_bytes: NonNegativeInt


class _Footprint(BaseModel):
    activations: NonNegativeInt
    io: tuple[NonNegativeInt, NonNegativeInt]
    weights: NonNegativeInt
    kernel_flash: NonNegativeInt | None = None  # null where the tool found no compiler
    kernel_ram: NonNegativeInt | None = None


class _Tool(BaseModel):
    name: str
    version: str


class _Environment(BaseModel):
    tools: list[_Tool] = Field(min_length=1)


class _CInfo(BaseModel):
    """`network_c_info.json`, schema 2.0."""

    environment: _Environment
    buffers: list[_CBuffer]
    graphs: list[_Graph] = Field(min_length=1, max_length=1)
    memory_footprint: _Footprint
    memory_pools: list[_Pool]


def read_json(text: str) -> VendorReport:
    """Return the figures of a JSON report.

    Raises:
        ToolchainError: no JSON (cut off, or with a merge conflict inside), of another layout, or in contradiction
            with itself.
    """
    try:
        if '"memory_footprint"' in text:
            return _from_c_info(_CInfo.model_validate_json(text))
        return _from_report(_Report.model_validate_json(text))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise unreadable(f"{where or 'the file'}: {first['msg']}") from error


def _from_report(found: _Report) -> VendorReport:
    entry, result = found.ram_io_size
    sizes = found.ram_size if isinstance(found.ram_size, list) else [found.ram_size]
    return VendorReport(
        tool=found.cli_version_str,
        model=found.model_name,
        macs=found.rom_n_macc,
        weights_bytes=agreed("rom_size", [found.rom_size, sum(layer.extras.rom_size for layer in found.layers)]),
        activations_bytes=agreed("ram_size", sizes),
        input_bytes=0 if found.allocate_inputs else entry,
        output_bytes=0 if found.allocate_outputs else result,
        operators=tuple(sorted({layer.type for layer in found.layers} - set(_NO_OPERATORS))),
    )


def _from_c_info(found: _CInfo) -> VendorReport:
    graph, sizes = found.graphs[0], found.memory_footprint
    entry, result = sizes.io
    used = {
        rights: sum(p.used_size_bytes for p in found.memory_pools if p.rights == rights)
        for rights in ("ACC_READ", "ACC_WRITE")
    }
    runtime = Runtime(sizes.kernel_flash, sizes.kernel_ram or 0) if sizes.kernel_flash else None
    return VendorReport(
        tool=f"{found.environment.tools[0].name} {found.environment.tools[0].version}",
        model=graph.name,
        macs=sum(node.macc for node in graph.nodes),
        weights_bytes=agreed("weights", [sizes.weights, used["ACC_READ"]]),
        activations_bytes=agreed("activations", [sizes.activations, used["ACC_WRITE"] - entry - result]),
        input_bytes=entry,
        output_bytes=result,
        runtime=runtime,
        operators=tuple(sorted({node.description for node in graph.nodes})),
        buffers=tuple(Buffer(one.name, one.size_bytes, in_flash=one.is_param) for one in found.buffers),
    )
