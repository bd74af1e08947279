"""Programs that attack a service of a test's own containers, each with an end in time and number."""
