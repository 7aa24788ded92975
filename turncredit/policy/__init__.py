"""The language model: made or loaded, trained whole or by adapters, sampled, saved as a Hugging Face folder."""
