"""What each test file depends on, and which of them a run can leave out because nothing of that has changed."""
