"""The verbs ``eject`` and ``import``, and the lab as an inventory of Ansible."""
