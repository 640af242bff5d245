"""Proposers as Ray Tune Searchers: one file and one line here each."""

SEARCHERS = {
    "random": "searchers.random:RandomSearch",
    "genius": "searchers.genius:GeniusSearch",
    "llm": "searchers.llm:LLMSearch",
    "llm_memory": "searchers.llm_memory:LLMMemorySearch",
}
