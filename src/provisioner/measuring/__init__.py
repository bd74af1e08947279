"""Measurements of services: contexts, speed, load and quality; each verb with its results as text."""
