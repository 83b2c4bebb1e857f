"""Messages of the Model Context Protocol and what they mean, without a loop."""
