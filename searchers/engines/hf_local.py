"""A language model in this process, by transformers; xgrammar keeps every reply to its JSON schema."""

import gc
import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from searchers.engines import small_model
from searchers.engines.base import Engine, Reply, Request
from searchers.engines.local_model import find_model, folder_or_name, need_packages

_LEAVE_S = 1.0
DeviceName = Literal["auto", "cpu", "cuda"]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]


class HfLocalEngine(Engine):
    """Runs a model by transformers, on CPU or GPU, with no server and nothing sent anywhere.

    The model is loaded at the first request, once a process. Requests of several threads that wait at the same time are
    answered as one batch: on a CPU eight short answers take half as long so. Every request samples with a generator of
    its own, so an equal request gets an equal reply, whatever it is batched with; in bfloat16 or float16 only as far as
    batches of another size round alike. Code that comes with a model is never run. Ray does not know of the GPU memory
    that this takes; where trials need the GPU too, take engine `vllm`. CUDA could not be tried yet.

    Args:
        model: a folder, `smollm2`, or a name on Hugging Face's hub; default AUTOMCU_MODEL.
        device: auto is the GPU where there is one.
        dtype: auto is float32 on a CPU, which is slow at anything less, and the model's own on a GPU.
        batch_size: requests that are answered together.
        threads: of torch; on cores that training shares, two were 20 times slower than one.
    """

    name = "hf_local"

    def __init__(
        self,
        *,
        model: str | None = None,
        device: DeviceName = "auto",
        dtype: DtypeName = "auto",
        batch_size: int = 8,
        threads: int = 1,
    ) -> None:
        need_packages(self.name, "hf", "transformers", "xgrammar")
        self.model = find_model(self.name, model)
        self.reads_sentences = self.model != small_model.NAME  # which takes half a minute to load, and writes at random
        self.device, self.dtype = device, dtype
        self.batch_size, self.threads = max(1, batch_size), max(1, threads)

    def complete(self, requests: Sequence[Request]) -> list[Reply]:
        asked = [_Asked(request) for request in requests]
        waiting = _WAITING.setdefault(self._key, deque())
        waiting.extend(asked)
        while any(one.reply is None for one in asked):
            with _LOCK:  # one generation at a time: they share cores and memory
                if any(one.reply is None for one in asked):  # else another thread has answered them meanwhile
                    self._answer_next(waiting)
        return [one.reply for one in asked if one.reply is not None]

    def close(self) -> None:
        """Forget the model, unless it is writing: then the process's end must do. The next request would load it."""
        import torch

        if _LOCK.acquire(timeout=_LEAVE_S):
            if not _WAITING.get(self._key):  # another thread's request would only load it again
                _LOADED.pop(self._key, None)
            _LOCK.release()
            gc.collect()
            torch.cuda.empty_cache()  # PyTorch keeps a model's memory; does nothing where CUDA has not been used

    @property
    def _key(self) -> tuple[str, str, str]:
        return (self.model, self.device, self.dtype)

    def _answer_next(self, waiting: "deque[_Asked]") -> None:
        """Answer the oldest requests, as many as are answered together, whichever threads have asked them."""
        batch = [waiting.popleft() for _ in range(min(self.batch_size, len(waiting)))]
        try:
            for one, reply in zip(batch, self._answer([one.request for one in batch]), strict=True):
                one.reply = reply
        finally:  # interrupted: other threads still want theirs
            waiting.extendleft(one for one in reversed(batch) if one.reply is None)

    def _answer(self, requests: Sequence[Request]) -> list[Reply]:
        """Return the replies to one batch; where it fails as a whole, each request is tried alone."""
        start = time.monotonic()
        try:
            if self._key not in _LOADED:
                _LOADED[self._key] = _load(*self._key)
            replies = _LOADED[self._key].reply(requests, self.threads)
        except Exception as error:  # no memory, a model that cannot be loaded, a schema that is none
            if len(requests) > 1:
                return [reply for request in requests for reply in self._answer([request])]
            replies = [Reply.failed(error, model=self.model)]
        share_s = (time.monotonic() - start) / len(requests)
        return [reply.replace(seconds=share_s, model=self.model) for reply in replies]


@dataclass(eq=False)
class _Asked:
    """A request that waits, and its reply as soon as there is one."""

    request: Request
    reply: Reply | None = None


@dataclass
class _Answer:
    """One row of a batch: what has been written so far, and how to pick the next token."""

    request: Request
    prompt: list[int]
    room: int
    generator: Any
    matcher: Any = None
    tokens: list[int] = field(default_factory=list)
    ended: bool = False


@dataclass
class _LoadedModel:
    """A model with its tokenizer and a compiler of grammars for it."""

    model: Any
    tokenizer: Any
    compiler: Any
    context: int
    ends: list[int]

    def reply(self, requests: Sequence[Request], threads: int) -> list[Reply]:
        """Return one reply a request, in order; raises what the model, its template or the grammar raise."""
        import torch

        torch.set_num_threads(threads)
        answers = [self._begin(request) for request in requests]
        fitting = [answer for answer in answers if answer.room > 0]
        if fitting:
            with torch.inference_mode():
                self._generate(fitting)
        return [
            Reply(
                text=self.tokenizer.decode(answer.tokens, skip_special_tokens=True),
                finish_reason="stop" if answer.ended else "length",
                prompt_tokens=len(answer.prompt),
                completion_tokens=len(answer.tokens),
            )
            if answer.room > 0
            else Reply.failed(f"the prompt has {len(answer.prompt)} tokens, the model's context holds {self.context}")
            for answer in answers
        ]

    def _begin(self, request: Request) -> _Answer:
        import torch
        import xgrammar

        messages = [message.model_dump() for message in request.messages]
        prompt = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
        generator = torch.Generator(self.model.device).manual_seed(request.seed % 2**63)
        answer = _Answer(request, prompt, min(request.max_tokens, self.context - len(prompt)), generator)
        if request.json_schema is not None:
            schema = json.dumps(request.json_schema)
            grammar = self.compiler.compile_json_schema(schema, any_whitespace=False, separators=(",", ":"))
            answer.matcher = xgrammar.GrammarMatcher(grammar, override_stop_tokens=self.ends)
        return answer

    def _generate(self, answers: list[_Answer]) -> None:
        """Fill the answers' tokens. All options of `generate` that models bring along are set back to neutral."""
        import torch
        from transformers import GenerationConfig

        longest = max(len(answer.prompt) for answer in answers)
        pad = self.ends[0]
        rows = [[pad] * (longest - len(answer.prompt)) + answer.prompt for answer in answers]
        seen = [[0] * (longest - len(answer.prompt)) + [1] * len(answer.prompt) for answer in answers]
        device = self.model.device
        self.model.generate(
            input_ids=torch.tensor(rows, device=device),
            attention_mask=torch.tensor(seen, device=device),
            logits_processor=[_Pick(answers, self.ends)],
            generation_config=GenerationConfig(
                max_new_tokens=max(answer.room for answer in answers),
                do_sample=False,
                num_beams=1,
                repetition_penalty=1.0,
                eos_token_id=self.ends,
                pad_token_id=pad,
            ),
        )


class _Pick:
    """A logits processor that picks each row's next token itself and leaves `generate` no choice.

    Rows have their own schema, seed, temperature, top_p and room; transformers has one of each for a whole batch.
    """

    def __init__(self, answers: list[_Answer], ends: list[int]) -> None:
        self.answers, self.ends = answers, ends

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        picked = scores.new_full(scores.shape, float("-inf"))
        for row, answer in enumerate(self.answers):
            token = self.ends[0]  # a row that is over waits for the others
            if not answer.ended and len(answer.tokens) < answer.room:
                token = _next_token(answer, scores[row : row + 1].float())
                answer.tokens.append(token)
                answer.ended = token in self.ends
            picked[row, token] = 0.0
        return picked


def _next_token(answer: _Answer, scores: Any) -> int:
    """Return the next token of a row, by its grammar, temperature and top_p; scores has shape 1 x vocabulary."""
    import torch
    import xgrammar

    if answer.matcher is not None:
        mask = xgrammar.allocate_token_bitmask(1, scores.shape[-1])
        answer.matcher.fill_next_token_bitmask(mask)
        xgrammar.apply_token_bitmask_inplace(scores, mask.to(scores.device))
    if answer.request.temperature <= 0:
        token = int(scores.argmax())
    else:
        chances, order = (scores[0] / answer.request.temperature).softmax(-1).sort(descending=True, stable=True)
        before = chances.cumsum(-1) - chances
        chances = chances.where(before < answer.request.top_p, 0.0)  # the first always stays
        token = int(order[torch.multinomial(chances, 1, generator=answer.generator)])
    if answer.matcher is not None and not answer.matcher.accept_token(token):
        raise RuntimeError(f"the grammar refused token {token}, which it had allowed")
    return token


_LOADED: dict[tuple[str, str, str], _LoadedModel] = {}
_WAITING: dict[tuple[str, str, str], deque[_Asked]] = {}  # by model, like what is loaded
_LOCK = threading.Lock()


def _load(name: str, device: str, dtype: str) -> _LoadedModel:
    import torch
    import xgrammar
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # it would write across the run's own
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype == "auto" and device == "cpu":
        dtype = "float32"
    name = folder_or_name(name)
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype).to(device).eval()
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [tokenizer.eos_token_id if ends is None else ends]
    config = model.config.get_text_config()
    about = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=config.vocab_size, stop_token_ids=ends)
    compiler = xgrammar.GrammarCompiler(about, max_threads=1)
    return _LoadedModel(model, tokenizer, compiler, config.max_position_embeddings, ends)
