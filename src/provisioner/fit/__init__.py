"""Whether models fit on a card: weights, cache, recurrent state, buffers and encoders, term by term. Pure.

``layers`` says what each layer of a model keeps for the tokens that it has seen, ``terms`` adds everything up.
"""
