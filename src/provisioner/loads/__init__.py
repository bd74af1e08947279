"""Whether models fit on a card: weights, cache, recurrent state, buffers and encoders, term by term.

``layers`` says what each layer of a model keeps for the tokens that it has seen, and what of it lies on the card,
``terms`` adds everything up, ``budgets`` does so for all engines of a card, ``advice`` says what follows. All of that
is pure; ``measured`` alone keeps something: what engines took when they ran.
"""
