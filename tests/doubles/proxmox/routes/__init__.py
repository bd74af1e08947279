"""What answers the methods of the API, a group of paths a module."""
