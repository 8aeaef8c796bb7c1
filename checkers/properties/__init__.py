"""What must hold: one file a property. What lies here is what is judged."""
