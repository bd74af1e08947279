"""Whether engines fit their cards, and what of a lab is open that is on no page."""
