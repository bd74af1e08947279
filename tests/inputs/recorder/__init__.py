"""Put first on PYTHONPATH where it is recorded what processes read."""
