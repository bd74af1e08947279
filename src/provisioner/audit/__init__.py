"""What of a lab is open that is on no page: what to ask of each container, and what its answers mean. Pure.

``questions`` has what is asked, ``judging`` what of the answers is a finding.
"""
