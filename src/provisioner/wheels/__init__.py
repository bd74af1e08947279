"""The judgement of wheels that are to go together: by names and metadata, before anything is downloaded.

``builds`` reads a wheel's name, ``given`` what a user names, ``rule`` judges a set beside its torch, ``known`` reads
the stacks that we have judged and hashed ourselves, ``locking`` has uv resolve one of them, ``text`` tells what was
found.
"""
