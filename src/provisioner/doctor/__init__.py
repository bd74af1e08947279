"""What was seen of the lab's hosts, their cards and the containers that have one, and what is wrong with it. Pure.

``hosts`` judges a host itself, ``cards`` what a host does for its cards, ``inside`` what of it arrived in a container,
``cuda`` whether an engine that was built with CUDA can compute on a card, ``sites`` whether names lead to their door.
"""

from __future__ import annotations

from provisioner.doctor.diagnosis import Diagnosis
from provisioner.doctor.hosts import diagnoses

__all__ = ["Diagnosis", "diagnoses"]
