"""Proposers as Ray Tune Searchers: one file and one line here each."""

SEARCHERS = {
    "random": "searchers.random:RandomSearch",
    "evolution": "searchers.evolution:EvolutionSearch",
    "bayesian": "searchers.bayesian:BayesianSearch",
    "capacity": "searchers.capacity:CapacitySearch",
    "genius": "searchers.genius:GeniusSearch",
    "llm": "searchers.llm:LLMSearch",
    "llm_memory": "searchers.llm_memory:LLMMemorySearch",
}
