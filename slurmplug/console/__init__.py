"""Tables and times as the terminal shows them."""
