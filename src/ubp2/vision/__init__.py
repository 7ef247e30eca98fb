"""Images to vectors: frozen encoders, and what they need to be found and loaded."""
