"""Tests on the lab of corosync nodes; a package, because its nodes live for as long as its tests run."""
