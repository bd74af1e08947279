"""A server in a container that runs Ansible's modules without starting a Python for each (docs/module-server.md)."""
