"""The service: one cycle after another, takeover between controllers, and giving everything back."""
