"""The lab's own certificate authority, and what is wrong with a certificate that is given."""
