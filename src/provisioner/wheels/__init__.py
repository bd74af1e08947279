"""Which wheels go together: what their names and metadata say, judged before anything is downloaded.

Pure: names and texts in, verdicts out. ``builds`` reads a wheel's name, ``parts`` puts wheels together by package,
``rule`` judges them beside each other's torch, ``known`` reads the stacks that we have judged and hashed ourselves.
"""
