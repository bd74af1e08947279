"""The lab's file: read with its lines, checked part by part, and told as frozen values."""
