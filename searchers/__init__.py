"""Proposers as Ray Tune Searchers: one file and one line here each."""

SEARCHERS = {
    "random": "searchers.random:RandomSearch",
    "llm_memory": "searchers.llm_memory:LLMMemorySearch",
}
