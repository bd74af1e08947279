"""The verb ``doctor``: what is wrong with the hosts of a lab, their cards, and the containers that have one."""
