"""The verbs as straight lists of calls, a module for each; what touches the world is an argument (``Effects``)."""
