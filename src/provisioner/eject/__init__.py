"""The verbs ``eject`` and ``import``, and the lab as an inventory of Ansible.

``eject`` writes the folder; ``import_block`` reads one container; ``inventory`` is what Ansible gets of a lab that
provision goes on managing.
"""
