"""Conversations with a language model: prompts, replies, memory, and the searchers' common part."""
