"""The meaning of a `request_id`: decisions, reservations, joins, reconciliation."""
