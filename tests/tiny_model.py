"""A language model of half a million random weights, made offline in seconds: it obeys grammars and knows nothing."""

import json
import sys
from pathlib import Path
from random import Random

import searchers
from automcu_ray.networks.search_space import Space
from automcu_ray.networks.spec import ArchitectureSpec

CONTEXT = 8192  # tokens; the prompts of a run take about 2,000 of them
_VOCABULARY = 1024
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tiny_model(folder: Path) -> Path:
    """Write a random Qwen2 with its tokenizer and chat template to a folder; return the folder.

    The weights are the same every time. The tokenizer is trained on this project's prompts and specs, so that token
    counts are like those of a real model.
    """
    import torch
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    tokenizer = _tokenizer()
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=len(tokenizer),
                hidden_size=128,
                intermediate_size=256,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=CONTEXT,
                tie_word_embeddings=True,
                bos_token_id=None,
                **ends,
            )
        )
    model.generation_config = GenerationConfig(**ends)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tokenizer():  # type: ignore[no-untyped-def]
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_texts(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=["<|im_start|>"],
        model_max_length=CONTEXT,
        chat_template=_TEMPLATE,
    )


def _texts() -> list[str]:
    """What prompts and replies are made of: the templates, the vocabulary, specs."""
    space = Space(input_shape=(1, 8, 8), num_classes=10)
    specs = [space.sample(Random(seed)).spec for seed in range(200)]
    prompts = [path.read_text() for path in sorted(Path(searchers.__file__).with_name("prompts").glob("*.j2"))]
    return [*prompts, json.dumps(ArchitectureSpec.model_json_schema()), *(json.dumps(s.compact()) for s in specs if s)]


if __name__ == "__main__":
    print(make_tiny_model(Path(sys.argv[1])))
