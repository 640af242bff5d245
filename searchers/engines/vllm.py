"""vLLM in a Ray actor of this run: continuous batching over all conversations, on a share of a GPU."""

import os
import queue
import secrets
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from automcu_ray.core.errors import ConfigError
from automcu_ray.runtime.cluster import ray
from searchers.engines.base import Engine, Reply, Request
from searchers.engines.local_model import find_model, folder_or_name, is_local, need_packages

_ASKED_AGAIN = 2  # times that a request is sent once more after the actor died under it
_OPEN_REQUESTS = 64
_LEAVE_S = 1.0  # for replies to leave a process that is about to end
_USABLE_SHARE = 0.9  # of the reserved GPU memory: CUDA's own context comes on top of vLLM's budget

# One process, so that whoever kills the actor frees all of its memory.
_ENV = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
# Without a GPU: vLLM's CPU build, a gigabyte for its cache, one thread beside the trainings.
_CPU_ENV = {
    "CUDA_VISIBLE_DEVICES": "",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


class VllmEngine(Engine):
    """Runs a model by vLLM, which starts at the first request and lives until `close` or the end of the run.

    The actor is found by a name that is this engine's alone, so copies of the engine share it and other runs do not.
    If it dies, Ray starts it again and its open requests are asked again, with a bound. Replies keep to their JSON
    schema (xgrammar). The same seed gives the same reply as far as batches of another size round alike. Code that
    comes with a model is never run. The GPU paths could not be tried yet; the CPU build of vLLM was.

    Args:
        model: a folder, `smollm2`, or a name on Hugging Face's hub; default AUTOMCU_MODEL.
        gpus: share of one GPU that Ray reserves; trials share the rest. Default a whole one where this machine has
            one, else 0: the CPU build. For a model on several GPUs start a vLLM server and take engine `openai`.
        gpu_memory_utilization: share of the GPU's memory that vLLM takes; default 0.9 of `gpus`.
        max_model_len: longest prompt and reply together, in tokens; default the model's own.
        dtype: auto is float32 on a CPU, which reads five times slower at less, and the model's own on a GPU.
        max_num_seqs: requests in one batch.
        enable_prefix_caching: keep the part of prompts that repeats.
        timeout_s: for one call, the start of the model included.
    """

    name = "vllm"

    def __init__(
        self,
        *,
        model: str | None = None,
        gpus: float | None = None,
        gpu_memory_utilization: float | None = None,
        max_model_len: int | None = None,
        dtype: str = "auto",
        max_num_seqs: int = 16,
        enable_prefix_caching: bool = True,
        timeout_s: float = 900.0,
    ) -> None:
        need_packages(self.name, "vllm", "vllm")
        self.model = find_model(self.name, model)
        self.gpus = float(_has_gpu()) if gpus is None else gpus
        if not 0 <= self.gpus <= 1:
            raise ConfigError(f"engine.gpus wants a share of one GPU, from 0 to 1, found {self.gpus:g}.")
        self.timeout_s = timeout_s
        self.actor_name = f"vllm-{secrets.token_hex(6)}"
        self.arguments: dict[str, Any] = {
            "model": self.model,
            "dtype": "float32" if dtype == "auto" and self.gpus == 0 else dtype,
            "max_model_len": max_model_len,
            "max_num_seqs": max_num_seqs,
            "enable_prefix_caching": enable_prefix_caching,
            "enforce_eager": self.gpus == 0,  # compiling takes a minute, which pays on a GPU only
            # vLLM 0.32 cannot rewind a CPU's random generator, as it does after each part of a prompt but the last.
            "enable_chunked_prefill": self.gpus > 0,
            "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        }
        if self.gpus:
            self.arguments["gpu_memory_utilization"] = gpu_memory_utilization or _USABLE_SHARE * self.gpus

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        start = time.monotonic()
        if not ray.is_initialized():  # asking would start a cluster that nobody wants
            return [Reply.failed("Ray is not running", model=self.model) for _ in requests]
        try:
            actor = self._actor()
            pending = [actor.ask.remote(request) for request in requests]
        except Exception as error:  # Ray cannot start the actor
            return [Reply.failed(error, model=self.model) for _ in requests]
        return [self._collect(reference, start + self.timeout_s) for reference in pending]

    def close(self) -> None:
        """Kill the actor, which frees its memory; the next request would start another."""
        actor = _ACTORS.pop(self.actor_name, None)
        if actor is not None and ray.is_initialized():
            ray.kill(actor)

    def _actor(self) -> Any:
        """Return the actor's handle, started if need be. It lives as long as the process that started it holds it."""
        with _LOCK:
            if self.actor_name not in _ACTORS:
                offline = {"HF_HUB_OFFLINE": "1"} if is_local(self.model) else {}
                env = {**_ENV, **({} if self.gpus else _CPU_ENV), **offline}
                remote = ray.remote(num_cpus=0, num_gpus=self.gpus)(Server)  # CPUs are for training
                _ACTORS[self.actor_name] = remote.options(
                    name=self.actor_name,
                    get_if_exists=True,
                    max_restarts=-1,
                    max_task_retries=_ASKED_AGAIN,
                    max_concurrency=_OPEN_REQUESTS,
                    runtime_env={"env_vars": env},
                ).remote(self.arguments)
            return _ACTORS[self.actor_name]

    def _collect(self, reference: Any, deadline_s: float) -> Reply:
        try:
            reply: Reply = ray.get(reference, timeout=max(0.0, deadline_s - time.monotonic()))
        except ray.exceptions.GetTimeoutError:
            return Reply.failed(f"no reply within {self.timeout_s:g} s (engine.timeout_s)", model=self.model)
        except Exception as error:  # the actor died more often than a request is asked again
            return Reply.failed(error, model=self.model)
        return reply


_ACTORS: dict[str, Any] = {}
_LOCK = threading.Lock()


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


class Server:
    """vLLM's engine in the process of a Ray actor: one thread steps it, and requests join the batch as they come.

    Where the engine cannot be built, the process ends, for Ray to start it again: vLLM refuses a GPU on which others'
    memory changes while it looks. Where that fails too, every request is told why. Where a step breaks, the open
    requests are told why and the process ends.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._asked: queue.SimpleQueue[tuple[Request, Future[Reply]]] = queue.SimpleQueue()
        self._open: dict[str, tuple[Future[Reply], float]] = {}
        self._model = arguments["model"]
        threading.Thread(target=self._run, args=(arguments,), daemon=True).start()

    def ask(self, request: Request) -> Reply:
        """Return the reply; many threads call this at once."""
        future: Future[Reply] = Future()
        self._asked.put((request, future))
        return future.result()

    def _run(self, arguments: dict[str, Any]) -> None:
        try:
            from vllm import EngineArgs, LLMEngine  # fails where its libraries do not match the machine

            arguments = {**arguments, "model": folder_or_name(self._model)}
            engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
        except Exception as error:
            traceback.print_exc()
            if _may_start_again():
                os._exit(1)
            while True:
                self._asked.get()[1].set_result(Reply.failed(error, model=self._model))
        while True:
            while not self._open or not self._asked.empty():
                self._admit(engine, *self._asked.get())
            try:
                outputs = engine.step()
            except Exception as error:  # the engine's state is unknown: start afresh
                traceback.print_exc()
                for future, _ in self._open.values():
                    future.set_result(Reply.failed(error, model=self._model))
                time.sleep(_LEAVE_S)
                os._exit(1)
            for output in outputs:
                if output.finished:
                    future, start = self._open.pop(output.request_id)
                    future.set_result(_reply(output, self._model, time.monotonic() - start))

    def _admit(self, engine: Any, request: Request, future: "Future[Reply]") -> None:
        """Put a request into the batch, or answer at once where it cannot be."""
        name = secrets.token_hex(8)
        try:
            messages = [message.model_dump() for message in request.messages]
            template = engine.get_tokenizer().apply_chat_template
            prompt: list[int] = template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
            longest = engine.model_config.max_model_len
            if len(prompt) >= longest:
                message = f"the prompt has {len(prompt)} tokens, the model's context holds {longest}"
                future.set_result(Reply.failed(message, model=self._model))
                return
            engine.add_request(name, {"prompt_token_ids": prompt}, _sampling(request, longest - len(prompt)))
        except Exception as error:  # a schema or a template that is none
            future.set_result(Reply.failed(error, model=self._model))
            return
        self._open[name] = (future, time.monotonic())


def _may_start_again() -> bool:
    """Return whether this process is the actor's first."""
    return ray.is_initialized() and not ray.get_runtime_context().was_current_actor_reconstructed


def _sampling(request: Request, room: int) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    schema = request.json_schema
    return SamplingParams(
        temperature=request.temperature,
        top_p=request.top_p,
        seed=request.seed,
        max_tokens=min(request.max_tokens, room),
        output_kind=RequestOutputKind.FINAL_ONLY,
        structured_outputs=None if schema is None else StructuredOutputsParams(json=schema),
    )


def _reply(output: Any, model: str, seconds: float) -> Reply:
    answer = output.outputs[0]
    return Reply(
        text=answer.text,
        finish_reason=answer.finish_reason or "stop",
        prompt_tokens=len(output.prompt_token_ids),
        cached_tokens=output.num_cached_tokens or 0,
        completion_tokens=len(answer.token_ids),
        seconds=seconds,
        model=model,
    )
