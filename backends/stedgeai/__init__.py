"""STM32, by ST Edge AI Core (STM32Cube.AI, X-CUBE-AI)."""
