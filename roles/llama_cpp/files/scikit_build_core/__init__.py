"""A build backend that builds nothing."""
