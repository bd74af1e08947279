"""Models: where their files lie, what the heads of GGUF files say, and the hub that offers them."""
