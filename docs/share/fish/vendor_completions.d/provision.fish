# Completion of provision for fish: what the installed one says, asked at the first use of the tab key.
_PROVISION_COMPLETE=fish_source provision 2>/dev/null | source
