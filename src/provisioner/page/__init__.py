"""The page of ``report``, the drawings of ``graph``, and what programs need to use the lab's services."""
