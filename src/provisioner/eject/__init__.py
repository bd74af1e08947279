"""The verbs ``eject`` and ``import``, and the lab as an inventory of Ansible.

``eject`` writes the folder, of which ``texts`` has the files that are no copies; ``import_block`` reads one container;
``inventory`` is what Ansible gets of a lab that provision goes on managing.
"""
