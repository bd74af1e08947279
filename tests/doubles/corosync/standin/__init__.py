"""What the lab's nodes have in place of Proxmox VE: it runs inside of them, on Debian's Python alone.

It fails as the real thing does, to the letter of its lines and exit codes, and is nowhere more lenient.
"""
