"""The language model: built or loaded, trained in full or by adapters, sampled, saved as a Hugging Face folder."""
