"""The endpoints: what every front end answers."""
