"""The page of ``report``, the drawings of ``graph``, and what programs need to use the lab's services.

``content`` has the values of the page, ``page`` its parts in order and its style, ``sections`` and ``plots`` the larger
parts. Of a drawing ``topology`` is the value and the text, ``layout`` says where everything stands, and
``picture`` writes the file. ``clients`` has endpoints, snippets and files for RDP.
"""
