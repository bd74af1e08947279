"""The verb ``doctor``: what is wrong with the hosts of a lab, their cards, and the containers that have one.

``examine`` looks and tells. ``hosts`` judges a host itself, ``cards`` what a host does for its cards and whether an
engine that was built with CUDA can compute on one, ``inside`` what of a card arrived in a container, ``downloads`` what
a host has still to download, ``site_names`` whether names lead to their door.
"""
