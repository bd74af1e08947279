"""A separate, real Incus for the tests: brought up from nothing by the product's own play, taken down without trace."""
